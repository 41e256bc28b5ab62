"""The round loop: a generator of rounds, and nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedkeel.engines.contract import Choice, Engine, Order, Setting
from fedkeel.engines.serial import threads
from fedkeel.errors import Diverged
from fedkeel.methods.stages import Stages
from fedkeel.oracle import Oracle
from fedkeel.probes.base import RoundView, Several
from fedkeel.probes.watch import Apart, Panel
from fedkeel.records import Record, nbytes
from fedkeel.reducers import Reducer
from fedkeel.running.interrupts import uninterrupted
from fedkeel.running.population import Population
from fedkeel.running.store import Store
from fedkeel.vector import Vector, norm

Row = dict[str, Any]


class State(NamedTuple):
    """All that the next round depends on, but for the clients' memories: what a checkpoint holds."""

    round: int
    stage: int
    x0: Vector
    server: Record
    buffers: Vector
    probes: Several = Several()


class Loop(NamedTuple):
    """Everything that is fixed for a run."""

    setting: Setting
    stages: Stages
    population: Population
    reducer: Reducer
    rounds: int
    eval_every: int
    engine: Engine
    oracle: Oracle
    panel: Panel = Panel()
    choice: Choice | None = None


def begin(loop: Loop) -> State:
    """Return the state before the first round."""
    x, buffers = loop.oracle.point.clone(), loop.oracle.buffers.clone()
    probes = loop.panel.begin(x, loop.oracle.layout)
    return State(0, 0, x, loop.stages.parts[0].method.init(x), buffers, probes)


class Session:
    """A run in progress: the state, the clients' memories and the history, always of the same round."""

    def __init__(self, loop: Loop, state: State, store: Store, history: list[Row]) -> None:
        self.loop, self.state, self.store, self.history = loop, state, store, history
        self.spent: dict[str, float] = {}  # seconds that watching the last round took, not training it

    def rounds(self) -> Iterator[Row]:
        """Train to the last round; yield each round's row."""
        while self.state.round < self.loop.rounds:
            with uninterrupted():
                self._hand_over()
            started = time.perf_counter()
            with threads(self.loop.engine.threads):
                state, row, memories, spent = play(self.loop, self.state, self.store)
            row["seconds"] = time.perf_counter() - started
            with uninterrupted():
                self.state = state
                self.store.commit(memories)
                self.history.append(row)
                self.spent = spent
            yield row

    def _hand_over(self) -> None:
        """Enter the next stage where the present one has ended."""
        stages = self.loop.stages
        while stages.due(self.state.stage, self.state.round, self.history):
            stage = self.state.stage
            if stages.carries(stage):
                self.state = self.state._replace(stage=stage + 1)
                continue
            x = next(iter(stages.parts[stage].method.models(self.state.server).values()))
            server = stages.parts[stage + 1].method.init(x)
            notes, probes = self.loop.panel.notes_of(self.store), self.loop.panel.renew(self.state.probes)
            self.state = self.state._replace(stage=stage + 1, x0=x, server=server, probes=probes)
            self.store.clear()
            self.store.commit(notes)


def play(
    loop: Loop, state: State, store: Mapping[int, Record]
) -> tuple[State, Row, dict[int, Record], dict[str, float]]:
    """Play one round: return the next state, the row, the cohort's memories, and what watching took."""
    algorithm = loop.stages.parts[state.stage].method
    clients = loop.population.draw(state.round)
    panel, watch = loop.panel, loop.panel.watch(state.probes, state.round, loop.rounds)
    stored = [store.get(i) for i in clients]
    memories = panel.hand_out(watch, state.probes, stored, lambda: algorithm.enlist(state.x0))
    lr = loop.setting.work.rate(state.round, loop.rounds)
    down = algorithm.broadcast(state.server)
    weights = loop.population.weigh(clients)
    order = Order(algorithm, state.round, lr, down, state.buffers, clients, weights, watch)
    harvest = loop.engine.run(order, memories, loop.reducer if watch is None else Apart(loop.reducer))
    plain, renewed = panel.take_in(watch, harvest.memories)
    cohort = loop.population.cohort(state.round, loop.rounds, clients)
    server = algorithm.aggregate(state.server, harvest.upload.up, cohort)
    following = State(state.round + 1, state.stage, state.x0, server, harvest.upload.buffers)
    trained = time.perf_counter()
    judged = _evaluate(loop, following)
    spent = {"evaluation": time.perf_counter() - trained}
    row: Row = {
        "round": state.round,
        "stage": state.stage,
        "cohort": clients,
        **judged,
        "train_loss": sum(harvest.losses) / len(harvest.losses),
        "norm": float(norm(algorithm.models(server)["x"])),
        "lr": lr,
        "gradients": harvest.gradients,
        "bytes_down": (nbytes(down) + nbytes(state.buffers)) * len(clients),
        "bytes_up": harvest.bytes_up,
    }
    _check(row, state.round)
    seen = RoundView(
        round=state.round,
        rounds=loop.rounds,
        stage=state.stage,
        algorithm=algorithm,
        clients=clients,
        population=loop.population.clients,
        down=down,
        before=state.server,
        after=server,
        measures=harvest.upload.measures,
        memories=plain,
        passes=harvest.passes,
        row=row,
        federation=loop.setting.federation,
        layout=loop.oracle.layout,
        evaluate=lambda vector, data: loop.engine.judge([vector], following.buffers, data)[0],
    )
    evaluated = time.perf_counter()
    columns, probes = panel.report(state.probes, seen)
    spent["probes"] = time.perf_counter() - evaluated
    kept = {client: memory for client, memory in zip(clients, renewed, strict=True) if memory}
    return following._replace(probes=probes), row | columns, kept, spent


def _evaluate(loop: Loop, state: State) -> Row:
    """Return loss and metrics of every model the method reports; None in rounds without evaluation."""
    names = ["loss", *loop.setting.task.metrics]
    row: Row = dict.fromkeys([*names, "accuracy"])
    if state.round % loop.eval_every and state.round != loop.rounds:
        return row
    federation = loop.setting.federation
    data = federation.everything if federation.test is None else federation.test
    models = loop.stages.parts[state.stage].method.models(state.server)
    found = loop.engine.judge(list(models.values()), state.buffers, data)
    for place, (name, scores) in enumerate(zip(models, found, strict=True)):
        row |= {key if place == 0 else f"{key}/{name}": value for key, value in scores.items()}
    return row


def _check(row: Row, round: int) -> None:
    """Stop a run whose model or loss is no number any more."""
    for name in ("norm", "loss"):
        value = row[name]
        if value is not None and not math.isfinite(value):
            what = "norm of the model" if name == "norm" else "loss"
            raise Diverged(
                f"round {round}: the {what} is {value} after aggregation; lower the learning rates",
                round=round,
            )
