"""Methods or values × seeds in Python: a function makes each run, and all of them make a table and a verdict.

The function is called with a method (or a value) and a seed and returns what `train` returns, so whatever can
be written in Python can be compared, and nothing of `train` is declared again here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedkeel.common.columns import KnownColumns
from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors
from fedkeel.common.progress import RunProgress
from fedkeel.core.algorithm import Algorithm
from fedkeel.experiments.metric_choice import MetricChoice, check_columns
from fedkeel.experiments.placement import Placement
from fedkeel.experiments.run_all import run_all
from fedkeel.methods.stages import Stages
from fedkeel.report import (
    ComparisonVerdict,
    Measure,
    MethodSummary,
    Trial,
    find_verdict,
    parse_measure,
    reachable_target,
    summarise,
)
from fedkeel.report.choosing import ChosenValue, choose
from fedkeel.report.inline import inline_chart
from fedkeel.report.page.comparison import runs_document
from fedkeel.report.page.document import Document, Table, Text
from fedkeel.report.page.rendering import write_page
from fedkeel.report.page.runs import ReportedRun
from fedkeel.report.table_columns import COLUMNS, parse_columns
from fedkeel.report.tables import cells, headings, why_diverged
from fedkeel.report.terminal import document_html, document_text
from fedkeel.running.result import Result
from fedkeel.running.shown import is_watched
from fedkeel.studies.function_runs import FunctionResult, FunctionRun, TakenRuns

Method = Algorithm | Stages


@dataclass(frozen=True, eq=False)
class RunGrid:
    """Runs of several methods or values, each with several seeds. It prints as a table with its verdict.

    `choices` are what was compared, by name; `results` has the result of every run by (name, seed), without
    the client states; of a run that diverged it is what there was. `measure` is what a run is scored by,
    `columns` are those of the table; `with_columns` gives the same runs with others.
    """

    kind: str
    choices: Mapping[str, Any]
    results: Mapping[tuple[str, int], Result]
    trials: tuple[Trial, ...]
    measure: str
    given_target: float | None
    columns: tuple[str, ...] = COLUMNS

    def with_columns(self, columns: str | Iterable[str]) -> RunGrid:
        """Return the same runs with other columns in their table and page, as "top,rounds_to_target"."""
        asked = parse_columns(columns, self._known)
        check_columns(asked, [row for trial in self.trials for row in trial.rows])
        return replace(self, columns=asked)

    @property
    def target(self) -> float | None:
        """Return the accuracy to reach: the one given, else the highest that every run has at its end."""
        if self.given_target is not None:
            return self.given_target
        return reachable_target(self.trials, self._score.metric, self._known)

    @property
    def table(self) -> list[MethodSummary]:
        """Return a line per method or value: mean and spread over seeds, and what it took to the target."""
        return summarise(self.trials, self.target, self._score, self.columns)

    @property
    def verdict(self) -> ComparisonVerdict:
        """Return which is best, by how much, with intervals that hold over all pairs."""
        return find_verdict(self.trials, self._score)

    @property
    def best(self) -> Any:
        """Return the method or value with the highest mean score; None where none is without a diverged seed.

        It is chosen by validation data where the runs have some. Else it is chosen by the test set, and its
        accuracy there flatters: `chosen.note` says which.
        """
        return None if self.chosen.value is None else self.choices[self.chosen.value]

    @property
    def chosen(self) -> ChosenValue:
        """Return by what the best was chosen."""
        return choose(self.trials, self._score)

    @property
    def document(self) -> Document:
        """Return table, verdict, curves and all else that is known of the runs, as a page shows them."""
        settings = f"{len(self.choices)} {self.kind}s, {len(self.results)} runs, made in Python"
        page = runs_document(
            ", ".join(self.choices),
            [self._reported(trial) for trial in self.trials],
            verdict=self.verdict,
            target=self.target,
            commands=[f"fedkeel.{'compare' if self.kind == 'method' else 'sweep'}(…) in Python"],
            settings=settings,
            columns=self.columns,
            subject=self.kind,
        )
        numbers = {
            "target": self.target,
            "columns": list(self.columns),
            "table": [line._asdict() for line in self.table],
            "verdict": self.verdict.as_dict(),
        }
        return page.model_copy(update={"summary": self._summary, "numbers": numbers})

    @property
    def _summary(self) -> tuple[Table, Text]:
        """Return the table and the verdict; of a sweep also the best value, and by what it was chosen."""
        rows = tuple(cells(line, self.columns, self._known) for line in self.table)
        names = (self.kind, *headings(self.target, self._score, self.columns)[1:])
        best = [f"Best: {self.chosen.value or 'none'} ({self.chosen.note})"] * (self.kind == "value")
        return (
            Table(id="summary", title="", headings=names, rows=rows),
            Text(id="verdict", paragraphs=(self.verdict.sentence, *best)),
        )

    def save_page(self, path: str | Path) -> Path:
        """Write the document as one HTML file."""
        path = Path(path)
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return write_page(self.document, path)

    @property
    def _known(self) -> KnownColumns:
        """Return what is declared of the runs' columns."""
        return _known(self.results)

    @property
    def _score(self) -> Measure:
        """Return what a run is scored by."""
        return parse_measure(self.measure, self._known)

    def _reported(self, trial: Trial) -> ReportedRun:
        result = self.results[trial.label, trial.seed]
        rows = () if result.client_table is None else result.client_table.rows
        directory = None if result.run_dir is None else str(result.run_dir)
        return ReportedRun(trial, result.manifest, clients=rows, directory=directory, columns=result.columns)

    def __repr__(self) -> str:
        return document_text(Document(title="", summary=self._summary))

    def _repr_html_(self) -> str:
        told = document_html(Document(title="", summary=self._summary))
        return f"{told}{inline_chart(self.trials, self._score.metric)}"


