"""Stability: how far two runs part whose federations differ in one client, or in one sample.

FedSAGD, Definition 3.4 and Figures 1–2; with one sample, FedInit's form. Both runs have the same seed, so the
same first model, cohort positions and (with clients of one size) minibatch order.
"""

from __future__ import annotations

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
from fedkeel.engines.client import client_stream, full_gradient, minibatches, seeded
from fedkeel.errors import ConfigError
from fedkeel.files import storage_errors
from fedkeel.methods import Stages
from fedkeel.methods.stages import as_stages
from fedkeel.probes import Losses
from fedkeel.running.manifest import manifest_of
from fedkeel.running.population import Sampling, Weighting
from fedkeel.running.session import Row, Session
from fedkeel.running.train import open_session
from fedkeel.streams import Stream
from fedkeel.studies.artifacts import claim, keep_tensors, kept, read_tensors
from fedkeel.task import Task
from fedkeel.vector import Vector
from fedkeel.walk import Pace, take
from fedkeel.work import Work

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
    task: Task,
    federation: Federation,
    algorithm: Algorithm | Stages,
    *,
    rounds: int,
    cohort: int | float,
    work: Work,
    seed: int = 0,
    sampling: Sampling = "fixed",
    weighting: Weighting = "uniform",
    device: str = "cpu",
    replaced: Replaced = "client",
    pairs: int = 5,
    engine: str = "serial",
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> Stability:
    """Couple a run with `pairs` others, each with one client (or one of its samples) replaced.

    The replacement comes from the held-out clients, so hold some out. Which clients are replaced is drawn
    from the seed among those that take part. With `keep`, finished runs lie in that directory and are not
    repeated; more pairs can be asked for later. `progress` hears of each round: the number of its run (0 the
    unchanged one) and its row, None where the run is there already.
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
            sampling=sampling,
            weighting=weighting,
            device=device,
            engine=engine,
            probes=probes,
            eval_every=rounds,
        )

    tell = progress or (lambda run, row: None)
    place = None if keep is None else Path(keep)
    base = open_run(federation, [Losses(every=rounds)])
    if place is not None:
        identity = manifest_of(base.loop, as_stages(algorithm), cohort)["identity"]
        asked = {"rounds": rounds, "replaced": replaced, "engine": engine}
        claim(place, "stability study", {**asked, **identity})
    with closing(base.loop.engine):
        unchanged = _Unchanged(base, place, tell)
        facts = unchanged.facts()
        drawn = facts["order"][:pairs]
        curves = []
        for number, client in enumerate(drawn):
            other = partial(swapped, federation, client, number, replaced, seed)
            hear = partial(tell, 1 + number)
            make = partial(_curve, unchanged, other, open_run, hear)
            curves.append(kept(_part(place, f"pair-{number}"), make, partial(hear, None)))
        unchanged.forget()
    return Stability(replaced, drawn, curves, facts["local"], facts["gap"])


class _Unchanged:
    """The run that all pairs share: trained once, its models kept until the last pair is done."""

    def __init__(self, session: Session, place: Path | None, tell: Progress) -> None:
        self.session, self.place, self.tell = session, place, partial(tell, 0)
        self._models: list[Vector] = []

    def facts(self) -> dict[str, Any]:
        """Return what is reported of it, and its clients in the order in which they are replaced."""
        path = _part(self.place, "unchanged")
        found: dict[str, Any] = kept(path, self._train, partial(self.tell, None))
        return found

    def models(self) -> list[Vector]:
        """Return its model before the first and after every round."""
        if not self._models:
            found = read_tensors(self._file)
            if found is None:
                self._train()
            else:
                self._models = list(found["x"].to(self.session.loop.setting.device))
        return self._models

    def forget(self) -> None:
        """Give the room back that its models take on disk."""
        if self._file is not None:
            with storage_errors(self._file):
                self._file.unlink(missing_ok=True)

    def _train(self) -> dict[str, Any]:
        local = local_discrepancy(self.session)
        self._models = list(_trail(self.session, self.tell))
        keep_tensors(self._file, {"x": torch.stack(self._models)})
        gap = self.session.history[-1]["losses/participation_gap"]
        return {"order": _order(self.session), "local": local, "gap": gap}

    @property
    def _file(self) -> Path | None:
        return None if self.place is None else self.place / "unchanged.tensors"


def _curve(
    unchanged: _Unchanged,
    other: Callable[[], Federation],
    open_run: Callable[[Federation], Session],
    tell: Callable[[Row], None],
) -> list[float]:
    """Return ‖x_t − x_t'‖ after each number of rounds."""
    pairs = zip(unchanged.models(), _trail(open_run(other()), tell), strict=True)
    return [float(torch.linalg.vector_norm((x - y).double())) for x, y in pairs]


def _part(place: Path | None, name: str) -> Path | None:
    return None if place is None else place / f"{name}.json"


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
    return [*points, taken.walk.end.clone()]


def _trail(session: Session, tell: Callable[[Row], None]) -> Iterator[Vector]:
    """Yield the model before the first and after every round."""
    with closing(session.loop.engine):
        yield session.state.x0
        for row in session.rounds():
            state = session.state
            yield next(iter(session.loop.stages.parts[state.stage].method.models(state.server).values()))
            tell(row)


def _order(session: Session) -> list[int]:
    """Return the clients that take part at all, in the order of a draw: the first ones are replaced."""
    taking_part = sorted({client for row in session.history for client in row["cohort"]})
    rng = Stream(session.loop.setting.seed).branch("stability").numpy()
    return [int(i) for i in rng.permutation(taking_part)]
