"""The study of a run: which features its models share after every so many rounds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedkeel.common.errors import Stopped, StorageError
from fedkeel.common.files import storage_errors
from fedkeel.common.interrupts import uninterrupted
from fedkeel.core.oracle import Oracle
from fedkeel.core.task import watched
from fedkeel.data.federation import Batch
from fedkeel.probes import Divergence
from fedkeel.probes.divergence import LastModel
from fedkeel.running.manifest import identity_of
from fedkeel.running.recorder import Recorder
from fedkeel.running.round import Row
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.running.session import Session, open_session
from fedkeel.settings.options import SERIAL, Execution
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.artifacts import open_directory, read_or_make, read_part, read_tensors, write_tensors
from fedkeel.studies.interaction.settings import FeatureSettings
from fedkeel.studies.interaction.tensor import Array, Interaction, check_components
from fedkeel.tensors.trees import call_at
from fedkeel.tensors.vector import Vector

_RUN = "run"


class FeatureSnapshot(NamedTuple):
    """The features after one round: numbers of clusters and of shared features.

    `local_current`: features that a local model shares with the current global one, mean over the cohort.
    `current_next`: shared by the current and the next global model; `current_mean`: by the current one and
    the mean of the end models, the next global model before the server's own step. `sweep` gives pairs
    (γ_corr, clusters). None of these depends on how `entries` are read: that decides which points contain a
    feature, and stands in Ω, which `read_interaction` reads from the study's directory.
    """

    round: int
    features: int
    histogram: list[int]
    local_current: float
    current_next: int
    current_mean: int
    sweep: list[tuple[float, int]]

    @classmethod
    def of(cls, table: dict[str, Any]) -> FeatureSnapshot:
        """Return a snapshot from its table in a file."""
        return cls(**{**table, "sweep": [(gamma, count) for gamma, count in table["sweep"]]})


def study(
    settings: RunSettings,
    execution: Execution = SERIAL,
    *,
    features: FeatureSettings | None = None,
    directory: str | Path | None = None,
    progress: Callable[[Row], None] | None = None,
) -> Iterator[FeatureSnapshot]:
    """Train, and after every so many rounds compare the global model, the cohort's models and the next one.

    M = N + 2 models on test points, as the paper has it; the mean of the end models is compared beside them
    as model M + 1, so it changes no other number. With `directory`, the run, every snapshot and its tensor Ω
    are written there, and the same call continues where it was, to the bit. `progress` is called with each
    new row.
    """
    features = features or FeatureSettings()
    due = features.rounds(settings.rounds)
    path = None if directory is None else Path(directory)
    noted = settings.changed(probes=(Divergence(),))
    with closing(open_session(noted, _as_before(execution, path))) as session:
        comparison = _FeatureComparison(session, features)
        if path is not None:
            asked = {"rounds": settings.rounds, **asdict(features)}
            open_directory(path, "interaction study", {**asked, **identity_of(session.context)})
        for number, round in enumerate(due):
            before = None if path is None else read_part(_part(path, round))
            if before is None:
                with _run(session, path, round) as recorder:
                    yield from _continue(comparison, due[number:], recorder, progress)
                return
            yield FeatureSnapshot.of(before)


def _continue(
    comparison: _FeatureComparison,
    due: range,
    recorder: Recorder | None,
    progress: Callable[[Row], None] | None,
) -> Iterator[FeatureSnapshot]:
    """Train, and take a snapshot where one is due.

    A snapshot is written before the checkpoint of its round: it needs the model of the round before.
    """
    session, missing = comparison.session, False
    current = _x(session)
    try:
        for row in session.rounds():
            missing = session.state.round in due
            snapshot = _snapshot(comparison, current, recorder) if missing else None
            missing = False
            current = _x(session)
            if recorder is not None:
                with uninterrupted():
                    recorder.on_round_end(row)
                    if snapshot is not None:
                        recorder.checkpoint()
            if progress is not None:
                progress(row)
            if snapshot is not None:
                yield snapshot
    except KeyboardInterrupt:
        if recorder is not None and session.state.round and not missing:
            recorder.checkpoint()
        raise Stopped(
            f"stopped after {session.state.round} of {session.context.settings.rounds} rounds"
        ) from None


def _snapshot(comparison: _FeatureComparison, current: Vector, recorder: Recorder | None) -> FeatureSnapshot:
    """Return the snapshot after the present round: the one in the directory, else a new one."""
    if recorder is None:
        return comparison.snapshot(current)[0]
    path, round = recorder.directory.path.parent, comparison.session.state.round

    def make() -> dict[str, Any]:
        snapshot, tensor = comparison.snapshot(current)
        parts = {"omega": torch.from_numpy(tensor.omega), "clusters": torch.from_numpy(tensor.clusters)}
        write_tensors(_tensor_file(path, round), parts)
        return snapshot._asdict()

    return FeatureSnapshot.of(read_or_make(_part(path, round), make))


def read_interaction(directory: str | Path, round: int) -> Interaction:
    """Return the tensor Ω of the snapshot that a study's directory holds of a round."""
    found = read_tensors(_tensor_file(Path(directory), round))
    if found is None:
        rounds = [
            str(int(part.stem.removeprefix("round-")))
            for part in sorted(Path(directory).glob("round-*.json"))
        ]
        raise StorageError(
            f"{directory} holds no tensor of round {round}: it has {', '.join(rounds) or 'no snapshot'}"
        )
    return Interaction(found["omega"].numpy(), found["clusters"].numpy())


