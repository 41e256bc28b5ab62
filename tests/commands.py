"""The commands of the command line, and which of them a line calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer

from fedkeel.cli import app


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that does something, with its path on the line."""
    context = typer.Context(group, info_name="fedkeel")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not hasattr(command, "list_commands") or command.invoke_without_command:
            yield (*path, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the path of the command that a line's words call."""
    return max((path for path in COMMANDS if tuple(words[: len(path)]) == path), key=len)
