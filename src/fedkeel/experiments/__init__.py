"""Experiments as files and expressions; comparisons, sweeps, searches and recipes made of them."""

COMPARISON_FILE = "comparison.toml"  # marks the directory of a comparison
OUTCOME_TEXT = "outcome.txt"  # marks the directory of a reproduced table or figure
OUTCOME_JSON = "outcome.json"  # the same as numbers
