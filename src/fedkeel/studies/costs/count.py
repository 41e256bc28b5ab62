"""Counts what methods cost in short real runs, next to one of FedAvg."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Algorithm
from fedkeel.core.task import Task
from fedkeel.core.work import Work
from fedkeel.data import IID, load
from fedkeel.methods import FedAvg, Stages
from fedkeel.methods.stages import as_stages
from fedkeel.models import build
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.costs.timed_run import StageCount, TimedRun

_RATES = ("down", "up", "unicast", "broadcast", "gradients", "forwards", "seconds")
_MEMORIES = ("kept", "stored", "working", "server")


class MethodCosts(NamedTuple):
    """A method's costs. Vectors are of the model's length; scalars count as fractions of it.

    `down`, `up`: per client and round. `unicast`, `broadcast`: bytes against FedAvg's where what goes down is
    sent to each of the cohort, or once for all (FedSAGD's (s+2)/(s+1)). `gradients`, `forwards`: passes per
    local step, full gradients included. `kept`: vectors a client must keep between rounds; `stored`: its
    model and what it keeps beside it; `working`: what it must hold during its walk; `server`: the server's
    vectors. `seconds`: a round's processor time against FedAvg's on this machine: the median of the quotients
    of rounds that were played one after the other.

    Of stages, each is counted, and the whole is the mean of its `rounds` (the most, of what is kept or held).
    """

    method: str
    rounds: int
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
    stages: tuple[MethodCosts, ...] = ()

    @property
    def lines(self) -> Iterator[MethodCosts]:
        """Yield the costs of the whole, then those of its stages."""
        yield self
        yield from self.stages

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**self._asdict(), "stages": [stage.as_dict() for stage in self.stages]}


def small_run(rounds: int = 100) -> RunSettings:
    """Return the run that costs are counted in where none is given: a small network on digits, like clients.

    `rounds` is the length of the run whose stages are weighed; much fewer are played.
    """
    federation = load("digits").split(IID(), clients=20, seed=0)
    shape = tuple(federation.prepare(federation.samples(0)[0][:1]).shape[1:])
    return RunSettings(
        task=Task(build("mlp", shape=shape, classes=10, seed=0, dtype=torch.float32)),
        federation=federation,
        method=FedAvg(),
        rounds=rounds,
        cohort=10,
        work=Work(steps=10, batch_size=20, lr=0.01),
    )


def count(
    methods: Sequence[tuple[str, Algorithm | Stages]],
    settings: RunSettings | None = None,
    *,
    rounds: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> list[MethodCosts]:
    """Play some rounds of each method, side by side with FedAvg, and count.

    Args:
        methods: names and methods; of stages each is counted, and the whole.
        settings: data, model, cohort, work and length of the run; by default `small_run()`. Its method and
            probes do not matter: `Experiment(…).settings()` serves.
        rounds: rounds that are played and counted, of each stage.
        progress: called with the number of rounds that all have played, and how many there will be.
    """
    settings = settings or small_run()
    plans = [(name, _played(as_stages(method), settings.rounds)) for name, method in methods]
    lengths = [_lengths(name, stages, settings.rounds) for name, stages in plans]
    most = max((len(stages.parts) for _, stages in plans), default=1)
    base = as_stages(FedAvg())
    with ExitStack() as stack:
        runs: dict[str, TimedRun] = {}
        for stages in (base, *(stages for _, stages in plans)):
            played = rounds * (most if stages == base else len(stages.parts))
            if repr(stages) not in runs:
                runs[repr(stages)] = stack.enter_context(closing(TimedRun(settings, stages, rounds, played)))
        _play(list(runs.values()), rounds * most, progress or (lambda done, total: None))
        fedavg = runs[repr(base)]
        return [
            _costs(name, stages, runs[repr(stages)], fedavg, parts)
            for (name, stages), parts in zip(plans, lengths, strict=True)
        ]


def _played(stages: Stages, rounds: int) -> Stages:
    """Return the stages that a run has rounds for: what follows a stage that ends with it is left out."""
    fixed = stages.fixed(rounds)
    ends = [part.until for part in fixed.parts]
    if rounds not in ends:
        return fixed
    last = ends.index(rounds)
    return fixed._replace(parts=(*fixed.parts[:last], fixed.parts[last]._replace(until=None)))


def _lengths(name: str, stages: Stages, rounds: int) -> list[int]:
    """Return how many of a run's rounds each stage has."""
    ends: list[int] = [0]
    for part in stages.parts[:-1]:
        if not isinstance(part.until, int):
            raise ConfigError(
                f"costs: {name}: a stage ends by {part.until!r}, at a round that only a run can tell: give "
                "the round, as in stages((FedDyn(), 150), FedAvg())"
            )
        if not ends[-1] < part.until < rounds:
            raise ConfigError(
                f"costs: {name}: a stage ends after round {part.until} of a run of {rounds} rounds, which "
                "leaves a stage without rounds: give the run more rounds"
            )
        ends.append(part.until)
    return [end - begin for begin, end in pairwise([*ends, rounds])]


def _play(runs: Sequence[TimedRun], rounds: int, progress: Callable[[int, int], None]) -> None:
    """Play a round of each in turn, so that what slows the machine down slows all of them down."""
    for done in range(rounds):
        for run in runs:
            run.play(done)
        progress(done + 1, rounds)


def _costs(name: str, stages: Stages, run: TimedRun, fedavg: TimedRun, lengths: list[int]) -> MethodCosts:
    """Return the costs of the whole, with those of its stages where there are several."""
    counted = [
        _stage_costs(name if len(lengths) == 1 else short_name(part.method), length, ours, plain)
        for part, length, ours, plain in zip(stages.parts, lengths, run.counts, fedavg.counts, strict=False)
    ]
    if len(counted) == 1:
        return counted[0]
    whole = sum(lengths)
    shares = [length / whole for length in lengths]
    rates = {
        key: sum(share * getattr(one, key) for share, one in zip(shares, counted, strict=True))
        for key in _RATES
    }
    memories = {key: max(getattr(one, key) for one in counted) for key in _MEMORIES}
    return MethodCosts(name, whole, **rates, **memories, stages=tuple(counted))


def _stage_costs(name: str, rounds: int, ours: StageCount, plain: StageCount) -> MethodCosts:
    row, base, cohort = ours.row, plain.row, len(ours.row["cohort"])
    down, up = (row[key] / cohort / ours.model_bytes for key in ("bytes_down", "bytes_up"))
    base_down, base_up = (base[key] / cohort / ours.model_bytes for key in ("bytes_down", "bytes_up"))
    return MethodCosts(
        name,
        rounds,
        down,
        up,
        unicast=(down + up) / (base_down + base_up),
        broadcast=(down + cohort * up) / (base_down + cohort * base_up),
        gradients=row["costs/gradients"] / base["costs/gradients"],
        forwards=row["costs/forwards"] / base["costs/forwards"],
        kept=ours.kept,
        stored=1 + ours.beside,
        working=ours.working,
        server=row["costs/server_memory"] / ours.model_bytes,
        seconds=ours.slowdown(plain),
    )


def short_name(method: Algorithm) -> str:
    """Return a method's name where its arguments are the default ones, else the expression that makes it."""
    try:
        return type(method).__name__ if type(method)() == method else repr(method)
    except ConfigError:  # a wrapper needs its inner method
        return repr(method)
