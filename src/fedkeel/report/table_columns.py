"""Which columns a table has: scores by any measure, costs to a target, the time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fedkeel.common.columns import KnownColumns
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.report.measures import Measure, parse_measure, plain_measure

SCORE = "score"  # by the measure that methods are ranked by
_OLD_SCORE = "accuracy"  # what 0.1 called it, whatever it was
SECONDS = "seconds"
COST_COLUMNS = {  # the field of `TargetCost`, and the heading
    "rounds_to_target": ("rounds", "rounds to target"),
    "bytes_to_target": ("bytes", "sent to target"),
    "gradients_to_target": ("gradients", "gradient steps to target"),
    "seconds_to_target": ("seconds", "seconds to target"),
}
COLUMNS = (SCORE, "rounds_to_target", "bytes_to_target", SECONDS)
_RULES = ("final", "top", "last:K", "smoothed:K", "mean:A:B")


def parse_columns(given: str | Iterable[str], known: KnownColumns | None = None) -> tuple[str, ...]:
    """Read the columns of a table: a text with commas between them, or several texts.

    `known` says of measures that leave it open what is better; without it they go on leaving it open.

    >>> parse_columns("top, smoothed:50, rounds_to_target")
    ('top', 'smoothed:50', 'rounds_to_target')
    """
    if isinstance(given, str):
        given = given.split(";" if ";" in given else ",")
    elif not isinstance(given, Iterable):
        raise ConfigError(f"columns = {given!r}: give their names, as in columns='top,rounds_to_target'")
    columns = tuple(_checked(name, known) for name in given)
    for name in columns:
        if columns.count(name) > 1:
            raise ConfigError(f"columns: {name!r} is given twice: leave one out")
    if not columns:
        raise ConfigError("columns: none is given: name some, as in 'top,rounds_to_target'")
    return columns


def _checked(name: object, declared: KnownColumns | None) -> str:
    """Return a column's name in its plain form; refuse what is none."""
    if not isinstance(name, str):
        raise ConfigError(f"columns: {name!r} is no name: give a text, as 'top' or 'rounds_to_target'")
    name = name.strip()
    known = (SCORE, SECONDS, *COST_COLUMNS)
    if column_now(name) in known:
        return column_now(name)
    if re.split("[: ]", name)[0] in {rule.partition(":")[0] for rule in _RULES}:
        return plain_measure(name) if declared is None else str(parse_measure(name, declared))
    raise ConfigError(f"columns: there is no column {name!r}; {did_you_mean(name, (*known, *_RULES))}")


def column_now(name: str) -> str:
    """Return a column's name of today."""
    return SCORE if name.strip() == _OLD_SCORE else name


def measure_columns(columns: Sequence[str]) -> list[str]:
    """Return those of the columns that are measures of their own."""
    return [name for name in columns if name not in (SCORE, SECONDS, *COST_COLUMNS)]


def heading(column: str, measure: Measure, target: str = "target") -> str:
    """Return what stands above a column, with the target as text."""
    if column == SCORE:
        return measure.label
    if column == SECONDS:
        return SECONDS
    if column in COST_COLUMNS:
        return COST_COLUMNS[column][1].replace("target", target)
    return parse_measure(column).label
