"""Experiments as files and expressions; comparisons, sweeps, searches and recipes made of them."""

COMPARISON_FILE = "comparison.toml"  # marks the directory of a comparison
OUTCOME_FILE = "outcome.json"  # its numbers and its text, read by `fedkeel show`
OUTCOME_TEXT = "outcome.txt"  # marks the directory of a reproduced table or figure
