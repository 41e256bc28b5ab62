"""Studies in Python: `fk.study.stability(["fedavg", fk.FedSAGD()], rounds=20)` and the rest, `fk.tune`.

    settings = {"rounds": 10, "data.clients": 20}
    found = fk.study.robustness(["fedavg"], experiment=settings, attacks=["SignFlip(0.2)"])
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
from fedkeel.studies.base import Study, StudyResult, asked_settings, play

__all__ = [
    "comparison",
    "constants",
    "costs",
    "interaction",
    "reproduce",
    "robustness",
    "stability",
    "sweep",
    "tune",
]

ExperimentLike = Experiment | str | Path | Mapping[str, Any] | None


class StudyFunction:
    """Makes a kind of study: called with its settings, it returns a `StudyResult`.

    What a study needs, as its methods, may be given by its place, all else by keyword. `parallel` runs go
    side by side in processes of this machine, or with `on="ray"` on a cluster, whose `address` may be given.
    `progress` is shown on a terminal and in a notebook, if it does not say otherwise.
    """

    def __init__(self, kind: str, name: str) -> None:
        self._kind, self.__name__ = kind, name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What the kind says of itself, and its settings."""
        study = study_class(self._kind)
        lines = [f"    {name}: {study.model_fields[name].description}" for name in asked_settings(study)]
        return "\n".join([study.about, "", "Settings:", *lines])

    @property
    def __signature__(self) -> inspect.Signature:
        study = study_class(self._kind)
        shared = inspect.signature(type(self).__call__).parameters.values()
        found = {one.name: one for one in shared if one.kind is one.KEYWORD_ONLY}
        for name in asked_settings(study):
            field = study.model_fields[name]
            needed = field.is_required()
            found[name] = inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD
                if needed or name == "methods"
                else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if needed else field.get_default(),
            )
        ordered = sorted(found.values(), key=lambda one: one.kind)
        return inspect.Signature(ordered, return_annotation=StudyResult)

    def __call__(
        self,
        *placed: Any,
        experiment: ExperimentLike = None,
        run_dir: str | Path | None = None,
        parallel: int = 1,
        on: Literal["ray"] | None = None,
        address: str | None = None,
        progress: bool | None = None,
        **settings: Any,
    ) -> StudyResult:
        """Make the study; which settings there are is in its signature."""
        study, known = study_class(self._kind), self.__signature__.parameters
        for name in settings:
            if name not in known:
                raise ConfigError(f"{self.__name__} has no argument {name!r}; known: {', '.join(known)}")
        try:
            settings = self.__signature__.bind(*placed, **settings).arguments
        except TypeError as problem:
            by_place = ", ".join(name for name, one in known.items() if one.kind is not one.KEYWORD_ONLY)
            how = f"{by_place or 'nothing'} by place, all else by keyword, as experiment=…"
            raise TypeError(f"{self.__name__}: {problem}: give {how}") from None
        if on not in (None, "ray"):
            raise ConfigError(f"on = {on!r}: give 'ray', or None to make the runs on this machine")
        asked = experiment_of(experiment)
        if address is not None:
            asked = asked.with_settings([f"address={json.dumps(address)}"])
        if study.own_workers:
            settings["parallel"] = parallel
        placement, asked = Placement.of(parallel, on, asked)
        out = None if run_dir is None else Path(run_dir)
        return _played(study.of(asked, **settings), out, placement, progress, shown_in=out or Path())


def _played(
    study: Study, out: Path | None, placement: Placement, progress: bool | None, *, shown_in: Path
) -> StudyResult:
    shown = is_watched() if progress is None else progress
    with RunsDisplay(shown_in) if shown else nullcontext() as display:
        return play(study, out, placement=placement, events=display)


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


comparison = StudyFunction("comparison", "comparison")
sweep = StudyFunction("sweep", "sweep")
tune = StudyFunction("search", "tune")
robustness = StudyFunction("robustness study", "robustness")
stability = StudyFunction("stability study", "stability")
interaction = StudyFunction("interaction study", "interaction")
constants = StudyFunction("constants study", "constants")
costs = StudyFunction("costs study", "costs")


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
    placement = Placement(parallel, on, address)
    return _played(study, out, placement, progress, shown_in=Path(run_dir))


def __dir__() -> list[str]:
    return __all__
