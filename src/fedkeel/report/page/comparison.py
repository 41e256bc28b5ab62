"""The page of runs: one, a comparison, a sweep, or any mixture of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedkeel.common.columns import VALIDATION, KnownColumns
from fedkeel.report.measures import Measure, parse_measure
from fedkeel.report.page.clients import clients_section
from fedkeel.report.page.costs import costs_section
from fedkeel.report.page.diagnostics import drift_section, generalisation_section
from fedkeel.report.page.document import Curves, Document, Section
from fedkeel.report.page.provenance import provenance_section, settings_section, varied_settings
from fedkeel.report.page.runs import PageRuns, ReportedRun, page_runs
from fedkeel.report.page.scores import score_tables, shown_verdict
from fedkeel.report.table_columns import COLUMNS
from fedkeel.report.target_costs import shown_bytes, total_cost
from fedkeel.report.verdict import ComparisonVerdict

_FIRST = ("accuracy", "loss", f"{VALIDATION}accuracy", f"{VALIDATION}loss", "train_loss")


def runs_document(
    title: str,
    runs: Sequence[ReportedRun],
    *,
    verdict: ComparisonVerdict,
    target: float | None,
    commands: Sequence[str] = (),
    settings: str = "",
    columns: Sequence[str] = COLUMNS,
    subject: str = "method",
    more: Sequence[Section] = (),
) -> Document:
    """Return the page of runs.

    `commands` are the lines that make them again, `settings` is what all of them share, as TOML; `columns`
    are those of the table, where the score is by the verdict's measure, and `subject` is what runs are
    named by.
    `more` are sections of what was made of these runs, as a sweep's plot; they stand behind the curves.
    """
    shown = page_runs(runs)
    trials = [run.trial for run in runs]
    measure = parse_measure(verdict.measure, shown.known)
    return Document(
        title=title,
        subtitle=_subtitle(runs),
        kind="runs",
        subject=subject,
        verdict=shown_verdict(verdict),
        facts=tuple(_facts(runs)),
        runs=shown.curves,
        columns=shown.labels,
        sections=(
            Section(id="curves", title="Curves", blocks=(_curves(shown, measure, target),)),
            *more,
            Section(
                id="numbers",
                title="In numbers",
                blocks=tuple(
                    score_tables(trials, verdict, measure, target, columns=columns, subject=subject)
                ),
            ),
            drift_section(shown.columns, shown.known),
            generalisation_section(_not_zero(shown), shown.known),
            clients_section(runs, shown.columns, shown.known),
            costs_section(runs, subject),
            settings_section(runs, settings),
            provenance_section(runs, commands, subject),
        ),
    )


def metrics_of(columns: Sequence[str], first: str, known: KnownColumns) -> tuple[str, ...]:
    """Return the columns that the curves offer: the one that counts first, then the usual ones, then others.

    Further models of a method (`accuracy/gamma`) are drawn with their metric.
    """
    plain = [name for name in columns if known.describe(name).panel == "curves"]
    usual = [name for name in (first, *_FIRST) if name in plain or (name == first and name in columns)]
    return tuple(dict.fromkeys([*usual, *plain]))


def _not_zero(shown: PageRuns) -> list[str]:
    """Return the columns that are not 0 in all runs, as E_O is where training losses fall all the time."""
    columns = [run.columns for run in shown.curves]
    return [name for name in shown.columns if any(any(each[name].values) for each in columns if name in each)]


def _curves(shown: PageRuns, measure: Measure, target: float | None) -> Curves:
    metrics = metrics_of(shown.columns, measure.metric, shown.known)
    marked = target if metrics[:1] == (measure.metric,) and not measure.is_diagnostic else None
    seeds = {run.seed for run in shown.curves}
    note = "Line: mean over seeds; band: worst to best seed. " if len(seeds) > 1 else ""
    note += "Unfinished and diverged runs are thin lines." if len(shown.curves) > 1 else ""
    if shown.thinned:
        note += " Long runs are thinned out on this page: `fedkeel export` writes every round."
    return Curves(id="explorer", title="Over the run", metrics=metrics, target=marked, note=note)


def _subtitle(runs: Sequence[ReportedRun]) -> str:
    seeds = len({run.trial.seed for run in runs})
    varied = varied_settings(runs)
    apart = f"; they differ in {', '.join(varied)}" if varied else ""
    return f"{len(runs)} run{'s' * (len(runs) != 1)}, {seeds} seed{'s' * (seeds != 1)}{apart}"


def _facts(runs: Sequence[ReportedRun]) -> Iterator[tuple[str, str]]:
    """Yield what one wants to know at a glance."""
    data: Mapping[str, Any] = next((run.manifest["data"] for run in runs if "data" in run.manifest), {})
    identity: Mapping[str, Any] = next(
        (run.manifest["identity"] for run in runs if "identity" in run.manifest), {}
    )
    if "dataset" in data:
        yield "data", str(data["dataset"])
    if "clients" in data:
        yield "clients", f"{data['clients']:,}"
    if "cohort" in identity:
        yield "cohort", f"{identity['cohort']:,} per round"
    rounds = [len(run.trial.rows) for run in runs]
    if rounds:
        low, high = min(rounds), max(rounds)
        yield "rounds", f"{high:,}" if low == high else f"{low:,} to {high:,}"
    totals = [total_cost(run.trial.rows) for run in runs]
    yield "sent in all", shown_bytes(sum(total.bytes for total in totals))
    yield "time in all", _time(sum(total.seconds for total in totals))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
