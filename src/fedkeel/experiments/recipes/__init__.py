"""Recipes: runs that show what the papers say, each with its seed and its table."""
