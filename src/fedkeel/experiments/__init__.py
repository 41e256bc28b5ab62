"""Experiments as files and expressions, and the one loop over many runs."""

COMPARISON_FILE = "comparison.toml"  # marks the directory of a comparison
OUTCOME_FILE = "outcome.json"  # its numbers and its text, read by `fedkeel show`
OUTCOME_TEXT = "outcome.txt"  # marks the directory of a reproduced table or figure
STUDY_FILE = "study.json"  # marks the directory of a study, a sweep or a search
COMMAND_FILE = "command.json"  # beside it: the command that began it, with which it goes on
