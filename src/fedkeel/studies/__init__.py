"""Studies: diagnostics that need runs of their own."""

STUDY_FILE = "study.json"  # marks the directory of a study, a sweep or a search
COMMAND_FILE = "command.json"  # beside it: the command that began it, with which it goes on
