"""Studies in Python: `fk.study.stability(["fedavg", fk.FedSAGD()], rounds=20)` and the rest, `fk.tune`.

    found = fk.study.robustness(["fedavg"], {"rounds": 10, "data.clients": 20}, attacks=["SignFlip(0.2)"])
    found                          # prints as its tables and verdict, shows itself in a notebook
    found.numbers["held_by"]       # what --json prints
    found.document                 # what the page shows

Methods are names or objects. The experiment is a file, a mapping of settings by their keys, or nothing, which
is the default one on digits. With `run_dir` it is kept: the same call, or `fedkeel resume`, goes on there.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from fedkeel.common.errors import ConfigError
from fedkeel.directories.kinds import study_class
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.placement import Placement
from fedkeel.experiments.shown_runs import RunsDisplay
from fedkeel.running.shown import is_watched
from fedkeel.studies.base import StudyResult, asked_settings, play

ExperimentLike = Experiment | str | Path | Mapping[str, Any] | None


class StudyFunction:
    """Makes a kind of study: called with its settings, it returns a `StudyResult`.

    `parallel` runs go side by side in processes of this machine, or with `on="ray"` on a cluster, whose
    `address` may be given. `progress` is shown on a terminal and in a notebook, if it does not say otherwise.
    """

    def __init__(self, kind: str, name: str, first: str) -> None:
        self._kind, self._first = kind, first
        self.__name__ = name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What the kind says of itself, and its settings."""
        study = study_class(self._kind)
        lines = [f"    {name}: {study.model_fields[name].description}" for name in asked_settings(study)]
        return "\n".join([study.about, "", "Settings:", *lines])

    @property
    def __signature__(self) -> inspect.Signature:
        study = study_class(self._kind)
        own = [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD
                if name == self._first
                else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty
                if (field := study.model_fields[name]).is_required()
                else field.get_default(),
            )
            for name in asked_settings(study)
        ]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in (("experiment", None), *_SHARED.items())
            if name not in asked_settings(study)
        ]
        return inspect.Signature(
            sorted([*own, *shared], key=lambda parameter: parameter.kind), return_annotation=StudyResult
        )

    def __call__(
        self,
        first: Any = None,
        experiment: ExperimentLike = None,
        *,
        run_dir: str | Path | None = None,
        parallel: int = 1,
        on: Literal["ray"] | None = None,
        address: str | None = None,
        progress: bool | None = None,
        **settings: Any,
    ) -> StudyResult:
        """Make the study."""
        study = study_class(self._kind)
        given = settings if first is None else {self._first: first, **settings}
        known = asked_settings(study)
        for name in given:
            if name not in known:
                raise ConfigError(f"{self.__name__} has no argument {name!r}; known: {', '.join(known)}")
        if on not in (None, "ray"):
            raise ConfigError(f"on = {on!r}: give 'ray', or None to make the runs on this machine")
        asked = experiment_of(experiment)
        if address is not None:
            asked = asked.with_settings([f"address={json.dumps(address)}"])
        if study.own_workers:
            given = {"parallel": parallel, **given}
        placement, asked = Placement.of(parallel, on, asked)
        made = study.of(asked, **given)
        out = None if run_dir is None else Path(run_dir)
        shown = is_watched() if progress is None else progress
        with RunsDisplay(out or Path()) if shown else nullcontext() as display:
            return play(made, out, placement=placement, events=display)


_SHARED = {"run_dir": None, "parallel": 1, "on": None, "address": None, "progress": None}


def experiment_of(given: ExperimentLike) -> Experiment:
    """Return an experiment: a file, settings by their keys, or the default one.

    >>> experiment_of({"rounds": 3, "data.clients": 6}).data.clients
    6
    """
    if given is None:
        return Experiment()
    if isinstance(given, Experiment):
        return given
    if isinstance(given, str | Path):
        return Experiment.load(given)
    settings = (
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items()
    )
    return Experiment().with_settings(settings)


comparison = StudyFunction("comparison", "comparison", "methods")
sweep = StudyFunction("sweep", "sweep", "over")
tune = StudyFunction("search", "tune", "over")
robustness = StudyFunction("robustness study", "robustness", "methods")
stability = StudyFunction("stability study", "stability", "methods")
interaction = StudyFunction("interaction study", "interaction", "methods")
constants = StudyFunction("constants study", "constants", "pilot_rounds")
costs = StudyFunction("costs study", "costs", "methods")


def reproduce(
    recipe: str,
    *,
    run_dir: str | Path = Path("runs") / "reproduce",
    parallel: int = 1,
    on: Literal["ray"] | None = None,
    address: str | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> StudyResult:
    """Run a table or figure of a paper; settings are scale, reading, only, methods, seeds, histories."""
    from fedkeel.papers.reproduce.study import RecipeStudy  # noqa: PLC0415  heavy

    study = RecipeStudy.of(recipe=recipe, address=address, **settings)
    out = study.plan(Path(run_dir)).directory
    shown = is_watched() if progress is None else progress
    with RunsDisplay(Path(run_dir)) if shown else nullcontext() as display:
        return play(study, out, placement=Placement(parallel, on, address), events=display)
