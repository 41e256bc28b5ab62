"""Interleaving: every contender takes a turn in every repetition, in an order drawn anew."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Columns = dict[str, list[float | None]]


class Runner(Protocol):
    """Something that takes turns."""

    name: str

    def turn(self) -> float:
        """Return the seconds of a round."""


def interleave(
    runners: Mapping[str, Runner],
    repetitions: int,
    *,
    budget: float,
    least: int = 3,
    every: Mapping[str, int] | None = None,
    failed: Callable[[str, Exception], None],
    report: Callable[[str], None] = lambda _: None,
    seed: int = 0,
) -> Columns:
    """Return each runner's seconds per round, None in repetitions it sat out.

    A runner with `every` = 3 takes part in each third repetition. After `budget` seconds no repetition is
    begun, but for the first `least`. A runner that fails is told to `failed` and left out from then on.
    """
    order, rng = list(runners), random.Random(seed)
    columns: Columns = {name: [] for name in runners}
    started = time.monotonic()
    for repetition in range(repetitions):
        spent = time.monotonic() - started
        if repetition >= least and spent + spent / repetition > budget:
            break
        report(f"{repetition + 1}/{repetitions}")
        rng.shuffle(order)
        row = _repetition(runners, order, repetition, every or {}, failed)
        order = [name for name in order if name not in row.lost]
        for name, column in columns.items():
            column.append(row.seconds.get(name))
    return columns


class _Row:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lost: set[str] = set()


def _repetition(
    runners: Mapping[str, Runner],
    order: list[str],
    repetition: int,
    every: Mapping[str, int],
    failed: Callable[[str, Any], None],
) -> _Row:
    row = _Row()
    for name in order:
        if repetition % every.get(name, 1):
            continue
        try:
            row.seconds[name] = runners[name].turn()
        except Exception as problem:
            row.lost.add(name)
            failed(name, problem)
    return row
