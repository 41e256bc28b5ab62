"""Trackers by name, as files and commands write them: mlflow, or mlflow=FILE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedkeel.common.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from fedkeel.trackers import Tracker

TRACKERS = ("tensorboard", "mlflow", "wandb")


class TrackerName(NamedTuple):
    """A tracker and where it writes: a directory of event files, a file of MLflow, a project of W&B."""

    name: str
    where: str | None


def parse_tracker(text: object) -> TrackerName:
    """Read a tracker's name, with an equals sign and where it writes."""
    if not isinstance(text, str):
        raise ConfigError(f"track = {text!r}: write it as text, as in 'tensorboard'")
    name, equals, where = (part.strip() for part in text.partition("="))
    if name.lower() not in TRACKERS:
        raise ConfigError(f"there is no tracker {name!r}; {did_you_mean(name, TRACKERS)}")
    if equals and not where:
        raise ConfigError(f"track = {text!r}: say where after the equals sign, or leave it out")
    return TrackerName(name.lower(), where or None)


def trackers_of(texts: Sequence[str] | None, run_dir: str | Path | None) -> list[Tracker]:
    """Make the trackers of a run. Event files lie in the run's directory, where nothing else is asked for."""
    return [_made(parse_tracker(text), run_dir) for text in texts or ()]


def _made(asked: TrackerName, run_dir: str | Path | None) -> Tracker:
    from fedkeel.trackers import MLflow, TensorBoard, WandB  # noqa: PLC0415  heavy

    if asked.name == "mlflow":
        return MLflow(asked.where or "mlflow.db")
    if asked.name == "wandb":
        return WandB(asked.where or "fedkeel")
    if asked.where is None and run_dir is not None:
        return TensorBoard(Path(run_dir) / "tensorboard", name=".")
    return TensorBoard(asked.where or "tensorboard")
