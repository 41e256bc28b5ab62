"""A search as a study: trials that Optuna draws, each in the knowledge of those before it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from fedkeel.common.errors import ConfigError
from fedkeel.experiments.placement import Placement
from fedkeel.experiments.planned_run import changes
from fedkeel.experiments.run_all import RunEvents
from fedkeel.report.choosing import ChosenValue
from fedkeel.report.page.document import Axis, Chart, Section, Series, Table, Text, Verdict
from fedkeel.report.page.parts import PageParts
from fedkeel.studies.base import SEEDS, Results, Study, Texts, asked
from fedkeel.studies.measured import Measured, several, study_parts

OVER = "What varies, and where: uniform(a, b), log(a, b), integer(a, b), choice(…); repeatable."


class TrialRun(NamedTuple):
    """A trial as it is shown; what it trains is drawn when its turn comes, and it keeps nothing on disk."""

    label: str
    directory: Path
    rounds: int

    def __str__(self) -> str:
        return self.label


class SearchStudy(Study):
    """Settings searched for the best final accuracy; hopeless trials are pruned by rounds."""

    kind: ClassVar = "search"
    command: ClassVar = "tune"
    about: ClassVar = (
        "Search settings for the best final accuracy with Optuna; hopeless trials are pruned by rounds.\n\n"
        "With several seeds a trial is scored by the mean over them, and pruned in its first one."
    )
    examples: ClassVar = (
        'fedkeel tune --over "work.lr=log(0.01, 1)" --over "method=FedInit(beta={uniform(0, 0.2)})" '
        "--trials 30",
        'fedkeel tune experiment.toml --over "method=FedSAGD(lam={log(0.01, 1)}, mu={log(0.001, 1)})"',
        'fedkeel tune --over "work.lr=log(0.01, 1)" --trials 64 --parallel 16 --on ray --address auto '
        "--out /shared/lr",
    )
    without: ClassVar = ()
    own_workers: ClassVar = True

    over: Texts = asked(..., OVER, flag="--over", metavar="KEY=RANGE", many=True)
    seeds: int = asked(1, SEEDS, metavar="N", ge=1)  # a trial is scored by their mean
    trials: int = asked(20, "Trials in all.", ge=1)
    parallel: int = asked(
        1, "Trials at a time: they are drawn together, not knowing of each other.", metavar="N", ge=1
    )

    def checked(self) -> Self:
        """Check the ranges."""
        keys = [one.key for one in self.knobs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConfigError(f"tune: --over {twice} is given twice: it can have one range")
        return self

    @property
    def knobs(self) -> list[Any]:
        """What is searched."""
        from fedkeel.studies.tune import knob  # noqa: PLC0415  heavy

        return [knob(text) for text in self.over]

    def shared(self) -> dict[str, Any]:
        """Return what its directory belongs to; trials may grow."""
        from fedkeel.studies.tune import search_settings  # noqa: PLC0415  heavy

        return search_settings(self.experiment, self.knobs, self.seeds)

    def runs(self, out: Path) -> list[Any]:
        """Return the trials."""
        rounds = self.experiment.rounds * self.seeds
        return [
            TrialRun(f"trial {number + 1} of {self.trials}", out / f"trial-{number}", rounds)
            for number in range(self.trials)
        ]

    def make(self, out: Path, placement: Placement, events: RunEvents) -> Results:
        """Draw and make the trials that are left."""
        from fedkeel.studies.tune import tune  # noqa: PLC0415  heavy

        runs = self.runs(out)

        def there(count: int) -> None:
            events.begin(runs, count)

        def told(number: int, state: str, value: float | None, chosen: Mapping[str, Any]) -> None:
            shown = ", ".join(f"{key} {_short(one)}" for key, one in chosen.items())
            end = (
                "" if value is None else f": accuracy {100 * value:.1f} %" + ", pruned" * (state == "pruned")
            )
            run = runs[number]._replace(label=f"{runs[number]}: {shown}{end}")
            events.ended(run, Measured(problem="its model diverged" if value is None else None), kept=False)

        found = tune(
            self.experiment,
            self.knobs,
            out,
            trials=self.trials,
            seed=self.experiment.seed,
            at_once=self.parallel,
            placement=placement._replace(workers=self.parallel),
            seeds=self.seeds,
            there=there,
            told=told,
        )
        return {out: Measured(found._asdict())}

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return the best settings, and how the trials ended."""
        from fedkeel.studies.tune import read_trials  # noqa: PLC0415  heavy

        return {**results[out].found, "all_trials": read_trials(out)}

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return the trials as a chart and a table."""
        trials = [one for one in numbers["all_trials"] if one["value"] is not None]
        chart = Chart(
            id="trials-plot",
            title="Accuracy of the trials",
            x=Axis(label="trial"),
            y=Axis(label="accuracy", percent=True),
            series=tuple(
                Series(
                    name=state,
                    x=tuple(one["trial"] + 1 for one in trials if one["state"] == state),
                    y=tuple(one["value"] for one in trials if one["state"] == state),
                    kind="points",
                )
                for state in dict.fromkeys(one["state"] for one in trials)
            ),
            wide=True,
        )
        names = list(dict.fromkeys(name for one in numbers["all_trials"] for name in one["settings"]))
        table = Table(
            id="trials",
            title="Every trial",
            headings=("trial", *names, "accuracy", "state"),
            rows=tuple(
                (
                    f"{one['trial'] + 1}",
                    *(_short(one["settings"].get(name, "—")) for name in names),
                    "—" if one["value"] is None else f"{100 * one['value']:.1f} %",
                    one["state"],
                )
                for one in numbers["all_trials"]
            ),
            left=(0, len(names) + 2),
            scores=True,
        )
        section = Section(id="search", title="Trials", blocks=(chart, table))
        title = f"Search of {', '.join(one.partition('=')[0] for one in self.over)}"
        told = ". ".join(line[0].upper() + line[1:] for line in self._told(numbers)[:3])
        return study_parts(title, Verdict(text=f"{told}."), [section], out)

    def _told(self, numbers: Mapping[str, Any]) -> list[str]:
        lines = [
            f"{several(numbers['trials'], 'trial')}, {numbers['pruned']} pruned, {numbers['failed']} diverged"
        ]
        if numbers["score"] is not None:
            best = numbers["score"]
            lines.append(f"best accuracy {100 * best:.1f} %: {' '.join(numbers['settings'])}")
            lines.append(ChosenValue("", best, numbers["column"] or "accuracy").note)
            whole = changes(self.experiment.with_settings(numbers["settings"]))
            lines.append("run it: fedkeel run " + " ".join(f"--set {shlex.quote(s)}" for s in whole))
        return lines

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the best settings, and the line that runs them."""
        return (Text(id="best", paragraphs=tuple(self._told(numbers))),)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
