"""Experiments as files and expressions; comparisons, sweeps, searches and recipes made of them."""
