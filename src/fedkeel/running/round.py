"""One round, forward: prepare the request, let the engine run it, aggregate, evaluate, describe."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from fedkeel.common.columns import ATTACK_SUCCESS, LOST_WORKERS, SKIPPED, VALIDATION
from fedkeel.common.errors import Diverged, TooFewClients
from fedkeel.core.algorithm import Algorithm, model_of
from fedkeel.core.oracle import Oracle
from fedkeel.data.samples import as_samples
from fedkeel.engines.contract import Choice, CohortResult, Engine, RoundRequest, UploadShapes
from fedkeel.engines.outcome import upload_shapes
from fedkeel.methods.private import Private
from fedkeel.methods.stages import Stages
from fedkeel.probes.base import Columns, RoundView
from fedkeel.running.panel import ProbePanel, run_view, worth_keeping
from fedkeel.running.population import Population
from fedkeel.running.store import Store
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.layout import worst_layer
from fedkeel.tensors.records import ClientMemory, Record, RecordList, nbytes
from fedkeel.tensors.vector import Vector, norm

Row = dict[str, Any]

_SHOWN_FAILURES = 5


class RunState(NamedTuple):
    """All that the next round depends on, but for the client states: what a checkpoint holds."""

    round: int
    stage: int
    x0: Vector
    server: Record
    buffers: Vector
    probes: RecordList = RecordList()


class RunContext(NamedTuple):
    """Everything that is fixed for a run; `stages` have their boundaries in rounds.

    `shapes` are those of each stage's uploads, filled in when a stage has its first round.
    """

    settings: RunSettings
    stages: Stages
    population: Population
    engine: Engine
    oracle: Oracle
    panel: ProbePanel
    choice: Choice
    shapes: dict[int, UploadShapes | None]

    def algorithm(self, state: RunState) -> Algorithm:
        """Return the method of the present stage."""
        return self.stages.parts[state.stage].method

    def model(self, state: RunState) -> Vector:
        """Return the model that is trained."""
        return model_of(self.algorithm(state), state.server)


class RoundLimits(NamedTuple):
    """A factor on a round's local rate, and the norm and training loss beyond which the round diverged."""

    rate: float = 1.0
    norm: float = math.inf
    train_loss: float = math.inf


NO_LIMITS = RoundLimits()


class FinishedRound(NamedTuple):
    """A round that was run and aggregated: the states around it, what was asked, and what came back."""

    before: RunState
    request: RoundRequest
    result: CohortResult
    after: RunState

    @property
    def accepted(self) -> list[int]:
        """Return the clients whose results count, in drawn order."""
        return accepted_clients(self.request, self.result)


class RoundOutcome(NamedTuple):
    """What a round changes: state and memories; its row; and the seconds that were not training."""

    state: RunState
    memories: dict[int, ClientMemory]
    row: Row
    seconds: dict[str, float]


def play_round(
    context: RunContext, state: RunState, store: Store, limits: RoundLimits = NO_LIMITS
) -> RoundOutcome:
    """Play one round."""
    request = prepare(context, state, limits.rate)
    result = context.engine.run(request, memories_of(context, state, store, request))
    check_quorum(context, request, result)
    finished = FinishedRound(state, request, result, aggregate(context, state, request, result))
    trained = time.perf_counter()
    scores = evaluate(context, finished.after)
    evaluated = time.perf_counter()
    row = describe(context, finished, scores)
    check_numbers(context, finished, row, limits)
    columns, probes = report(context, finished, row)
    seconds = {"evaluation": evaluated - trained, "probes": time.perf_counter() - evaluated}
    after = finished.after._replace(probes=probes)
    return RoundOutcome(after, kept_memories(context, finished), row | columns, seconds)


def prepare(context: RunContext, state: RunState, rate: float = 1.0) -> RoundRequest:
    """Draw a round's cohort and return what it is sent; `rate` is a factor on the local learning rate."""
    settings, algorithm = context.settings, context.algorithm(state)
    clients = context.population.draw(state.round)
    return RoundRequest(
        algorithm,
        state.round,
        first_rate(settings, state.round) * rate,
        algorithm.broadcast(state.server),
        state.buffers,
        clients,
        context.population.weigh(clients),
        context.panel.at_clients(state.probes, state.round, settings.rounds),
        _shapes(context, state) if settings.skips_failed else None,
        state.stage,
        rate_factor=rate,
    )


def first_rate(settings: RunSettings, round: int) -> float:
    """Return the local rate of a round's first step; it may depend on the steps of the largest client."""
    work = settings.work
    steps = work.count(int(settings.federation.sizes.max())) if work.varies_within_round else 1
    return work.rate(round, settings.rounds, 0, steps)


def _shapes(context: RunContext, state: RunState) -> UploadShapes | None:
    """Return the shapes that uploads of the present stage must have."""
    if state.stage not in context.shapes:
        algorithm = context.algorithm(state)
        down = algorithm.broadcast(state.server)
        context.shapes[state.stage] = upload_shapes(algorithm, down, state.x0)
    return context.shapes[state.stage]


def accepted_clients(request: RoundRequest, result: CohortResult) -> list[int]:
    """Return the clients of a round whose results count, in drawn order."""
    skipped = {failure.client for failure in result.skipped}
    return [client for client in request.clients if client not in skipped]


