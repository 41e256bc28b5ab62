"""`fedkeel settings`: every key of an experiment; docs/settings.md is made of the same table."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fedkeel.cli import options as opt
from fedkeel.common.progress import console, plain_table
from fedkeel.experiments.setting_table import PARTS, Setting, all_settings, find_settings

_EXAMPLES = """[bold]Examples[/]

fedkeel settings

fedkeel settings work

fedkeel settings work.clip

fedkeel settings --json"""
HEADINGS = ("key", "type", "default", "option", "meaning")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(settings)


def settings(
    part: Annotated[
        str | None, typer.Argument(metavar="PART", help=f"{', '.join(PARTS)}, or a key, as work.lr.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """List the settings of an experiment: key, type, default, meaning, and the option that sets each."""
    found = all_settings() if part is None else find_settings(part)
    if as_json:
        print(json.dumps([describe(setting) for setting in found], ensure_ascii=False, indent=2))
        return
    table = plain_table(HEADINGS, [cells(setting) for setting in found])
    for heading, column in zip(HEADINGS, table.columns, strict=True):
        column.justify = "left"
        column.no_wrap = heading in ("key", "option")
        column.overflow = "fold"  # on a narrow screen a long word goes on below
    screen = console()
    screen.print(table)
    screen.print(
        "\nSet a key with --set KEY=VALUE, in an experiment's file, or with its option; KEY=none clears it.",
        markup=False,
        soft_wrap=True,
    )


def cells(setting: Setting) -> tuple[str, ...]:
    """Return a setting as a line of the table."""
    return (setting.key, setting.type, setting.default, option_of(setting) or "—", setting.meaning)


def describe(setting: Setting) -> dict[str, str | None]:
    """Return a setting for a program to read."""
    return {
        "key": setting.key,
        "part": setting.part,
        "type": setting.type,
        "default": setting.default,
        "option": option_of(setting),
        "meaning": setting.meaning,
    }


def option_of(setting: Setting) -> str | None:
    """Return the option that sets a key; tables are for files and `--set` alone."""
    names = {option.key: f"--{option.name}" for option in opt.experiment_options()}
    return names.get(setting.key)
