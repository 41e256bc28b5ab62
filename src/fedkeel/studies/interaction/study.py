"""The study of a run: after every so many rounds, which features do its models share?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.func import functional_call

from fedkeel.data.federation import Batch, Federation
from fedkeel.errors import ConfigError, Stopped
from fedkeel.files import storage_errors
from fedkeel.options import SERIAL, Execution
from fedkeel.oracle import Oracle
from fedkeel.probes import Divergence
from fedkeel.running.interrupts import uninterrupted
from fedkeel.running.manifest import identity_of
from fedkeel.running.recorder import Recorder
from fedkeel.running.round import Row
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.running.session import Session, open_session
from fedkeel.running.train import take_up
from fedkeel.settings import RunSettings
from fedkeel.studies.artifacts import claim, kept, read
from fedkeel.studies.interaction.tensor import Array, check_components, check_correlation, interaction
from fedkeel.task import watched
from fedkeel.vector import Vector

GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_RUN = "run"


class Moment(NamedTuple):
    """The study after one round: numbers of clusters and of shared features.

    `local_current`: features that a local model shares with the current global one, mean over the cohort.
    `current_next`: shared by the current and the next global model; `current_mean`: by the current one and
    the mean of the end models, the next global model before the server's own step. `sweep` gives pairs
    (γ_corr, clusters).
    """

    round: int
    features: int
    histogram: list[int]
    local_current: float
    current_next: int
    current_mean: int
    sweep: list[tuple[float, int]]

    @classmethod
    def of(cls, table: dict[str, Any]) -> Moment:
        """Read a moment that was kept."""
        return cls(**{**table, "sweep": [(gamma, count) for gamma, count in table["sweep"]]})


class Lens(NamedTuple):
    """How models are looked at: on which points, and the tensor's arguments."""

    data: Batch
    components: int
    gamma_corr: float
    centre: bool
    gammas: tuple[float, ...]


def looks_of(rounds: int, every: int) -> range:
    """Return after which rounds a run is looked at."""
    if not 1 <= every <= rounds:
        raise ConfigError(
            f"interaction: every = {every}, but the run has {rounds} rounds: give 1 to {rounds}"
        )
    return range(every, rounds + 1, every)


def study(
    settings: RunSettings,
    execution: Execution = SERIAL,
    *,
    every: int = 10,
    points: int = 500,
    components: int = 20,
    gamma_corr: float = 0.5,
    centre: bool = False,
    gammas: Sequence[float] = GAMMAS,
    directory: str | Path | None = None,
    progress: Callable[[Row], None] | None = None,
) -> Iterator[Moment]:
    """Train, and after every so many rounds compare the global model, the cohort's models and the next one.

    M = N + 2 models on `points` test points, as the paper has it; the mean of the end models is compared
    beside them as model M + 1, so it changes no other number. With `directory`, the run and every look are
    kept there: the same call goes on where it was, to the bit. `progress` hears of rounds played.
    """
    looks = looks_of(settings.rounds, every)
    path = None if directory is None else Path(directory)
    asked = {
        "rounds": settings.rounds,
        "every": every,
        "points": points,
        "components": components,
        "gamma_corr": gamma_corr,
        "centre": centre,
        "gammas": list(gammas),
    }
    noted = settings.changed(probes=(Divergence(),))
    with closing(open_session(noted, _as_before(execution, path))) as session:
        lens = Lens(_points(settings.federation, points), components, gamma_corr, centre, tuple(gammas))
        _check(session, lens)
        if path is not None:
            claim(path, "interaction study", {**asked, **identity_of(session.context)})
        for number, look in enumerate(looks):
            before = None if path is None else read(_part(path, look))
            if before is None:
                with _run(session, path, look) as recorder:
                    yield from _go_on(session, lens, looks[number:], recorder, progress)
                return
            yield Moment.of(before)


def _go_on(
    session: Session,
    lens: Lens,
    looks: range,
    recorder: Recorder | None,
    progress: Callable[[Row], None] | None,
) -> Iterator[Moment]:
    """Train on, looking where a look is due.

    A look is kept before a checkpoint of its round is written: it needs the model of the round before.
    """
    current, owed = _x(session), False
    try:
        for row in session.rounds():
            owed = session.state.round in looks
            moment = _moment(session, lens, current, recorder) if owed else None
            owed = False
            current = _x(session)
            if recorder is not None:
                with uninterrupted():
                    recorder.row(session, row)
                    if moment is not None:
                        recorder.checkpoint(session)
            if progress is not None:
                progress(row)
            if moment is not None:
                yield moment
    except KeyboardInterrupt:
        if recorder is not None and session.state.round and not owed:
            recorder.checkpoint(session)
        raise Stopped(
            f"stopped after {session.state.round} of {session.context.settings.rounds} rounds"
        ) from None


