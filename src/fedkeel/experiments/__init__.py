"""Experiments as files and expressions; comparisons, sweeps, searches and recipes made of them."""

COMPARISON_FILE = "comparison.toml"  # marks the directory of a comparison