def compare(
    run: Callable[[Any, int], Result],
    methods: Iterable[Method] | Mapping[str, Method],
    *,
    seeds: int | Sequence[int] = 3,
    measure: str = "final",
    metric: str | None = None,
    mode: str | None = None,
    target: float | None = None,
    columns: str | Iterable[str] = COLUMNS,
    parallel: int = 1,
    on: Literal["ray"] | None = None,
    address: str | None = None,
    progress: bool | None = None,
) -> RunGrid:
    """Compare methods over seeds: `run(method, seed)` trains each, as with `train(…, method, …, seed=seed)`.

    Args:
        run: called with a method and a seed; returns what `train` returns. Let the seed decide all that shall
            vary (the split, the first weights): it is shared by all methods.
        methods: the methods, or names and methods.
        seeds: how many (0, 1, 2, …), or which.
        measure: what a run is scored by: "final", "last:K", "top", "smoothed:K" or "mean:A:B" of the metric,
            or of any column of the history, as in "mean:0.5:1 of diversity (min)".
        metric: a metric of the task, or "loss"; by default the accuracy, or the loss of a task without one.
        mode: "max" where more of the metric is better, else "min"; that of well-known metrics is known.
        target: the value whose cost is counted; by default the highest accuracy that every run reached.
        columns: the table's: "score" (by the measure), any measure, "seconds", "rounds_to_target",
            "bytes_to_target", "gradients_to_target", "seconds_to_target"; a text with commas, or a list.
        parallel: runs that go side by side, in processes with one thread each.
        on: "ray" spreads the runs over a Ray cluster, at `address` or started here.
        progress: show progress. By default only on a terminal (on stderr) and in a notebook.
    """
    named = _named(_checked_many("methods", methods), repr)
    for method in named.values():
        if not isinstance(method, Algorithm | Stages):
            raise ConfigError(f"compare: {method!r} is not a method: give one, as in FedAvg()")
    scored = MetricChoice.of(measure, metric, mode, columns)
    return _play(
        "method",
        run,
        named,
        seeds=seeds,
        scored=scored,
        target=target,
        placement=_placement(parallel, on, address),
        progress=progress,
    )


