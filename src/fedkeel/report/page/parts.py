"""What a directory gives to a page: runs and how they are compared, or sections of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.report.measures import FINAL, parse_measure
from fedkeel.report.page.comparison import runs_document
from fedkeel.report.page.document import Document, Section
from fedkeel.report.page.runs import ReportedRun
from fedkeel.report.table_columns import COLUMNS
from fedkeel.report.tables import reachable_target
from fedkeel.report.verdict import ComparisonVerdict, find_verdict


class PageParts(NamedTuple):
    """What a directory gives to a page: runs, sections of its own, and how its runs are compared.

    `verdict` is what was found of the runs already; without it they are compared here.
    """

    title: str
    runs: tuple[ReportedRun, ...] = ()
    sections: tuple[Section, ...] = ()
    commands: tuple[str, ...] = ()
    settings: str = ""
    measure: str = str(FINAL)
    target: float | None = None
    columns: tuple[str, ...] = COLUMNS
    subject: str = "method"
    whole: Document | None = None  # the page that is kept already
    verdict: ComparisonVerdict | None = None

    def document(self) -> Document:
        """Return the page."""
        if self.whole is not None:
            return self.whole
        if not self.runs:
            return Document(title=self.title, subtitle="; ".join(self.commands), sections=self.sections)
        trials, measure = [run.trial for run in self.runs], parse_measure(self.measure)
        return runs_document(
            self.title,
            self.runs,
            verdict=self.verdict or find_verdict(trials, measure),
            target=self.target or reachable_target(trials, measure.metric),
            commands=self.commands,
            settings=self.settings,
            columns=self.columns,
            subject=self.subject,
            more=self.sections,
        )


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names as a title has them."""
    if len(names) > most:
        return f"{len(names)} methods"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