def _moment(session: Session, lens: Lens, current: Vector, recorder: Recorder | None) -> Moment:
    """Return the look after the present round: the one that is kept, else look, and keep it."""
    part = None if recorder is None else _part(recorder.directory.path.parent, session.state.round)
    return Moment.of(kept(part, lambda: _look(session, lens, current)._asdict()))


@contextmanager
def _run(session: Session, path: Path | None, look: int) -> Iterator[Recorder | None]:
    """Set a session to what is kept of its run; one that went past a look that is missing begins anew."""
    if path is None:
        yield None
        return
    run, old = path / _RUN, path / f".{_RUN}.old"
    with storage_errors(path):
        shutil.rmtree(old, ignore_errors=True)
        if any(made.name >= f"round-{look:08d}" for made in (run / "checkpoints").glob("round-*")):
            os.replace(run, old)
            shutil.rmtree(old)
    with closing(RunDirectory(run)) as directory:
        recorder = Recorder(directory, None)
        take_up(session, recorder)
        yield recorder


def _as_before(execution: Execution, path: Path | None) -> Execution:
    """Take the threads with which a kept run was begun: sums depend on them."""
    if path is None or not (path / _RUN / "manifest.json").exists():
        return execution
    return execution.as_before(read_manifest(path / _RUN))


def _part(path: Path, look: int) -> Path:
    return path / f"round-{look:08d}.json"


def _points(federation: Federation, points: int) -> Batch:
    """Return the first test points, prepared."""
    x, y = federation.everything if federation.test is None else federation.test
    return federation.prepare(x[:points]), y[:points]


def _check(session: Session, lens: Lens) -> None:
    """Refuse before the run what would fail after it."""
    for gamma in (lens.gamma_corr, *lens.gammas):
        check_correlation(gamma)
    state = session.state
    check_components(features_of(session.context.oracle, state.x0, state.buffers, lens.data), lens.components)


def _look(session: Session, lens: Lens, current: Vector) -> Moment:
    """Compare the models of the round just played, `current` the one before it."""
    oracle, buffers = session.context.oracle, session.state.buffers
    ends = [_end(session, client) for client in session.history[-1]["cohort"]]
    models = (current, *ends, _x(session), torch.stack(ends).mean(0))
    *paper, mean = [features_of(oracle, vector, buffers, lens.data) for vector in models]
    found, *swept = (
        interaction(paper, components=lens.components, gamma_corr=gamma, centre=lens.centre)
        for gamma in (lens.gamma_corr, *lens.gammas)
    )
    wide = interaction(
        [*paper, mean], components=lens.components, gamma_corr=lens.gamma_corr, centre=lens.centre
    )
    last = len(paper) - 1
    return Moment(
        session.state.round,
        found.features,
        found.histogram,
        float(np.mean([found.shared(0, m) for m in range(1, last)])),
        found.shared(0, last),
        wide.shared(0, last + 1),
        [(gamma, one.features) for gamma, one in zip(lens.gammas, swept, strict=True)],
    )


@torch.no_grad()
def features_of(oracle: Oracle, vector: Vector, buffers: Vector, data: Batch) -> Array:
    """Return the penultimate features of a model on prepared samples."""
    inputs, _ = oracle.to_device(data)
    tensors = {**oracle.layout.views(vector), **oracle.buffer_layout.views(buffers)}
    with watched(oracle.eval_copy, oracle.task.features) as found:
        functional_call(oracle.eval_copy, tensors, (inputs,))
    return np.asarray(found[-1].flatten(1).double().cpu().numpy())


def _x(session: Session) -> Vector:
    return session.context.model(session.state).clone()


def _end(session: Session, client: int) -> Vector:
    """Return the model with which a client last ended, from the notes of the divergence probe."""
    notes: list[Vector] = [note.last for note in session.store[client].notes if hasattr(note, "last")]
    return notes[0]
