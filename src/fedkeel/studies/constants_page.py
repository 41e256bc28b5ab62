"""The constants study as a section of a page, and as lines of texts, from what `Findings.as_dict` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedkeel.report.page.document import Axis, Chart, Section, Series, Table, Text, Verdict
from fedkeel.report.page.runs import short
from fedkeel.studies.measured import several as _several

HEADINGS = ("value", "from", "to", "samples", "how")
_SYMBOLS = {
    "L": "L",
    "L_power": "  from Hessians",
    "L_pairs": "  from pairs",
    "L_G": "L_G",
    "sigma_l2": "σ_l²",
    "sigma_g2": "σ_g²",
    "Phi": "Φ",
    "D": "D",
    "U": "U",
    "mu": "μ (PL)",
    "tau1": "τ1",
    "tau2": "τ2",
    "a": "a",
    "b": "b",
    "alpha": "α",
    "beta": "β",
    "interpolation_a": "a (FedInit)",
    "interpolation_b": "b (FedInit)",
    "sample_gradient": "‖g_z‖",
    "sample_spread": "‖g_z − ∇f_i‖",
    "G2": "G² (poster)",
    "B2": "B² (poster)",
}
_ABOUT = (
    "What the theorems ask of the losses, along and around a pilot of {rounds} rounds. A largest value over "
    "samples is a lower bound of the true constant: a longer pilot can raise it."
)
_FRONTIERS = (
    "Each point of the lower two lines bounds all sampled pairs: less of one costs more of the other."
)
_NEXT = "`fedkeel advise` says what follows for a method."


def constants_section(found: Mapping[str, Any]) -> Section:
    """Return the pilot's curves, what trades off against what, and the table of constants."""
    return Section(
        id="constants",
        title="Constants",
        about=_ABOUT.format(rounds=found["pilot_rounds"]),
        blocks=(
            _chart("Loss of the pilot's models", "round", "f", found["losses"]),
            _chart("Steepness, whose lowest value is τ1", "round", "‖∇f‖/√f", found["tau1_by_round"]),
            constants_table(found),
            _chart("Pairs (a, b) that fit", "a", "b", found["frontier_a_b"]),
            _chart("Pairs (α², β²) that fit", "α²", "β²", found["frontier_alpha2_beta2"]),
            Text(id="constants-notes", paragraphs=(_FRONTIERS, *found["notes"], _NEXT), listed=True),
        ),
    )


def constants_table(found: Mapping[str, Any]) -> Table:
    """Return the table of constants."""
    return Table(
        id="constants-table",
        scores=True,
        title="Constants, along and around the pilot",
        headings=("constant", *HEADINGS),
        rows=tuple((row[0].strip(), *row[1:]) for row in constant_rows(found)),
        left=(0, 5),
        wide=(5,),
    )


def constant_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a line per constant: symbol, value, spread, samples, how it was measured."""
    return [
        (
            symbol,
            *(constant_text(one[key]) for key in ("value", "low", "high")),
            str(one["samples"]),
            one["how"],
        )
        for name, symbol in _SYMBOLS.items()
        for one in (found["constants"][name],)
    ]


def constant_notes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the corners of what was fitted, and what is to be said of it."""
    first, second = found["frontier_pairs"]
    return (
        f"frontier (a, b):   {_corners(found['frontier_a_b'])}, on {first} pairs",
        f"frontier (α², β²): {_corners(found['frontier_alpha2_beta2'])}, on {second} pairs",
        *(f"Note: {note}" for note in found["notes"]),
    )


def constant_text(value: float | None) -> str:
    """Return a value as the pages print it; in JSON, which has no infinity, None stands for it."""
    return "∞" if value is None else f"{value:.4g}"


def _corners(corners: Sequence[Sequence[float]]) -> str:
    return " ".join(f"({p:.4g}, {q:.4g})" for p, q in corners)


def _chart(title: str, x: str, y: str, points: Sequence[Sequence[float]]) -> Chart:
    line = Series(name=y, x=tuple(short(p) for p, _ in points), y=tuple(short(q) for _, q in points))
    return Chart(id=f"{x}-{y}", title=title, x=Axis(label=x), y=Axis(label=y), series=(line,))


def constants_verdict(found: Mapping[str, Any]) -> Verdict:
    """Say what the losses are like: how smooth, how noisy, how unlike clients are, how steep."""
    constants = found["constants"]

    def told(name: str) -> str:
        one = constants[name]
        ends = f" ({constant_text(one['low'])} to {constant_text(one['high'])})"
        return constant_text(one["value"]) + (ends if one["low"] != one["high"] else "")

    return Verdict(
        text=f"Along a pilot of {_several(found['pilot_rounds'], 'round')}: smoothness L = {told('L')}, "
        f"noise of minibatches σ_l² = {told('sigma_l2')}, unlikeness of clients σ_g² = {told('sigma_g2')}, "
        f"steepness τ1 = {told('tau1')}; in brackets the range of what was seen."
    )
