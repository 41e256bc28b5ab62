"""Counts what methods cost in short real runs, next to one of FedAvg."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import torch

from fedkeel.algorithm import Algorithm, Plan
from fedkeel.data import IID, load
from fedkeel.data.federation import Federation
from fedkeel.errors import ConfigError
from fedkeel.methods import FedAvg, Stages
from fedkeel.models import build
from fedkeel.options import Execution
from fedkeel.probes import Divergence
from fedkeel.records import Record, leaves
from fedkeel.running.round import Row
from fedkeel.running.session import Session, open_session
from fedkeel.settings import RunSettings
from fedkeel.task import Task
from fedkeel.walk import sharp_of
from fedkeel.work import Work

CLIENTS, COHORT, STEPS = 20, 10, 10


class MethodCosts(NamedTuple):
    """A method's costs. Vectors are of the model's length; scalars count as fractions of it.

    `down`, `up`: a client and round. `unicast`, `broadcast`: bytes against FedAvg's where what goes down is
    sent to each of the cohort, or once for all (FedSAGD's (s+2)/(s+1)). `gradients`, `forwards`: passes a
    local step, full gradients included. `kept`: vectors a client must keep between rounds; `stored`: its
    model and what it keeps beside it; `working`: what it must hold during its walk; `server`: the server's
    vectors. `seconds`: a round's processor time against FedAvg's on this machine: the median of the quotients
    of rounds that were played one after the other.
    """

    method: str
    down: float
    up: float
    unicast: float
    broadcast: float
    gradients: float
    forwards: float
    kept: float
    stored: float
    working: float
    server: float
    seconds: float


class TimedRun(NamedTuple):
    """A method's run: its session, its last row, and each round's processor seconds, watching left out."""

    session: Session
    row: Row
    seconds: list[float]


def count(
    methods: Sequence[tuple[str, Algorithm]],
    *,
    rounds: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> list[MethodCosts]:
    """Run the methods for a few rounds of digits, side by side with FedAvg, and count.

    `progress` hears of the rounds that all have played, and of how many there are.
    """
    for name, method in methods:
        if isinstance(method, Stages):
            raise ConfigError(f"costs: {name} changes its method on the way: count its stages one by one")
    federation = load("digits").split(IID(), clients=CLIENTS, seed=0)
    sessions = {repr(method): _session(method, federation, rounds) for _, method in methods}
    base = repr(FedAvg())
    sessions.setdefault(base, _session(FedAvg(), federation, rounds))
    with ExitStack() as stack:
        for session in sessions.values():
            stack.enter_context(closing(session))
        played = _play(sessions, rounds, progress or (lambda done, total: None))
        return [_line(name, played[repr(method)], played[base]) for name, method in methods]


def _play(
    sessions: Mapping[str, Session], rounds: int, progress: Callable[[int, int], None]
) -> dict[str, TimedRun]:
    """Play a round of each in turn, so that what slows the machine down slows all of them down."""
    runs = {key: session.rounds() for key, session in sessions.items()}
    seconds: dict[str, list[float]] = {key: [] for key in sessions}
    for done in range(rounds):
        for key, run in runs.items():
            started = time.process_time()
            next(run)
            seconds[key].append(time.process_time() - started - sum(sessions[key].seconds.values()))
        progress(done + 1, rounds)
    return {key: TimedRun(session, session.history[-1], seconds[key]) for key, session in sessions.items()}


def _slowdown(ours: TimedRun, base: TimedRun) -> float:
    """Return how much longer a round takes: the first is left out, it warms up."""
    pairs = list(zip(ours.seconds, base.seconds, strict=True))
    return statistics.median(mine / plain for mine, plain in pairs[1:] or pairs)


def _line(name: str, ours: TimedRun, plain: TimedRun) -> MethodCosts:
    row, base = ours.row, plain.row
    d = ours.session.context.oracle.layout.total
    size = d * ours.session.state.x0.element_size()
    down, up = row["bytes_down"] / COHORT / size, row["bytes_up"] / COHORT / size
    kept, beside = _memory(ours.session)
    return MethodCosts(
        name,
        down,
        up,
        unicast=(row["bytes_down"] + row["bytes_up"]) / (base["bytes_down"] + base["bytes_up"]),
        broadcast=(down + COHORT * up) / (1 + COHORT),
        gradients=row["costs/gradients"] / base["costs/gradients"],
        forwards=row["costs/forwards"] / base["costs/forwards"],
        kept=kept,
        stored=1 + beside,
        working=_working(ours.session, beside),
        server=row["costs/server_memory"] / size,
        seconds=_slowdown(ours, plain),
    )


def _session(method: Algorithm, federation: Federation, rounds: int) -> Session:
    """Return a run whose clients note their end models, to tell them from what else they keep."""
    shape = tuple(federation.prepare(federation.x[:1]).shape[1:])
    model = build("mlp", shape=shape, classes=10, seed=0, dtype=torch.float32)
    work = Work(steps=STEPS, batch_size=20, lr=0.01)
    settings = RunSettings(
        task=Task(model),
        federation=federation,
        algorithm=method,
        rounds=rounds,
        cohort=COHORT,
        work=work,
        probes=(Divergence(),),
        eval_every=rounds,
    )
    return open_session(settings, Execution(engine="serial", threads=1))


def _memory(session: Session) -> tuple[float, float]:
    """Return how many vectors a client keeps, and how many of them are not its own last model."""
    d = session.context.oracle.layout.total
    most = kept, beside = 0.0, 0.0
    for record in session.store.values():
        (end,) = (note.last for note in record.notes if hasattr(note, "last"))
        sizes = [(tensor.numel() / d, torch.equal(tensor, end)) for _, tensor in leaves(record.method)]
        kept = sum(size for size, _ in sizes)
        beside = sum(size for size, is_model in sizes if not is_model)
        most = max(most, (kept, beside))
    return most


def _working(session: Session, beside: float) -> float:
    """Return how many vectors a client holds while it walks.

    Its point; of what it received all but the model, and that too where the walk refers to it; what it keeps
    beside its model; the shifted point of a sharp step.
    """
    method = session.context.stages.parts[0].method
    down = method.broadcast(session.state.server)
    memory = method.enlist(session.state.x0)
    plan = method.plan(down, memory)
    d = session.context.oracle.layout.total
    received = sum(tensor.numel() / d for _, tensor in leaves(down)) - 1
    refers = plan.pull != 0 or any(vector is down.x for vector in _referred(plan))
    return 1 + received + refers + beside + (sharp_of(plan.sharp) is not None)


def _referred(plan: Plan) -> Iterator[Any]:
    context: Record = None if plan.objective is None else plan.objective.context
    yield from (tensor for _, tensor in leaves(context))