def sweep(
    run: Callable[[Any, int], Result],
    values: Iterable[Any] | Mapping[str, Any],
    *,
    seeds: int | Sequence[int] = 3,
    measure: str = "final",
    metric: str | None = None,
    mode: str | None = None,
    target: float | None = None,
    columns: str | Iterable[str] = COLUMNS,
    parallel: int = 1,
    on: Literal["ray"] | None = None,
    address: str | None = None,
    progress: bool | None = None,
) -> RunGrid:
    """Train with several values of whatever `run(value, seed)` makes of them; all else is as in `compare`."""
    named = _named(_checked_many("values", values), str)
    scored = MetricChoice.of(measure, metric, mode, columns)
    return _play(
        "value",
        run,
        named,
        seeds=seeds,
        scored=scored,
        target=target,
        placement=_placement(parallel, on, address),
        progress=progress,
    )


def _play(
    kind: str,
    run: Callable[[Any, int], Result],
    choices: dict[str, Any],
    *,
    seeds: int | Sequence[int],
    scored: MetricChoice,
    target: float | None,
    placement: Placement,
    progress: bool | None,
) -> RunGrid:
    """Make the runs, seed after seed, so that a first impression of all comes early."""
    if not callable(run):
        raise ConfigError(
            f"run = {run!r}: give a function of a {kind} and a seed that returns train's result, first"
        )
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(_checked_many("seeds", seeds))
    if not choices or not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"nothing to run, or twice the same: {kind}s {list(choices)}, seeds {numbers}")
    plan = [(name, seed) for seed in numbers for name in choices]
    results: dict[tuple[str, int], Result] = {}
    trials: dict[tuple[str, int], Trial] = {}

    def made() -> RunGrid:
        ordered = [(name, seed) for name in choices for seed in numbers if (name, seed) in trials]
        listed = tuple(trials[key] for key in ordered)
        known = _known(results)
        columns = parse_columns(scored.columns, known) if listed else scored.columns
        return RunGrid(kind, choices, results, listed, scored.text(listed, known), target, columns)

    shown = is_watched() if progress is None else progress
    display = RunProgress([f"{name}, seed {seed}" for name, seed in plan], 0, stderr=True) if shown else None

    def take(run: FunctionRun, ended: FunctionResult) -> None:
        result, problem = ended
        key = run.name, run.seed
        results[key] = replace(result, client_states={})
        trials[key] = Trial(*key, result.history, problem)
        scored.check(result.history, KnownColumns(result.columns))
        if display is not None:
            state = "diverged" if why_diverged(trials[key]) else "done"
            display.end(run.number, state, None, rounds=len(result.history))

    runs = [
        FunctionRun(run, choices[name], name, seed, index, display) for index, (name, seed) in enumerate(plan)
    ]
    with display or nullcontext():
        try:
            run_all(runs, Path(), placement, TakenRuns(take))
        except (Exception, KeyboardInterrupt) as other:
            other.comparison = made()  # type: ignore[union-attr]
            raise
    return made()


def _placement(parallel: int, on: Literal["ray"] | None, address: str | None) -> Placement:
    if parallel < 1:
        raise ConfigError(f"parallel = {parallel}: give 1 or more")
    return Placement(parallel, on, address)


def _known(results: Mapping[tuple[str, int], Result]) -> KnownColumns:
    return KnownColumns(column for result in results.values() for column in result.columns)


def _checked_many(name: str, given: Any) -> Any:
    """Return what is to be gone through; refuse a single thing, and a text, which has letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name} = {given!r}: give several in a list, as in [{given!r}]")
    return given


def _named(given: Iterable[Any] | Mapping[str, Any], spell: Callable[[Any], str]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    named: dict[str, Any] = {}
    for value in given:
        if named.setdefault(spell(value), value) is not value:
            raise ConfigError(
                f"{spell(value)} is given twice: leave one out, or name them: {{'a': …, 'b': …}}"
            )
    return named
