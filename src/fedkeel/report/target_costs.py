"""What runs took to reach a target, over the seeds of a method, and how that is written.

FedSAGD's Table 2 writes "2000+" where a target was not reached within 2000 rounds; so is it here, for bytes,
gradients and seconds too. Seeds that diverged, or that are not finished, are not among those that missed it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class TargetCost(NamedTuple):
    """What a run took to reach a target: rounds, bytes down and up, seconds, minibatch gradients.

    Gradients are those of all clients' local steps: one per step, two where a step perturbs the model first.
    """

    rounds: int
    bytes: int
    seconds: float
    gradients: int


class CostSummary(NamedTuple):
    """What a method took over its seeds, by the fields of `TargetCost`.

    Of `reached` runs mean and standard deviation (None below two), of `missed` runs, which ended without the
    target, the least that any of them took.
    """

    reached: int
    missed: int
    means: dict[str, float] | None
    spreads: dict[str, float] | None
    limits: dict[str, float] | None


def total_cost(rows: Iterable[Mapping[str, Any]]) -> TargetCost:
    """Return what all these rounds took."""
    rounds, sent, seconds, gradients = 0, 0, 0.0, 0
    for row in rows:
        rounds = row["round"] + 1
        sent += row["bytes_down"] + row["bytes_up"]
        seconds += row.get("seconds") or 0.0
        gradients += row.get("gradients") or 0
    return TargetCost(rounds, sent, seconds, gradients)


def summarise_costs(reached: Sequence[TargetCost], missed: Sequence[TargetCost]) -> CostSummary:
    """Return what the runs that reached a target took, and what the others took in vain."""
    return CostSummary(
        len(reached),
        len(missed),
        means=_each(statistics.fmean, reached),
        spreads=_each(statistics.stdev, reached) if len(reached) > 1 else None,
        limits=_each(min, missed),
    )


def _each(make: Callable[[list[float]], float], costs: Sequence[TargetCost]) -> dict[str, float] | None:
    if not costs:
        return None
    return {name: make([getattr(cost, name) for cost in costs]) for name in TargetCost._fields}


def shown_cost(name: str, found: CostSummary, seeds: int) -> str:
    """Return one of the costs of a method with that many seeds as text, as in `572 ± 14 (2 of 3; 2000+)`."""
    limit = "" if found.limits is None else f"{_shown(name, found.limits[name])}+"
    if found.means is None:
        some = f" ({found.missed} of {seeds})" if found.missed < seeds else ""
        return f"{limit}{some}" if limit else "—"
    text = _shown(name, found.means[name], None if found.spreads is None else found.spreads[name])
    if found.reached == seeds:
        return text
    return f"{text} ({found.reached} of {seeds}{f'; others {limit}' if limit else ''})"


def shown_seconds(mean: float, spread: float | None = None) -> str:
    """Return seconds with a decimal."""
    return f"{mean:.1f}{'' if spread is None else f' ± {spread:.1f}'}"


def shown_bytes(count: float, spread: float | None = None) -> str:
    """Return a number of bytes with its unit, and its standard deviation in the same unit."""
    power = next((power for power in range(4) if count < 1000 ** (power + 1)), 4)
    unit, scaled = ("B", "kB", "MB", "GB", "TB")[power], count / 1000**power
    if spread is None:
        return f"{scaled:.0f} B" if power == 0 else f"{scaled:,.3g} {unit}"
    decimals = 0 if power == 0 or scaled >= 100 else 1 if scaled >= 10 else 2
    return f"{scaled:,.{decimals}f} ± {spread / 1000**power:,.{decimals}f} {unit}"


def _shown(name: str, mean: float, spread: float | None = None) -> str:
    if name == "seconds":
        return shown_seconds(mean, spread)
    return shown_bytes(mean, spread) if name == "bytes" else _shown_count(mean, spread)


def _shown_count(mean: float, spread: float | None) -> str:
    """Return a number of rounds or gradients; a mean of small ones has a decimal."""
    numbers = [mean] if spread is None else [mean, spread]
    if mean < 100 and not all(float(number).is_integer() for number in numbers):
        return " ± ".join(f"{number:.1f}" for number in numbers)
    return " ± ".join(f"{number:,.0f}" if mean >= 10_000 else f"{number:.0f}" for number in numbers)
