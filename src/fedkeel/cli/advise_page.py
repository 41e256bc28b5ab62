"""What the adviser prints, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedkeel.cli.advise_lines import advice_lines
from fedkeel.cli.advise_values import AdvicePage, StabilityComparison
from fedkeel.cli.constants import number, print_constants
from fedkeel.common.progress import console, plain_table

if TYPE_CHECKING:
    from fedkeel.theory.advice import Limit, PredictedRounds, TheoremCheck


def print_page(page: AdvicePage) -> None:
    """Print the page."""
    screen = console()

    def line(text: str = "") -> None:
        screen.print(text, markup=False, soft_wrap=True)

    def heading(text: str) -> None:
        line()
        screen.print(text, style="bold", markup=False, soft_wrap=True)

    screen.print(page.title, style="bold", markup=False, soft_wrap=True)
    for text in advice_lines(page):
        line(text)
    heading("Constants, along and around the pilot")
    print_constants(page.found)
    heading(f"Largest safe local rate (yours: η_l = {page.inputs.eta_l:g})")
    screen.print(_limits(page.local))
    heading(f"Largest safe global rate (yours: η_g = {page.inputs.eta_g:g})")
    screen.print(_limits(page.globally))
    heading(f"Rounds to a loss of ε = {page.inputs.epsilon:.3g} (Corollary 4.8, repaired)")
    line(f"with your steps:      {predicted_text(page.own)}")
    line(f"with the best steps:  {predicted_text(page.best)}")
    heading(f"Range of β for relaxed initialisation (asked: β = {page.inputs.beta:g})")
    screen.print(_limits(page.betas))
    heading("Conditions")
    for text in _conditions(page.theorem_checks):
        line(text)
    heading(
        f"Stability: ‖x_T − x_T'‖ with one client replaced, Θ = {page.inputs.theta:.3g} (FedSAGD, Table 1)"
    )
    screen.print(_bounds_table(page.stability))
    heading("Where theory and practice differ")
    for sentence in page.caveats:
        line(f"- {sentence}")


def as_json_value(page: AdvicePage) -> dict[str, Any]:
    """Return the page for JSON; null means infinity."""
    inputs = page.inputs
    return {
        "advice": list(advice_lines(page)),
        "run": {
            **{
                key: getattr(inputs, key)
                for key in (*"KNCSBT", "eta_l", "eta_g", "beta", "epsilon", "momentum", "lam")
            },
            "theta": inputs.theta,
        },
        **page.found.as_dict(),
        "local_rate": [_limit_dict(one) for one in page.local],
        "global_rate": [_limit_dict(one) for one in page.globally],
        "rounds": {"own_steps": _predicted_dict(page.own), "best_steps": _predicted_dict(page.best)},
        "beta_range": [_limit_dict(one) for one in page.betas],
        "conditions": [
            {
                "theorem": one.theorem,
                "bounds": one.bounds,
                "value": _finite(one.value),
                "conditions": [
                    {
                        "name": c.name,
                        "holds": c.holds,
                        "factor": _finite(c.factor),
                        "verdict": c.verdict,
                        "text": c.text,
                    }
                    for c in one.conditions
                ],
            }
            for one in page.theorem_checks
        ],
        "stability": [{**one._asdict(), "bound": _finite(one.bound)} for one in page.stability],
        "caveats": list(page.caveats),
    }


def limit_rows(limits: tuple[Limit, ...]) -> list[tuple[str, ...]]:
    """Return a line per theorem: the largest rate it allows, whether the run's is within, and why."""
    return [(one.who, number(one.limit), one.verdict, one.why) for one in limits]


def _limits(limits: tuple[Limit, ...]) -> Any:
    table = plain_table(("", "largest", "", ""), limit_rows(limits))
    for column in table.columns[2:]:
        column.justify = "left"
    return table


def predicted_text(one: PredictedRounds) -> str:
    """Return after how many rounds a loss is promised, or why nothing is."""
    if one.steps is None or not one.reachable:
        return f"nothing is promised: {one.reason}"
    steps = f"η_l = {one.steps.eta_l:.3g}, η_g = {one.steps.eta_g:.3g}"
    return f"{max(0, math.ceil(one.rounds)):,} rounds, {steps}, floor {number(one.floor)}"


def headline(check: TheoremCheck) -> str:
    """Return a theorem with its bound, and whether it holds here."""
    value = "" if math.isinf(check.value) else f" ≤ {number(check.value)}"
    state = "all conditions hold" if check.holds else "void here" if not value else "not guaranteed here"
    return f"{check.theorem}, {check.bounds}{value}: {state}"


def _conditions(theorem_checks: tuple[TheoremCheck, ...]) -> Iterator[str]:
    """Yield the lines of all theorems; what several ask for is listed once."""
    printed: set[str] = set()
    for check in theorem_checks:
        yield headline(check)
        lines = [str(condition) for condition in check.conditions]
        yield from (f"  {line}" for line in lines if line not in printed)
        again = sum(line in printed for line in lines)
        if again:
            yield f"  and {again} conditions listed above"
        printed |= set(lines)


def stability_rows(rows: tuple[StabilityComparison, ...]) -> list[tuple[str, ...]]:
    """Return a line per method: the bound after some rounds, what was measured, and how they compare."""
    return [
        (
            row.method,
            str(row.rounds),
            number(row.bound) if math.isfinite(row.bound) else "—",
            "—" if row.measured is None else number(row.measured),
            row.reason or _compared(row),
        )
        for row in rows
    ]


def _bounds_table(rows: tuple[StabilityComparison, ...]) -> Any:
    table = plain_table(("method", "rounds", "bound", "measured", ""), stability_rows(rows))
    table.columns[-1].justify = "left"
    return table


def _compared(row: StabilityComparison) -> str:
    if row.measured is None or row.measured == 0:
        return ""
    return f"bound is {row.bound / row.measured:.3g} times what was measured"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _limit_dict(one: Limit) -> dict[str, Any]:
    return {"by": one.who, "largest": one.limit, "own": one.own, "verdict": one.verdict, "why": one.why}


def _predicted_dict(one: PredictedRounds) -> dict[str, Any]:
    return {
        "rounds": _finite(one.rounds),
        "eta_l": None if one.steps is None else one.steps.eta_l,
        "eta_g": None if one.steps is None else one.steps.eta_g,
        "floor": _finite(one.floor),
        "reason": one.reason,
    }
