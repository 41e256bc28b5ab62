"""Stability: how far two runs part whose federations differ in one client, or in one sample.

FedSAGD, Definition 3.4 and Figures 1–2; with one sample, FedInit's form. Both runs have the same seed, so the
same first model, cohort positions and (with clients of one size) minibatch order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fedkeel.data.federation import Federation
from fedkeel.engines.client import walk_client
from fedkeel.engines.contract import RoundRequest
from fedkeel.errors import ConfigError
from fedkeel.files import storage_errors
from fedkeel.options import SERIAL, Execution
from fedkeel.probes import Losses
from fedkeel.records import ClientMemory
from fedkeel.running.manifest import identity_of
from fedkeel.running.round import Row, memories_of, prepare
from fedkeel.running.session import Session, open_session
from fedkeel.settings import RunSettings
from fedkeel.streams import Stream
from fedkeel.studies.artifacts import open_directory, read_or_make, read_tensors, write_tensors
from fedkeel.vector import Vector

Replaced = Literal["client", "sample"]
Progress = Callable[[int, Row | None], None]


@dataclass(frozen=True)
class Stability:
    """What the study found.

    `curves[p][t]` is ‖x_t − x_t'‖ after t rounds (t from 0) with client `clients[p]` replaced; `local[k]` the
    largest ‖y_{i,k} − y_{j,k}‖ over pairs of the first cohort after k local steps; `gap` = R_u − R_e of the
    unchanged run at the end (FedSAGD, (2)), None without held-out clients.
    """

    replaced: Replaced
    clients: list[int]
    curves: list[list[float]]
    local: list[float]
    gap: float | None

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
        return {**asdict(self), "mean": self.mean, "largest": self.largest}


def stability(
    settings: RunSettings,
    execution: Execution = SERIAL,
    *,
    replaced: Replaced = "client",
    pairs: int = 5,
    directory: str | Path | None = None,
    progress: Progress | None = None,
) -> Stability:
    """Couple a run with `pairs` others, each with one client (or one of its samples) replaced.

    The replacement comes from the held-out clients, so hold some out. Which clients are replaced is drawn
    from the seed among those that take part. With `directory`, finished runs are kept there and not
    repeated; more pairs can be asked for later. `progress` hears of each round: the number of its run (0 the
    unchanged one) and its row, None where the run is there already.
    """
    if replaced not in ("client", "sample"):
        raise ConfigError(f"stability: replaced = {replaced!r}: choose one of client, sample")
    federation, rounds = settings.federation, settings.rounds
    if federation.held_out < 1:
        raise ConfigError("stability: replacements are held-out clients: use federation.hold_out(5) first")
    quiet = settings.changed(eval_every=rounds, probes=())

    def open_run(data: Federation) -> Session:
        return open_session(quiet.changed(federation=data), execution)

    tell = progress or (lambda run, row: None)
    path = None if directory is None else Path(directory)
    with closing(open_session(quiet.changed(probes=(Losses(every=rounds),)), execution)) as base:
        if path is not None:
            asked = {"rounds": rounds, "replaced": replaced, "engine": execution.engine}
            open_directory(path, "stability study", {**asked, **identity_of(base.context)})
        unchanged = _Unchanged(base, path, tell)
        facts = unchanged.facts()
        drawn = facts["order"][:pairs]
        curves = []
        for number, client in enumerate(drawn):
            other = partial(swapped, federation, client, number, replaced, settings.seed)
            hear = partial(tell, 1 + number)
            make = partial(_curve, unchanged, other, open_run, hear)
            curves.append(read_or_make(_part(path, f"pair-{number}"), make, partial(hear, None)))
        unchanged.forget()
    return Stability(replaced, drawn, curves, facts["local"], facts["gap"])


class _Unchanged:
    """The run that all pairs share: trained once, its models kept until the last pair is done."""

    def __init__(self, session: Session, path: Path | None, tell: Progress) -> None:
        self.session, self.path, self.tell = session, path, partial(tell, 0)
        self._models: list[Vector] = []

    def facts(self) -> dict[str, Any]:
        """Return what is reported of it, and its clients in the order in which they are replaced."""
        part = _part(self.path, "unchanged")
        found: dict[str, Any] = read_or_make(part, self._train, partial(self.tell, None))
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

    def forget(self) -> None:
        """Give the room back that its models take on disk."""
        if self._file is not None:
            with storage_errors(self._file):
                self._file.unlink(missing_ok=True)

    def _train(self) -> dict[str, Any]:
        local = local_discrepancy(self.session)
        self._models = list(_trail(self.session, self.tell))
        write_tensors(self._file, {"x": torch.stack(self._models)})
        gap = self.session.history[-1]["losses/participation_gap"]
        return {"order": _order(self.session), "local": local, "gap": gap}

    @property
    def _file(self) -> Path | None:
        return None if self.path is None else self.path / "unchanged.tensors"


def _curve(
    unchanged: _Unchanged,
    other: Callable[[], Federation],
    open_run: Callable[[Federation], Session],
    tell: Callable[[Row], None],
) -> list[float]:
    """Return ‖x_t − x_t'‖ after each number of rounds."""
    pairs = zip(unchanged.models(), _trail(open_run(other()), tell), strict=True)
    return [float(torch.linalg.vector_norm((x - y).double())) for x, y in pairs]


