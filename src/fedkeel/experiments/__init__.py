"""Experiments as files and expressions, and the one loop over many runs."""

STUDY_FILE = "study.json"  # marks the directory of a study: which it is, its settings and its plan
RESULT_FILE = "result.json"  # beside it: what it came to
PAGE_FILE = "page.html"
COMPARISON_FILE = "comparison.toml"  # marks the directory of a comparison of version 0.1
OUTCOME_FILE = "outcome.json"  # the numbers and the text of a reproduced table or figure
OUTCOME_TEXT = "outcome.txt"
