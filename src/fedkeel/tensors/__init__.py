"""Flat vectors, records and trees of tensors, and keyed random streams."""
