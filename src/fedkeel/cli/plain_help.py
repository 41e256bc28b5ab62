"""Help as it is written: rich would show `mean:A:B` with an emoji, as it has one that is called `:A:`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


def with_plain_help(command: Any) -> Any:
    """Let a command, and all commands below it, print help without emoji."""
    show = command.format_help

    def format_help(ctx: Any, formatter: Any) -> None:
        with _no_emoji():
            show(ctx, formatter)

    command.format_help = format_help
    for inner in getattr(command, "commands", {}).values():
        with_plain_help(inner)
    return command


@contextmanager
def _no_emoji() -> Iterator[None]:
    """Read markup without emoji: typer asks rich for them, and text cannot escape them."""
    from rich.text import Text  # noqa: PLC0415  only help needs it

    read = Text.from_markup
    Text.from_markup = partial(read, emoji=False)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Text.from_markup = read  # type: ignore[method-assign]
