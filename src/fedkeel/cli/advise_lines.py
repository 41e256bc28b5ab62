"""The advice in five lines, which the adviser's page begins with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedkeel.cli.constants import number

if TYPE_CHECKING:
    from fedkeel.cli.advise_values import AdvicePage
    from fedkeel.theory.advice import Limit


def advice_lines(page: AdvicePage) -> tuple[str, ...]:
    """Return what to do about both rates, the rounds and β, and what is guaranteed as the run is."""
    inputs = page.inputs
    return (
        f"Local rate: {_rate(page.local, 'η_l', inputs.eta_l)}",
        f"Global rate: {_rate(page.globally, 'η_g', inputs.eta_g)}",
        f"Rounds: {_rounds(page)}",
        f"Relaxed initialisation: {_beta(page)}",
        f"Guarantees: {_guarantees(page)}",
    )


def _rate(limits: tuple[Limit, ...], symbol: str, own: float) -> str:
    """Say which theorems allow the run's own rate; where none does, the largest that one would."""
    within = [one.who for one in limits if abs(one.own) <= one.limit]
    if len(within) == len(limits):
        return f"{symbol} = {own:g} is safe by every theorem."
    if within:
        smallest = min(one.limit for one in limits)
        below = f"; for all take {number(smallest)} or less" if smallest > 0 else ""
        return f"{symbol} = {own:g} is safe by {_and(within)}, not by the others{below}."
    widest = max(limits, key=lambda one: one.limit)
    if widest.limit <= 0:
        return f"no theorem allows any {symbol} here; yours is {own:g}."
    return (
        f"no theorem allows {symbol} = {own:g}; the largest that one does is {number(widest.limit)} "
        f"({widest.who}). Larger ones often work, without a guarantee."
    )


def _rounds(page: AdvicePage) -> str:
    """Say when the loss is promised with the run's own steps, else with the best ones."""
    inputs, target = page.inputs, f"a loss of {page.inputs.epsilon:.3g}"
    asked = f"planned: {inputs.T}"
    if inputs.N < inputs.C:
        asked += f"; were all {inputs.C} clients active, not {inputs.N}"
    if page.own.steps is not None and page.own.reachable:
        return f"{target} is promised after {_count(page.own.rounds)} ({asked})."
    if page.best.steps is not None and page.best.reachable:
        steps = f"η_l = {page.best.steps.eta_l:.3g} and η_g = {page.best.steps.eta_g:.3g}"
        return f"your steps do not promise {target}; {steps} do after {_count(page.best.rounds)} ({asked})."
    return f"no steps promise {target}: {page.best.reason}."


def _beta(page: AdvicePage) -> str:
    beta, limits = page.inputs.beta, page.betas
    *theorems, practice = limits
    within = [one.who for one in theorems if abs(one.own) <= one.limit]
    covered = f"covered by {_and(within)}" if within else "covered by no theorem"
    stable = abs(practice.own) <= practice.limit
    advice = "and stable in practice" if stable else f"and too large: take {number(practice.limit)} or less"
    return f"β = {beta:g} is {covered} {advice} (β·C/N ≤ 1)."


def _guarantees(page: AdvicePage) -> str:
    holding = [one.theorem for one in page.theorem_checks if one.holds]
    count = len(page.theorem_checks)
    if holding:
        return f"{len(holding)} of {count} theorems hold for this run as it is: {_and(holding)}."
    nearest = min(page.theorem_checks, key=lambda one: sum(not c.holds for c in one.conditions))
    missing = [condition.name for condition in nearest.conditions if not condition.holds]
    none = f"none of {count} theorems holds for this run as it is"
    return f"{none}; {nearest.theorem} lacks only: {_and(missing)}."


def _count(rounds: float) -> str:
    return f"{max(0, math.ceil(rounds)):,}"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{'; '.join(parts[:-1])} and {parts[-1]}"
