"""The advice as a page: the five lines first, then limits, conditions, constants and caveats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedkeel.cli.advise_lines import advice_lines
from fedkeel.cli.advise_page import headline, limit_rows, predicted_text, stability_rows
from fedkeel.report.page.document import Document, FactList, Section, Table, Text, Tone, Verdict
from fedkeel.studies.constants_page import constant_notes, constants_table

if TYPE_CHECKING:
    from fedkeel.cli.advise_values import AdvicePage
    from fedkeel.theory.advice import Limit


def advice_document(page: AdvicePage) -> Document:
    """Return the page of an advice."""
    inputs = page.inputs
    told = [line.partition(": ") for line in advice_lines(page)]
    *advice, guaranteed = told
    holding = sum(one.holds for one in page.theorem_checks)
    return Document(
        title="What theory says about this run",
        subtitle=page.title,
        kind="advice",
        verdict=Verdict(
            text=guaranteed[2][0].upper() + guaranteed[2][1:], tone="good" if holding else "unclear"
        ),
        sections=(
            Section(
                id="advice",
                title="Advice",
                blocks=(FactList(id="lines", rows=tuple((name, text) for name, _, text in advice)),),
            ),
            Section(
                id="rates",
                title="Rates and rounds",
                blocks=(
                    _limits("local", f"Largest safe local rate (yours: η_l = {inputs.eta_l:g})", page.local),
                    _limits(
                        "global", f"Largest safe global rate (yours: η_g = {inputs.eta_g:g})", page.globally
                    ),
                    _limits(
                        "beta", f"Range of β for relaxed initialisation (asked: {inputs.beta:g})", page.betas
                    ),
                    FactList(
                        id="rounds",
                        rows=(
                            ("loss to reach", f"ε = {inputs.epsilon:.3g} (Corollary 4.8, repaired)"),
                            ("with your steps", predicted_text(page.own)),
                            ("with the best steps", predicted_text(page.best)),
                        ),
                    ),
                ),
            ),
            Section(id="conditions", title="Conditions", blocks=(_theorems(page), _conditions(page))),
            Section(id="stability", title="Stability", blocks=(_stability(page),)),
            Section(
                id="constants",
                title="Constants",
                blocks=(constants_table(page.found.as_dict()), _notes(page)),
            ),
            Section(
                id="caveats",
                title="Where theory and practice differ",
                blocks=(Text(id="caveats-list", paragraphs=page.caveats, listed=True),),
            ),
        ),
    )


def _limits(name: str, title: str, limits: tuple[Limit, ...]) -> Table:
    rows = tuple((who, verdict, largest, why) for who, largest, verdict, why in limit_rows(limits))
    tones: tuple[Tone, ...] = tuple("good" if abs(one.own) <= one.limit else "bad" for one in limits)
    headings = ("by", "yours", "largest", "why")
    return Table(id=name, title=title, headings=headings, rows=rows, tones=tones, left=(0, 1, 3), wide=(0, 3))


def _theorems(page: AdvicePage) -> Table:
    rows = tuple(
        (one.theorem, "holds" if one.holds else "does not", headline(one)) for one in page.theorem_checks
    )
    return Table(
        id="theorems",
        title="Theorems",
        headings=("theorem", "here", "what it bounds"),
        rows=rows,
        tones=tuple("good" if one.holds else "bad" for one in page.theorem_checks),
        left=(0, 1, 2),
        wide=(0, 2),
    )


def _conditions(page: AdvicePage) -> Table:
    """Return every condition of every theorem, what several ask for once."""
    seen = dict.fromkeys(condition for one in page.theorem_checks for condition in one.conditions)
    rows = tuple((one.name, "holds" if one.holds else "violated", one.verdict, one.text) for one in seen)
    return Table(
        id="conditions-table",
        title="What they ask for",
        headings=("condition", "here", "by how much", "in full"),
        rows=rows,
        tones=tuple("good" if one.holds else "bad" for one in seen),
        left=(0, 1, 2, 3),
        wide=(0, 3),
    )


def _stability(page: AdvicePage) -> Table:
    title = f"‖x_T − x_T'‖ with one client replaced, Θ = {page.inputs.theta:.3g} (FedSAGD, Table 1)"
    headings = ("method", "rounds", "bound", "measured", "remark")
    rows = tuple(stability_rows(page.stability))
    return Table(id="bounds", title=title, headings=headings, rows=rows, left=(0, 4), wide=(4,))


def _notes(page: AdvicePage) -> Text:
    return Text(id="constants-notes", paragraphs=constant_notes(page.found.as_dict()), listed=True)
