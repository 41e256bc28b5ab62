"""The command line. Heavy modules are imported inside the commands, so that `--help` is quick."""

from fedkeel.cli.app import app, main

__all__ = ["app", "main"]
