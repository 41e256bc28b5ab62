"""The study: one unchanged run, and one run with a replacement for each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors
from fedkeel.data.federation import Batch
from fedkeel.probes import Losses
from fedkeel.running.manifest import identity_of
from fedkeel.running.round import Row
from fedkeel.running.session import Session, open_session
from fedkeel.settings.options import SERIAL, Execution
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.artifacts import open_directory, read_or_make, read_tensors, write_tensors
from fedkeel.studies.stability.local import LocalDistances, local_distances, measured_rounds
from fedkeel.studies.stability.losses import LossDifference, loss_difference, loss_points, sample_losses
from fedkeel.studies.stability.replacement import Replaced, ReplacedClient, candidates, with_replacement
from fedkeel.tensors.vector import Vector

Progress = Callable[[int, Row | None], None]


@dataclass(frozen=True)
class Stability:
    """What the study found.

    `clients` are the replaced ones, chosen among `eligible` that are drawn within the first `drawn_by` rounds
    and at least `drawn_at_least` times. `curves[p][t]` is ‖x_t − x_t'‖ after t rounds (t from 0) with
    `clients[p]` replaced; `local` the largest distances between two clients' walks, against the step, in
    chosen rounds of the unchanged run; `losses` the differences of losses after these rounds; `gap` =
    R_u − R_e of the unchanged run at the end (FedSAGD, (2)).
    """

    replaced: Replaced
    drawn_by: int
    drawn_at_least: int
    eligible: int
    clients: list[ReplacedClient]
    curves: list[list[float]]
    local: list[LocalDistances]
    losses: list[LossDifference]
    gap: float

    @property
    def mean(self) -> list[float]:
        """Return the mean over replaced clients after each number of rounds."""
        return [float(value) for value in np.mean(self.curves, axis=0)]

    @property
    def largest(self) -> list[float]:
        """Return the maximum over replaced clients after each number of rounds."""
        return [float(value) for value in np.max(self.curves, axis=0)]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        records = {
            name: [one._asdict() for one in getattr(self, name)] for name in ("clients", "local", "losses")
        }
        return {**asdict(self), **records, "mean": self.mean, "largest": self.largest}


def stability(
    settings: RunSettings,
    execution: Execution = SERIAL,
    *,
    replaced: Replaced = "client",
    pairs: int = 5,
    drawn_by: int | None = None,
    drawn_at_least: int | None = None,
    local_rounds: Sequence[int] | None = None,
    points: int = 1000,
    directory: str | Path | None = None,
    progress: Progress | None = None,
) -> Stability:
    """Couple a run with `pairs` others, each with one client (or one of its samples) replaced.

    Args:
        settings: the run; the replacements are its held-out clients, so hold some out.
        execution: how the runs are executed.
        replaced: what differs, a client (FedSAGD, Definition 3.4) or one sample of one (FedInit).
        pairs: how many clients are replaced, each in a run of its own; more can be asked for later.
        drawn_by: a replaced client takes part within so many rounds; by default as `candidates` says.
        drawn_at_least: and in at least so many rounds.
        local_rounds: rounds (counted from 0) in which local stability is measured, and after which losses
            are compared; by default 0, 10, 50, 100, 500, … and the last.
        points: samples on which losses are compared.
        directory: where finished runs are written, and not repeated by the same call.
        progress: called after each round with the number of its run (0 is the unchanged one) and its row,
            None where the run is finished already.
    """
    _check(settings, replaced, pairs, points)
    eligible = candidates(settings, drawn_by, drawn_at_least)
    clients = eligible.first(pairs)
    measurement = _Measurement(
        measured_rounds(settings.rounds, local_rounds),
        loss_points(settings.federation, points, settings.seed),
    )
    report = progress or (lambda run, row: None)
    path = None if directory is None else Path(directory)
    with closing(_open(settings, execution, probes=(Losses(every=settings.rounds),))) as session:
        if path is not None:
            asked = {
                "rounds": settings.rounds,
                "replaced": replaced,
                "engine": execution.engine,
                "drawn_by": eligible.drawn_by,
                "drawn_at_least": eligible.drawn_at_least,
                "local_rounds": measurement.rounds,
                "points": points,
            }
            open_directory(path, "stability study", {**asked, **identity_of(session.context)})
        unchanged = _Unchanged(session, measurement, path, report)
        facts = unchanged.facts()
        runs = []
        for number, one in enumerate(clients):
            other = with_replacement(settings.federation, one.client, number, replaced, settings.seed)
            open_run = partial(_open, settings.changed(federation=other), execution)
            report_run = partial(report, 1 + number)
            make = partial(_pair, unchanged, open_run, report_run)
            runs.append(read_or_make(_part(path, f"pair-{number}"), make, partial(report_run, None)))
        unchanged.delete_models()
    return Stability(
        replaced,
        eligible.drawn_by,
        eligible.drawn_at_least,
        len(eligible.clients),
        clients,
        [run["curve"] for run in runs],
        [LocalDistances(**one) for one in facts["local"]],
        measurement.compare(settings.rounds, facts["losses"], [run["losses"] for run in runs]),
        facts["gap"],
    )


def _check(settings: RunSettings, replaced: Replaced, pairs: int, points: int) -> None:
    """Refuse what cannot work."""
    if replaced not in ("client", "sample"):
        raise ConfigError(f"stability: replaced = {replaced!r}: choose one of client, sample")
    for name, value in (("pairs", pairs), ("points", points)):
        if value < 1:
            raise ConfigError(f"stability: {name} = {value}: give 1 or more")
    if settings.federation.held_out < 1:
        raise ConfigError("stability: replacements are held-out clients: use federation.hold_out(5) first")


class _Measurement(NamedTuple):
    """In which rounds walks are measured, and the samples on which losses are compared."""

    rounds: tuple[int, ...]
    data: Batch

    def after(self, rounds: int) -> list[int]:
        """Return after how many rounds losses are compared: not before the first, always after the last."""
        return [*(round for round in self.rounds if round > 0), rounds]

    def compare(
        self, rounds: int, unchanged: Sequence[Sequence[float]], others: Sequence[Sequence[Sequence[float]]]
    ) -> list[LossDifference]:
        """Return how the losses of the unchanged run differ from those of the others, each time."""
        return [
            loss_difference(after, unchanged[index], [losses[index] for losses in others])
            for index, after in enumerate(self.after(rounds))
        ]


class _Unchanged:
    """The run that all pairs share: trained once, its models written until the last pair is done."""

    def __init__(
        self, session: Session, measurement: _Measurement, path: Path | None, report: Progress
    ) -> None:
        self.session, self.measurement = session, measurement
        self.path, self.report = path, partial(report, 0)
        self._models: list[Vector] = []

    def facts(self) -> dict[str, Any]:
        """Return what is reported of it: local distances, losses and gap."""
        part = _part(self.path, "unchanged")
        found: dict[str, Any] = read_or_make(part, self._train, partial(self.report, None))
        return found

    def models(self) -> list[Vector]:
        """Return its model before the first and after every round."""
        if not self._models:
            found = read_tensors(self._file)
            if found is None:
                self._train()
            else:
                self._models = list(found["x"].to(self.session.context.oracle.device))
        return self._models

    def delete_models(self) -> None:
        """Remove its models from the disk."""
        if self._file is not None:
            with storage_errors(self._file):
                self._file.unlink(missing_ok=True)

    def _train(self) -> dict[str, Any]:
        session, models = self.session, []
        local: list[dict[str, Any]] = []
        losses: list[list[float]] = []
        for x in _models(session, self.report):
            models.append(x)
            round = session.state.round
            if round in self.measurement.rounds:
                local.append(local_distances(session)._asdict())
            if round in self.measurement.after(session.context.settings.rounds):
                losses.append(sample_losses(session, self.measurement.data))
        self._models = models
        write_tensors(self._file, {"x": torch.stack(models)})
        return {"local": local, "losses": losses, "gap": session.history[-1]["losses/participation_gap"]}

    @property
    def _file(self) -> Path | None:
        return None if self.path is None else self.path / "unchanged.tensors"


def _pair(
    unchanged: _Unchanged, open_run: Callable[[], Session], report: Callable[[Row], None]
) -> dict[str, Any]:
    """Return ‖x_t − x_t'‖ after each number of rounds, and the losses of the run with a replacement."""
    curve: list[float] = []
    losses: list[list[float]] = []
    measurement = unchanged.measurement
    with closing(open_run()) as session:
        after = measurement.after(session.context.settings.rounds)
        for x, other in zip(unchanged.models(), _models(session, report), strict=True):
            curve.append(float(torch.linalg.vector_norm((x - other).double())))
            if session.state.round in after:
                losses.append(sample_losses(session, measurement.data))
    return {"curve": curve, "losses": losses}


def _models(session: Session, report: Callable[[Row], None]) -> Iterator[Vector]:
    """Play a session; yield its model before the first and after every round."""
    yield session.state.x0
    for row in session.rounds():
        yield session.context.model(session.state)
        report(row)


def _open(settings: RunSettings, execution: Execution, probes: tuple[Any, ...] = ()) -> Session:
    """Open a session that evaluates after its last round only."""
    return open_session(settings.changed(eval_every=settings.rounds, probes=probes), execution)


def _part(path: Path | None, name: str) -> Path | None:
    return None if path is None else path / f"{name}.json"