def check_quorum(context: RunContext, request: RoundRequest, result: CohortResult) -> None:
    """Raise where too few of a round's clients answered; `Diverged` where that is all that is wrong."""
    settings, drawn = context.settings, len(request.clients)
    answered, needed = len(result.clients), settings.quorum(drawn)
    if answered >= needed:
        return
    diverged = [failure.diverged for failure in result.skipped]
    if diverged[0] is not None and None not in diverged:
        raise diverged[0]
    told = "; ".join(f"client {one.client}: {one.reason}" for one in result.skipped[:_SHOWN_FAILURES])
    more = len(result.skipped) - _SHOWN_FAILURES
    raise TooFewClients(
        f"round {request.round}: {answered} of {drawn} clients answered, and min_clients = "
        f"{settings.min_clients} asks for {needed} ({told}{f'; and {more} more' if more > 0 else ''})"
    )


def memories_of(
    context: RunContext, state: RunState, store: Store, request: RoundRequest
) -> list[ClientMemory]:
    """Return what the cohort's clients work with; those that never took part start with fresh memories."""
    return [
        context.panel.memory(store.get(client), state.probes, lambda: request.algorithm.init_client(state.x0))
        for client in request.clients
    ]


def aggregate(context: RunContext, state: RunState, request: RoundRequest, result: CohortResult) -> RunState:
    """Return the state after a round, the probes' still as they were."""
    assert result.upload is not None
    accepted = accepted_clients(request, result)
    cohort = context.population.cohort(state.round, context.settings.rounds, accepted)
    server = request.algorithm.aggregate(state.server, result.upload.up, cohort)
    return state._replace(round=state.round + 1, server=server, buffers=result.upload.buffers)


def evaluate(context: RunContext, state: RunState) -> Row:
    """Return loss and metrics of every model the method reports; None in rounds without evaluation."""
    settings = context.settings
    names = ["loss", *settings.task.metrics, "accuracy"]
    row: Row = {f"{prefix}{name}": None for prefix in settings.evaluation_prefixes for name in names}
    if settings.attack_samples is not None:
        row[ATTACK_SUCCESS] = None
    if state.round % settings.eval_every and state.round != settings.rounds:
        return row
    models = context.algorithm(state).models(state.server)
    for prefix, data in settings.evaluation_sets():
        found = context.engine.evaluate(list(models.values()), state.buffers, data)
        for index, (name, scores) in enumerate(zip(models, found, strict=True)):
            of_model = "" if index == 0 else f"/{name}"
            row |= {f"{prefix}{key}{of_model}": value for key, value in scores.items()}
    if settings.attack_samples is not None:
        model = next(iter(models.values()))
        (scores,) = context.engine.evaluate([model], state.buffers, settings.attack_samples)
        row[ATTACK_SUCCESS] = scores["accuracy"]
    return row


def describe(context: RunContext, finished: FinishedRound, scores: Row) -> Row:
    """Return a round's row of the history."""
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
    if context.settings.attack is not None:
        row["hostile"] = sum(client in context.settings.hostile for client in request.clients)
    if result.skipped:
        row[SKIPPED] = [{"client": one.client, "reason": one.reason} for one in result.skipped]
    if result.lost_workers:
        row[LOST_WORKERS] = list(result.lost_workers)
    return row


def check_numbers(context: RunContext, finished: FinishedRound, row: Row, limits: RoundLimits) -> None:
    """Raise `Diverged` where the model or a loss is no number, or larger than the limits of the round."""
    checks = [
        ("norm", "norm of the model", limits.norm),
        ("train_loss", "training loss", limits.train_loss),
        ("loss", "loss", math.inf),
        (f"{VALIDATION}loss", "loss", math.inf),
    ]
    for name, what, limit in checks:
        value = row.get(name)
        if value is None or (math.isfinite(value) and value <= limit):
            continue
        layer = worst_layer(context.oracle.layout, context.model(finished.after))
        results = zip(finished.accepted, finished.result.clients, strict=True)
        client = max(results, key=lambda one: one[1].loss)[0]
        beyond = f", beyond {limit:.3g}," if math.isfinite(value) else ""
        raise Diverged(
            f"round {row['round']}: the {what} is {value:g}{beyond} after aggregation, most in {layer}; the "
            f"largest training loss is that of client {client}; lower the learning rates",
            round=row["round"],
            client=client,
            layer=layer,
        )


def report(context: RunContext, finished: FinishedRound, row: Row) -> tuple[Columns, RecordList]:
    """Show a round to the probes; return their columns and next states."""
    before, request, result, after = finished
    view = RoundView(
        run=run_view(context.settings, context.oracle),
        round=before.round,
        method=request.algorithm,
        clients=finished.accepted,
        down=request.down,
        before=before.server,
        after=after.server,
        measures=result.measures,
        client_states=[client.memory.method for client in result.clients],
        passes=result.passes,
        row=row,
        evaluate=lambda vector, data: context.engine.evaluate([vector], after.buffers, as_samples(data))[0],
    )
    return context.panel.report(before.probes, view)


def kept_memories(context: RunContext, finished: FinishedRound) -> dict[int, ClientMemory]:
    """Return the accepted clients' new memories; a client that keeps nothing is not in the store.

    Where private updates drew nobody, the clients that were drawn again have not taken part: that they did
    would tell later that all others were not drawn.
    """
    private = isinstance(finished.request.algorithm, Private)
    if private and context.population.redrawn(finished.before.round):
        return {}
    results = zip(finished.accepted, finished.result.clients, strict=True)
    return {client: result.memory for client, result in results if worth_keeping(result.memory)}