def _part(path: Path | None, name: str) -> Path | None:
    return None if path is None else path / f"{name}.json"


def swapped(federation: Federation, client: int, number: int, replaced: Replaced, seed: int) -> Federation:
    """Return the federation with a client, or one of its samples, replaced by held-out data."""
    spare = len(federation) + number % federation.held_out
    rows = [federation.rows(i) for i in range(len(federation.offsets) - 1)]
    if replaced == "client":
        rows[client] = rows[spare]
    else:
        rng = Stream(seed).branch("stability", client).numpy()
        mine = rows[client].clone()
        mine[int(rng.integers(len(mine)))] = rows[spare][int(rng.integers(len(rows[spare])))]
        rows[client] = mine
    sizes = torch.tensor([len(own) for own in rows])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    return replace(federation, index=torch.cat(rows), offsets=offsets)


def local_discrepancy(session: Session) -> list[float]:
    """Return max ‖y_{i,k} − y_{j,k}‖ over pairs of the first cohort, k = 0, 1, …; a walk that ended rests."""
    request = prepare(session.context, session.state)
    memories = memories_of(session.context, session.state, session.store, request)
    paths = [
        _walk(session, request, client, memory)
        for client, memory in zip(request.clients, memories, strict=True)
    ]
    longest = max(len(path) for path in paths)
    whole = torch.stack([torch.stack([*path, *[path[-1]] * (longest - len(path))]) for path in paths])
    return [float(torch.cdist(whole[:, k].double(), whole[:, k].double()).max()) for k in range(longest)]


def _walk(session: Session, request: RoundRequest, client: int, memory: ClientMemory) -> list[Vector]:
    """Return the points of a client's walk, its end last."""
    settings, oracle = session.context.settings, session.context.oracle
    points: list[Vector] = []
    plan = request.algorithm.plan(request.down, memory.method)
    walked = walk_client(settings, oracle, request, client, plan, trace=lambda y: points.append(y.clone()))
    return [*points, walked.walk.end.clone()]


def _trail(session: Session, tell: Callable[[Row], None]) -> Iterator[Vector]:
    """Yield the model before the first and after every round."""
    with closing(session):
        yield session.state.x0
        for row in session.rounds():
            yield session.context.model(session.state)
            tell(row)


def _order(session: Session) -> list[int]:
    """Return the clients that take part at all, in the order of a draw: the first ones are replaced."""
    taking_part = sorted({client for row in session.history for client in row["cohort"]})
    rng = Stream(session.context.settings.seed).branch("stability").numpy()
    return [int(i) for i in rng.permutation(taking_part)]
