"""A run in progress: the loop over rounds and the change from one stage to the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fedkeel.common.columns import RESTARTED, ROLLED_BACK, STATE_LOST
from fedkeel.common.errors import Diverged
from fedkeel.common.interrupts import uninterrupted
from fedkeel.core.oracle import Oracle, device_of
from fedkeel.engines import make_engine, settle
from fedkeel.engines.contract import Choice, Engine, MemoriesLost
from fedkeel.engines.serial import threads
from fedkeel.running.panel import assemble
from fedkeel.running.population import Population
from fedkeel.running.preflight import (
    check,
    check_leftovers,
    check_momentum,
    check_optimizer,
    check_rates,
    warn_of_dragging,
    warn_of_growth,
)
from fedkeel.running.privacy import check_privacy
from fedkeel.running.rollback import Rollbacks
from fedkeel.running.round import RoundOutcome, Row, RunContext, RunState, play_round
from fedkeel.running.store import Store
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings

EngineMaker = Callable[[RunSettings, Oracle], Engine]


class Session:
    """A run in progress: the state, the client states and the history, always of the same round."""

    def __init__(self, context: RunContext, state: RunState) -> None:
        self.context, self.state = context, state
        self.store = Store()
        self.history: list[Row] = []
        self.seconds: dict[str, float] = {}  # that evaluating and probing the last round took
        self._rollbacks = Rollbacks()

    def rounds(self) -> Iterator[Row]:
        """Train to the last round; yield each round's row.

        A round is played again where it diverged and the run rolls back, and, with the method started
        afresh, where clients lost their memories.
        """
        context, rollbacks = self.context, self._rollbacks
        while not self.finished:
            with uninterrupted():
                self.change_stage()
            started, lost, rollbacks.events = time.perf_counter(), list[int](), []
            outcome: RoundOutcome | None = None
            with threads(context.engine.threads):
                while outcome is None:
                    limits = rollbacks.limits(context, self.state, self.history)
                    try:
                        outcome = play_round(context, self.state, self.store, limits)
                    except Diverged as problem:
                        rollbacks.add(context.settings, problem)
                    except MemoriesLost as loss:
                        lost, rollbacks.events = [*lost, *loss.clients], []
                        with uninterrupted():
                            self._start_afresh(self.state.stage)
            row = outcome.row
            if rollbacks.events:
                row[ROLLED_BACK] = rollbacks.events
            if lost:
                row.update({STATE_LOST: lost, RESTARTED: True})
            row["seconds"] = time.perf_counter() - started
            with uninterrupted():
                self.state = outcome.state
                self.store.commit(outcome.memories)
                self.history.append(row)
                self.seconds = outcome.seconds
            yield row

    @property
    def finished(self) -> bool:
        """Tell whether the last round is played."""
        return self.state.round >= self.context.settings.rounds

    def close(self) -> None:
        """Give back what the engine holds."""
        self.context.engine.close()

    def change_stage(self) -> None:
        """Enter the next stage where the present one has ended."""
        stages = self.context.stages
        while stages.due(self.state.stage, self.state.round, self.history):
            stage = self.state.stage
            if stages.carries(stage):
                self.state = self.state._replace(stage=stage + 1)
                continue
            self._start_afresh(stage + 1)

    def _start_afresh(self, stage: int) -> None:
        """Begin a stage with the present model: the server's and the client states are new."""
        panel, x = self.context.panel, self.context.model(self.state)
        server = self.context.stages.parts[stage].method.init(x)
        notes, probes = panel.only_notes(self.store), panel.renew(self.state.probes)
        self.state = self.state._replace(stage=stage, x0=x, server=server, probes=probes)
        self.store.clear()
        self.store.commit(notes)


def open_session(
    settings: RunSettings, execution: Execution | None = None, make: EngineMaker | None = None
) -> Session:
    """Check everything and return a session before its first round; `session.rounds()` plays it.

    For those who want to see the state between rounds; `train` is the easy way. Close it after. `make` gives
    an engine whose clients' data lies elsewhere: who has the data checks it.
    """
    execution = execution or Execution()
    oracle = Oracle(settings.task, device_of(execution.device))
    if make is None:
        check(settings, oracle)
        check_leftovers(settings, oracle)
    check_rates(settings, oracle)
    check_optimizer(settings, oracle)
    check_momentum(settings, oracle)
    check_privacy(settings, oracle)
    warn_of_growth(settings)
    warn_of_dragging(settings, oracle)
    panel = assemble(settings, oracle)
    if make is None:
        choice = settle(settings, execution, oracle)
        engine = make_engine(settings, execution, oracle, choice)
    else:
        engine = make(settings, oracle)
        choice = Choice(engine.name, engine.threads)
    stages, population = settings.played_stages, Population.of(settings)
    context = RunContext(settings, stages, population, engine, oracle, panel, choice, {})
    return Session(context, first_state(context))


def first_state(context: RunContext) -> RunState:
    """Return the state before the first round."""
    x, buffers = context.oracle.point.clone(), context.oracle.buffers.clone()
    probes = context.panel.begin(x, context.oracle.layout)
    return RunState(0, 0, x, context.stages.parts[0].method.init(x), buffers, probes)
