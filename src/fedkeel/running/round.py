"""One round, forward: prepare the request, let the engine run it, aggregate, evaluate, describe."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from fedkeel.algorithm import Algorithm, model_of
from fedkeel.columns import VALIDATION
from fedkeel.data.samples import as_samples
from fedkeel.engines.contract import Choice, CohortResult, Engine, RoundRequest
from fedkeel.errors import Diverged
from fedkeel.methods.stages import Stages
from fedkeel.oracle import Oracle
from fedkeel.probes.base import Columns, RoundView
from fedkeel.records import ClientMemory, Record, RecordList, nbytes
from fedkeel.running.panel import ProbePanel, run_view, worth_keeping
from fedkeel.running.population import Population
from fedkeel.running.store import Store
from fedkeel.settings import RunSettings
from fedkeel.vector import Vector, norm

Row = dict[str, Any]


class RunState(NamedTuple):
    """All that the next round depends on, but for the clients' memories: what a checkpoint holds."""

    round: int
    stage: int
    x0: Vector
    server: Record
    buffers: Vector
    probes: RecordList = RecordList()


class RunContext(NamedTuple):
    """Everything that is fixed for a run; `stages` have their boundaries in rounds."""

    settings: RunSettings
    stages: Stages
    population: Population
    engine: Engine
    oracle: Oracle
    panel: ProbePanel
    choice: Choice

    def algorithm(self, state: RunState) -> Algorithm:
        """Return the method of the present stage."""
        return self.stages.parts[state.stage].method

    def model(self, state: RunState) -> Vector:
        """Return the model that is trained."""
        return model_of(self.algorithm(state), state.server)


class FinishedRound(NamedTuple):
    """A round that was run and aggregated: the states around it, what was asked, and what came back."""

    before: RunState
    request: RoundRequest
    result: CohortResult
    after: RunState


class RoundOutcome(NamedTuple):
    """What a round changes: state and memories; its row; and the seconds that were not training."""

    state: RunState
    memories: dict[int, ClientMemory]
    row: Row
    seconds: dict[str, float]


def play_round(context: RunContext, state: RunState, store: Store) -> RoundOutcome:
    """Play one round."""
    request = prepare(context, state)
    result = context.engine.run(request, memories_of(context, state, store, request))
    finished = FinishedRound(state, request, result, aggregate(context, state, request, result))
    trained = time.perf_counter()
    scores = evaluate(context, finished.after)
    evaluated = time.perf_counter()
    row = describe(context, finished, scores)
    columns, probes = report(context, finished, row)
    seconds = {"evaluation": evaluated - trained, "probes": time.perf_counter() - evaluated}
    after = finished.after._replace(probes=probes)
    return RoundOutcome(after, kept_memories(finished), row | columns, seconds)


def prepare(context: RunContext, state: RunState) -> RoundRequest:
    """Draw a round's cohort and return what it is sent."""
    settings, algorithm = context.settings, context.algorithm(state)
    clients = context.population.draw(state.round)
    return RoundRequest(
        algorithm,
        state.round,
        settings.work.rate(state.round, settings.rounds),
        algorithm.broadcast(state.server),
        state.buffers,
        clients,
        context.population.weigh(clients),
        context.panel.at_clients(state.probes, state.round, settings.rounds),
        stage=state.stage,
    )


def memories_of(
    context: RunContext, state: RunState, store: Store, request: RoundRequest
) -> list[ClientMemory]:
    """Return what the cohort's clients work with; those that never took part start with fresh memories."""
    return [
        context.panel.memory(store.get(client), state.probes, lambda: request.algorithm.enlist(state.x0))
        for client in request.clients
    ]


def aggregate(context: RunContext, state: RunState, request: RoundRequest, result: CohortResult) -> RunState:
    """Return the state after a round, the probes' still as they were."""
    cohort = context.population.cohort(state.round, context.settings.rounds, list(request.clients))
    server = request.algorithm.aggregate(state.server, result.upload.up, cohort)
    return state._replace(round=state.round + 1, server=server, buffers=result.upload.buffers)


def evaluate(context: RunContext, state: RunState) -> Row:
    """Return loss and metrics of every model the method reports; None in rounds without evaluation."""
    settings = context.settings
    names = ["loss", *settings.task.metrics, "accuracy"]
    row: Row = {f"{prefix}{name}": None for prefix in settings.evaluation_prefixes for name in names}
    if state.round % settings.eval_every and state.round != settings.rounds:
        return row
    models = context.algorithm(state).models(state.server)
    for prefix, data in settings.evaluation_sets():
        found = context.engine.evaluate(list(models.values()), state.buffers, data)
        for index, (name, scores) in enumerate(zip(models, found, strict=True)):
            of_model = "" if index == 0 else f"/{name}"
            row |= {f"{prefix}{key}{of_model}": value for key, value in scores.items()}
    return row


def describe(context: RunContext, finished: FinishedRound, scores: Row) -> Row:
    """Return a round's row of the history; raise `Diverged` where the model or its loss is no number."""
    request, result, round = finished.request, finished.result, finished.before.round
    row: Row = {
        "round": round,
        "stage": finished.before.stage,
        "cohort": list(request.clients),
        **scores,
        "train_loss": result.train_loss,
        "norm": float(norm(context.model(finished.after))),
        "lr": request.lr,
        "gradients": result.gradients,
        "bytes_down": (nbytes(request.down) + nbytes(request.buffers)) * len(request.clients),
        "bytes_up": result.bytes_up,
        **result.remarks,
    }
    for name, what in (("norm", "norm of the model"), ("loss", "loss"), (f"{VALIDATION}loss", "loss")):
        if row.get(name) is not None and not math.isfinite(row[name]):
            raise Diverged(
                f"round {round}: the {what} is {row[name]} after aggregation; lower the learning rates",
                round=round,
            )
    return row


def report(context: RunContext, finished: FinishedRound, row: Row) -> tuple[Columns, RecordList]:
    """Show a round to the probes; return their columns and next states."""
    before, request, result, after = finished
    view = RoundView(
        run=run_view(context.settings, context.oracle),
        round=before.round,
        algorithm=request.algorithm,
        clients=request.clients,
        down=request.down,
        before=before.server,
        after=after.server,
        measures=result.measures,
        memories=[client.memory.method for client in result.clients],
        passes=result.passes,
        row=row,
        evaluate=lambda vector, data: context.engine.evaluate([vector], after.buffers, as_samples(data))[0],
    )
    return context.panel.report(before.probes, view)


def kept_memories(finished: FinishedRound) -> dict[int, ClientMemory]:
    """Return the cohort's new memories; a client that keeps nothing is not in the store."""
    results = zip(finished.request.clients, finished.result.clients, strict=True)
    return {client: result.memory for client, result in results if worth_keeping(result.memory)}
