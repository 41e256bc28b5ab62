"""A client's round as a pure function: what every engine runs, wherever it runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from fedkeel.algorithm import Facts, Plan, Walk
from fedkeel.attacks import AttackView
from fedkeel.data.federation import Batch
from fedkeel.engines.contract import ClientOutcome, ClientResult, RoundRequest, Upload
from fedkeel.engines.outcome import check_deadline, client_outcome, watched
from fedkeel.errors import Diverged
from fedkeel.evaluation import needing_all
from fedkeel.layout import worst_layer
from fedkeel.oracle import Oracle
from fedkeel.probes.base import ClientView
from fedkeel.records import ClientMemory, nbytes, without_views_of
from fedkeel.settings import RunSettings
from fedkeel.streams import Stream
from fedkeel.trees import count, split
from fedkeel.vector import Vector, finite
from fedkeel.walk import Pace, WalkResult, take

_FULL_BATCH = 1000


def client_stream(seed: int, round: int, client: int) -> Stream:
    """Return the randomness of a client in a round."""
    return Stream(seed).branch("client", round, client)


def minibatches(settings: RunSettings, round: int, client: int) -> list[np.ndarray]:
    """Return the minibatches of a client in a round, as indices into its own samples."""
    samples = len(settings.federation.rows(client))
    stream = client_stream(settings.seed, round, client).branch("order")
    return settings.work.order(samples, stream.numpy())


def facts_of(
    settings: RunSettings, request: RoundRequest, clients: int | Sequence[int], like: Vector
) -> Facts:
    """Return what a method may know of a client, or of several."""
    federation = settings.federation
    mean = federation.mean_size if request.mean_samples is None else request.mean_samples
    if isinstance(clients, int):
        return Facts.of(federation.size(clients), mean, like)
    return Facts.of([federation.size(client) for client in clients], mean, like)


def pace_of(settings: RunSettings, request: RoundRequest, steps: int) -> Pace:
    """Return the pace of a client that takes that many steps in a round."""
    rates = settings.work.rates(request.round, settings.rounds, steps)
    if rates is not None:
        rates = tuple(rate * request.rate_factor for rate in rates)
    return Pace.of(settings.work, request.lr, rates)


def attempt_client(
    settings: RunSettings, oracle: Oracle, request: RoundRequest, client: int, memory: ClientMemory
) -> ClientOutcome:
    """Let one client do its round, and check what it gives: see `client_outcome`."""
    return client_outcome(
        settings, request, client, lambda: run_client(settings, oracle, request, client, memory)
    )


def run_client(
    settings: RunSettings, oracle: Oracle, request: RoundRequest, client: int, memory: ClientMemory
) -> ClientResult:
    """Let one client do its round: plan, walk, finish, and measure what probes asked for."""
    started = time.monotonic()
    algorithm, probes = request.algorithm, request.probes
    facts = facts_of(settings, request, client, oracle.point)
    plan = algorithm.plan(request.down, memory.method, facts)
    trace = None if probes is None else probes.trace(request.down.x)
    before = oracle.passes
    walked = walk_client(settings, oracle, request, client, plan, trace=trace, started=started)
    check_deadline(settings, started)
    if not (finite(walked.loss) and finite(walked.walk.end) and finite(oracle.buffers)):
        raise diverged(settings, oracle, request, client, memory)
    up, kept = (
        without_views_of(oracle.point, part)
        for part in algorithm.finish(walked.walk, request.down, memory.method, facts)
    )
    upload = Upload(up, oracle.buffers.clone())
    result = ClientResult(
        upload,
        memory._replace(method=kept),
        float(walked.loss),
        walked.gradients,
        nbytes(upload),
        oracle.passes.since(before),
    )
    if probes is not None:
        path2 = None if trace is None else trace.total
        result = measured(
            settings, oracle, request, client, result, before=memory, walk=walked.walk, path2=path2
        )
    return attacked(settings, request, client, result)


def attacked(settings: RunSettings, request: RoundRequest, client: int, result: ClientResult) -> ClientResult:
    """Return what a client gives: a hostile one sends something else than its upload, where that is attacked.

    It comes last, so the client's memory and what probes measured are those of the round that it did.
    """
    attack, upload = settings.attack, result.upload
    if attack is None or client not in settings.hostile:
        return result
    view = AttackView(request.round, client, request.down.x, attack.stream(settings.seed))
    return result._replace(upload=attack.send(upload, view))


def walk_client(
    settings: RunSettings,
    oracle: Oracle,
    request: RoundRequest,
    client: int,
    plan: Plan,
    *,
    trace: Callable[[Vector], None] | None = None,
    started: float | None = None,
) -> WalkResult:
    """Walk as planned on the client's own minibatches; `trace` is shown the point before every step.

    A walk of a round began when it `started`, and may be cut short by a deadline or a simulated crash.
    """
    stream = client_stream(settings.seed, request.round, client)
    order = minibatches(settings, request.round, client)
    batches: Iterable[Batch] = settings.training_data.batches(client, order, stream)
    if started is not None and (settings.client_seconds or settings.faults):
        batches = watched(
            settings, batches, round=request.round, client=client, steps=len(order), started=started
        )
    oracle.load_buffers(request.buffers)
    with seeded(stream.branch("dropout").integer(), oracle.device):
        return take(
            oracle,
            plan,
            batches,
            pace_of(settings, request, len(order)),
            lambda at: full_gradient(settings, oracle, client, at),
            trace=trace,
        )


def measured(
    settings: RunSettings,
    oracle: Oracle,
    request: RoundRequest,
    client: int,
    result: ClientResult,
    *,
    before: ClientMemory,
    walk: Walk,
    path2: Vector | None,
) -> ClientResult:
    """Show a client's round to the probes that asked; return its result with their measures and notes."""
    assert request.probes is not None
    assert result.upload is not None
    view = ClientView(
        client,
        request.round,
        request.down.x,
        walk,
        request.down,
        before.method,
        result.memory.method,
        result.upload.up,
        path2,
        gradient=lambda at: _probed_gradient(settings, oracle, request.round, client, at),
    )
    measures, notes = (
        without_views_of(oracle.point, part) for part in request.probes.measure(view, before.notes)
    )
    return result._replace(measures=measures, memory=result.memory._replace(notes=notes))


