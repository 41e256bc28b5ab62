"""The verdict, the tables of scores and of what it took to the target, and the winner against the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedkeel.report.measures import FINAL, Measure, MetricMeasure, parse_measure, rule_of
from fedkeel.report.page.document import Table, Verdict
from fedkeel.report.table_columns import COLUMNS, COST_COLUMNS, SCORE, SECONDS
from fedkeel.report.tables import Trial, by_method, cells, headings, models_of, summarise, why_diverged
from fedkeel.report.verdict import ComparisonVerdict, find_verdict

_RULES = ("final", "top", "smoothed:50")


def shown_verdict(verdict: ComparisonVerdict) -> Verdict:
    """Return the verdict with its tone: settled, not settled, or nothing to compare."""
    if verdict.winner is None:
        return Verdict(text=verdict.sentence, tone="bad")
    if not verdict.differences:
        return Verdict(text=verdict.sentence)
    settled = all(one.resolved for one in verdict.differences)
    return Verdict(text=verdict.sentence, tone="good" if settled else "unclear")


def score_tables(
    trials: Sequence[Trial],
    verdict: ComparisonVerdict,
    measure: Measure,
    target: float | None,
    *,
    columns: Sequence[str],
    subject: str,
) -> Iterator[Table]:
    """Yield the tables: the columns that were chosen, else every usual score, and all costs to the target."""
    chosen = tuple(columns) != COLUMNS
    asked = tuple(columns) if chosen else (SCORE, *_other_scores(measure), SECONDS)
    tables = [_table(trials, verdict, measure, target, asked)]
    if not chosen and target is not None:
        costs = _table(trials, verdict, measure, target, tuple(COST_COLUMNS))
        title = "What it took to reach the target"
        tables.append(costs.model_copy(update={"id": "costs-to-target", "title": title}))
    for table in tables:
        yield table.model_copy(update={"headings": (subject, *table.headings[1:])})
    if verdict.differences:
        yield _pairs(verdict, measure)


def _other_scores(measure: Measure) -> list[str]:
    """Return the usual measures of the same metric that runs are not ranked by."""
    rule = str(rule_of(measure))
    others = [name for name in _RULES if name != rule]
    if not isinstance(measure, MetricMeasure):
        return others
    return [str(measure.by(parse_measure(name))) for name in others]


def _table(
    trials: Sequence[Trial],
    verdict: ComparisonVerdict,
    measure: Measure,
    target: float | None,
    columns: Sequence[str],
) -> Table:
    lines = summarise(trials, target, measure, columns)
    bold = tuple(_bold(trials, verdict, measure, [(line.label, line.model) for line in lines], columns))
    best = "Bold: the best of a column, and what is not significantly worse (95 %, all pairs together)."
    return Table(
        id="scores",
        title="Scores",
        scores=True,
        headings=("method", *headings(target, measure, columns)[1:]),
        rows=tuple(cells(line, columns, measure.known) for line in lines),
        bold=bold,
        note=" ".join([*_notes(trials, measure, target, columns), *([best] if bold else [])]),
    )


def _bold(
    trials: Sequence[Trial],
    verdict: ComparisonVerdict,
    measure: Measure,
    lines: Sequence[tuple[str, str]],
    columns: Sequence[str],
) -> Iterator[tuple[int, int]]:
    """Yield the cells of scores that are best in their column, or not significantly worse.

    With one seed nobody knows what is significant, and costs are not tested: nothing is bold there.
    """
    for index, name in enumerate(columns, start=1):
        if name in (SECONDS, *COST_COLUMNS):
            continue
        own = verdict if name == SCORE else find_verdict(trials, parse_measure(name, measure.known))
        if own.winner is None or not own.differences or own.seeds < 2:
            continue
        even = {own.winner, *(one.other for one in own.differences if not one.resolved)}
        yield from (
            (line, index) for line, (label, model) in enumerate(lines) if model == "x" and label in even
        )


def _notes(
    trials: Sequence[Trial], measure: Measure, target: float | None, columns: Sequence[str]
) -> Iterator[str]:
    if any(name not in COST_COLUMNS for name in columns):
        what = "after the last round" if measure == FINAL else f"({measure.label})"
        where = "" if measure.is_diagnostic else ", on the test set"
        if len({trial.seed for trial in trials}) > 1:
            yield "Mean ± standard deviation over seeds."
        yield f"Ranked by {measure.metric}{where} {what}."
        if any(why_diverged(trial) for trial in trials):
            yield "Means are of the seeds that did not diverge; a method with a diverged seed is not ranked."
    if target is not None and any(name in COST_COLUMNS for name in columns):
        yield (
            "Costs to the target (bytes: down and up, all clients): means over the seeds that reached it; "
            "with a plus sign what runs took that ended without it."
        )
    if any(model == "gamma" for group in by_method(trials).values() for model in models_of(group)):
        yield "FedDyn: the plain line is the model that is sent, gamma the mean of the end models."


def _pairs(verdict: ComparisonVerdict, measure: Measure) -> Table:
    """Return the winner's leads with their intervals, which hold for all pairs together."""
    rows = []
    for one in verdict.differences:
        ends = [None if end is None else measure.shown_bound(end) for end in (one.low, one.high)]
        rows.append(
            (
                one.other,
                "yes" if one.resolved else "no",
                measure.shown_gap(one.mean),
                "—" if None in ends else f"{ends[0]} to {ends[1]}",
                "—" if one.p is None else f"{one.p:.2g}",
                f"{one.seeds}",
                "" if one.resolved else _needed(one.seeds_needed),
            )
        )
    return Table(
        id="pairs",
        title=f"{verdict.winner} against the others",
        headings=(
            "against",
            "resolved",
            "lead",
            f"{100 * verdict.level:g} % interval",
            "p, for all pairs",
            "seeds",
            "seeds needed",
        ),
        rows=tuple(rows),
        tones=tuple("good" if one.resolved else "unclear" for one in verdict.differences),
        left=(0, 1),
        note="Paired by seed; the intervals hold for all pairs together, and p is adjusted for all pairs.",
    )


def _needed(seeds: int | None) -> str:
    return "more than 100" if seeds is None else f"about {seeds}"
