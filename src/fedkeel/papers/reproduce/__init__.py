"""Recipes carried out: planned at a scale, run in parallel, read as the paper reads them, claims judged."""
