"""Stability: how far two runs part whose federations differ in one client, or in one sample.

FedSAGD, Definition 3.4 and Figures 1–2; with one sample, FedInit's form. Both runs have the same seed, so the
same first model, cohort positions and (with clients of one size) minibatch order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Federation
from fedkeel.engines.local import client_stream, full_gradient, minibatches, seeded
from fedkeel.errors import ConfigError
from fedkeel.methods import Stages
from fedkeel.probes import Losses
from fedkeel.runner import open_session
from fedkeel.runs import storage, write_durably
from fedkeel.streams import Stream
from fedkeel.task import Task
from fedkeel.training import Session
from fedkeel.vector import Vector
from fedkeel.walk import Pace, take
from fedkeel.work import Work

Replaced = Literal["client", "sample"]
Progress = Callable[[str, int, int], None]


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
    task: Task,
    federation: Federation,
    algorithm: Algorithm | Stages,
    *,
    rounds: int,
    cohort: int | float,
    work: Work,
    seed: int = 0,
    replaced: Replaced = "client",
    pairs: int = 5,
    engine: str = "serial",
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> Stability:
    """Couple a run with `pairs` others, each with one client (or one of its samples) replaced.

    The replacement comes from the held-out clients, so hold some out. Which clients are replaced is drawn
    from the seed among those that take part. With `keep`, finished pairs are kept in that directory and not
    run again.
    """
    if replaced not in ("client", "sample"):
        raise ConfigError(f"stability: replaced = {replaced!r}: choose one of client, sample")
    if federation.held_out < 1:
        raise ConfigError("stability: replacements are held-out clients: use federation.hold_out(5) first")

    def open_run(data: Federation, probes: Sequence[Losses] = ()) -> Session:
        return open_session(
            task,
            data,
            algorithm,
            rounds=rounds,
            cohort=cohort,
            work=work,
            seed=seed,
            engine=engine,
            probes=probes,
            eval_every=rounds,
        )

    base = open_run(federation, [Losses(every=rounds)])
    local = local_discrepancy(base)
    trail = list(_trail(base))
    drawn = _drawn(base, pairs)
    key = (repr(algorithm), rounds, cohort, repr(work), seed, federation.fingerprint())
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:8]

    def curve(number: int, client: int) -> list[float]:
        other = _trail(open_run(swapped(federation, client, number, replaced, seed)))
        pairs = zip(trail, other, strict=True)
        return [float(torch.linalg.vector_norm((x - y).double())) for x, y in pairs]

    curves = []
    for number, client in enumerate(drawn):
        if progress is not None:
            progress("pairs", number, len(drawn))
        name = f"{replaced}-{client}-{digest}"
        curves.append(_kept(keep, name, partial(curve, number, client)))
    return Stability(replaced, drawn, curves, local, base.history[-1]["losses/participation_gap"])


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
    clients = session.loop.population.draw(0)
    paths = [_walk(session, client) for client in clients]
    longest = max(len(path) for path in paths)
    whole = torch.stack([torch.stack([*path, *[path[-1]] * (longest - len(path))]) for path in paths])
    return [float(torch.cdist(whole[:, k].double(), whole[:, k].double()).max()) for k in range(longest)]


def _walk(session: Session, client: int) -> list[Vector]:
    """Return the points of a client's walk in the first round, its end last."""
    loop, state, work = session.loop, session.state, session.loop.setting.work
    algorithm = loop.stages.parts[0].method
    plan = algorithm.plan(algorithm.broadcast(state.server), algorithm.enlist(state.x0))
    stream = client_stream(loop.setting.seed, 0, client)
    batches = loop.setting.federation.batches(client, minibatches(loop.setting, 0, client), stream)
    pace = Pace(
        work.rate(0, loop.rounds), work.weight_decay, work.clip, clip_direction=work.clip_on == "direction"
    )
    loop.oracle.load_buffers(state.buffers)
    points: list[Vector] = []
    with seeded(stream.branch("dropout").integer(), loop.setting.device):
        taken = take(
            loop.oracle,
            plan,
            batches,
            pace,
            lambda at: full_gradient(loop.setting, loop.oracle, client, at),
            trace=lambda y: points.append(y.clone()),
        )
    return [*points, taken.walk.end]


def _trail(session: Session) -> Iterator[Vector]:
    """Yield the model before the first and after every round."""
    with closing(session.loop.engine):
        yield session.state.x0
        for _ in session.rounds():
            state = session.state
            yield next(iter(session.loop.stages.parts[state.stage].method.models(state.server).values()))


def _drawn(session: Session, pairs: int) -> list[int]:
    """Return the clients to replace: of those that take part at all, in the order of a draw."""
    taking_part = sorted({client for row in session.history for client in row["cohort"]})
    rng = Stream(session.loop.setting.seed).branch("stability").numpy()
    return [int(i) for i in rng.permutation(taking_part)[:pairs]]


def _kept(keep: str | Path | None, name: str, make: Callable[[], list[float]]) -> list[float]:
    """Return a curve from the directory where it is there already; else make and keep it."""
    if keep is None:
        return make()
    path = Path(keep) / f"{name}.json"
    with storage(path):
        if path.exists():
            curve: list[float] = json.loads(path.read_text())
            return curve
        curve = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json.dumps(curve).encode())
    return curve