def _probed_gradient(settings: RunSettings, oracle: Oracle, round: int, client: int, at: Vector) -> Vector:
    """Return a full gradient for a probe: dropout is keyed by the round and the client alone."""
    stream = client_stream(settings.seed, round, client)
    with seeded(stream.branch("probe").integer(), oracle.device):
        return full_gradient(settings, oracle, client, at)


def diverged(
    settings: RunSettings, oracle: Oracle, request: RoundRequest, client: int, memory: ClientMemory
) -> Diverged:
    """Return the error that names the client whose walk left the numbers, and the layer that did first."""
    layer = _first_layer(settings, oracle, request, client, memory)
    where = "" if layer is None else f", first in {layer}"
    return Diverged(
        f"round {request.round}, client {client}: the loss or the model turned NaN or infinite{where}; "
        f"lower the learning rate ({request.lr:g}) or set Work(clip=…)",
        round=request.round,
        client=client,
        layer=layer,
    )


def _first_layer(
    settings: RunSettings, oracle: Oracle, request: RoundRequest, client: int, memory: ClientMemory
) -> str | None:
    """Walk again and return the layer that left the numbers first: by the next step all of them have."""
    points: list[Vector] = []  # the last one that is finite, and the first one that is not

    def trace(y: Vector) -> None:
        if not points or finite(points[-1]):
            points[:] = [*points[-1:], y.clone()]

    try:
        walk_client(
            settings,
            oracle,
            request,
            client,
            request.algorithm.plan(
                request.down, memory.method, facts_of(settings, request, client, oracle.point)
            ),
            trace=trace,
        )
        trace(oracle.point)
    except Exception:  # it does not even get as far
        return None
    return worst_layer(oracle.layout, points[-1], points[0])


def full_gradient(settings: RunSettings, oracle: Oracle, client: int, at: Vector) -> Vector:
    """Return the gradient at a vector over all of a client's samples, as stored.

    It is put together from batches where the loss is a mean over samples; any other loss sees all at once.
    """
    federation = settings.training_data
    x, y = federation.samples(client)
    size = count(y) if needing_all({"loss": settings.task.loss}) else _FULL_BATCH

    def batches() -> Iterator[Batch]:
        for part, target in zip(split(x, size), split(y, size), strict=True):
            yield federation.prepare(part), target

    return oracle.full_gradient(at, batches(), count(y))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Give torch's own generators (dropout) a keyed seed, and set the global state back afterwards."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.get_device_module(device).manual_seed(seed)
        yield
