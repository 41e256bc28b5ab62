"""The command line. A command's module is imported when the command is called."""

from fedkeel.cli.app import app, main

__all__ = ["app", "main"]