@contextmanager
def _run(session: Session, path: Path | None, round: int) -> Iterator[Recorder | None]:
    """Set a session to its run's last checkpoint; a run past a snapshot that is missing begins anew."""
    if path is None:
        yield None
        return
    run, old = path / _RUN, path / f".{_RUN}.old"
    with storage_errors(path):
        shutil.rmtree(old, ignore_errors=True)
        if any(made.name >= f"round-{round:08d}" for made in (run / "checkpoints").glob("round-*")):
            os.replace(run, old)
            shutil.rmtree(old)
    with closing(RunDirectory(run)) as directory:
        recorder = Recorder(session, directory)
        recorder.restore_or_begin()
        yield recorder


def _as_before(execution: Execution, path: Path | None) -> Execution:
    """Take the threads with which the run in the directory was begun: sums depend on them."""
    if path is None or not (path / _RUN / "manifest.json").exists():
        return execution
    return execution.as_before(read_manifest(path / _RUN))


def _part(path: Path, round: int) -> Path:
    return path / f"round-{round:08d}.json"


def _tensor_file(path: Path, round: int) -> Path:
    return path / f"round-{round:08d}.tensors"


class _FeatureComparison:
    """Compares the models of a session on test points; refuses before the run what would fail after it."""

    def __init__(self, session: Session, features: FeatureSettings) -> None:
        self.session, self.features = session, features
        federation, state = session.context.settings.federation, session.state
        data = federation.everything if federation.test is None else federation.test
        x, y = data.part(0, min(features.points, data.size))
        self.data: Batch = federation.prepare(x), y
        check_components(self._features(state.x0), features.components)

    def snapshot(self, current: Vector) -> tuple[FeatureSnapshot, Interaction]:
        """Compare the models of the round just played, `current` the global one before it."""
        session, features = self.session, self.features
        ends = [_end(session, client) for client in session.history[-1]["cohort"]]
        models = (current, *ends, _x(session), torch.stack(ends).mean(0))
        *paper, mean = [self._features(vector) for vector in models]
        found = features.tensor(paper, features.gamma_corr)
        with_mean = features.tensor([*paper, mean], features.gamma_corr)
        last = len(paper) - 1
        snapshot = FeatureSnapshot(
            session.state.round,
            found.features,
            found.histogram,
            float(np.mean([found.shared(0, m) for m in range(1, last)])),
            found.shared(0, last),
            with_mean.shared(0, last + 1),
            [(gamma, features.tensor(paper, gamma).features) for gamma in features.gammas],
        )
        return snapshot, found

    def _features(self, vector: Vector) -> Array:
        return features_of(self.session.context.oracle, vector, self.session.state.buffers, self.data)


@torch.no_grad()
def features_of(oracle: Oracle, vector: Vector, buffers: Vector, data: Batch) -> Array:
    """Return the penultimate features of a model on prepared samples."""
    inputs, _ = oracle.to_device(data)
    tensors = {**oracle.layout.views(vector), **oracle.buffer_layout.views(buffers)}
    with watched(oracle.eval_copy, oracle.task.features) as found:
        call_at(oracle.eval_copy, tensors, inputs)
    return np.asarray(found[-1].flatten(1).double().cpu().numpy())


def _x(session: Session) -> Vector:
    return session.context.model(session.state).clone()


def _end(session: Session, client: int) -> Vector:
    """Return the model with which a client last ended, from the notes of the divergence probe."""
    (note,) = (note for note in session.store[client].notes if isinstance(note, LastModel))
    return note.last
