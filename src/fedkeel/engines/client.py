"""A client's round as a pure function of its arguments: what every engine runs, wherever it runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import numpy as np
import torch

from fedkeel.attacks import AttackView
from fedkeel.common.errors import ConfigError, Diverged
from fedkeel.core.algorithm import Facts, Plan, Walk
from fedkeel.core.evaluation import needing_all, returns_pair
from fedkeel.core.losses import known_loss
from fedkeel.core.oracle import Oracle
from fedkeel.core.typed import TokenLoss
from fedkeel.core.walk import StepSettings, WalkResult, run_local_steps
from fedkeel.core.weighted import holds_padding
from fedkeel.data.federation import Batch
from fedkeel.data.samples import InMemory
from fedkeel.engines.contract import ClientOutcome, ClientResult, RoundRequest, Upload
from fedkeel.engines.outcome import (
    SimulatedFailure,
    UnusableClient,
    check_upload,
    damaged,
    failure_of,
    past_deadline,
    raise_named,
)
from fedkeel.probes.base import ClientView
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.layout import worst_layer
from fedkeel.tensors.records import ClientMemory, nbytes, without_views_of
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.trees import call, count, part, split
from fedkeel.tensors.vector import Vector, finite

_FULL_BATCH = 1000

ClientRound = Callable[[RoundRequest, int, ClientMemory], ClientResult]


class ClientRunner:
    """Runs clients of a run on one oracle; nothing is kept from one client or round to the next."""

    def __init__(self, settings: RunSettings, oracle: Oracle) -> None:
        self.settings, self.oracle = settings, oracle

    def outcome(
        self, request: RoundRequest, client: int, memory: ClientMemory, run: ClientRound | None = None
    ) -> ClientOutcome:
        """Run a client's round and check its upload; a failure is a value, or raised where the run stops.

        `run` gives the client's result where this runner does not compute it itself.
        """
        faults = self.settings.faults
        fault = None if faults is None else faults.of(request.round, client)
        try:
            if fault in {"drop", "straggle"}:
                raise SimulatedFailure(fault)
            result = (run or self.run)(request, client, memory)
            if fault == "crash":
                raise SimulatedFailure(fault)
            if faults is not None and fault == "corrupt":
                result = damaged(self.settings, faults, request, client, result)
            check_upload(self.settings, request, result)
        except ConfigError:  # of no client
            raise
        except Exception as problem:
            if self.settings.skips_failed:
                return failure_of(client, problem)
            raise_named(request, client, problem)
        return result

    def run(self, request: RoundRequest, client: int, memory: ClientMemory) -> ClientResult:
        """Let one client do its round: plan, walk, finish, and measure what probes asked for."""
        started = time.monotonic()
        oracle, algorithm, probes = self.oracle, request.algorithm, request.probes
        facts = self.facts(request, client)
        plan = algorithm.plan(request.down, memory.method, facts)
        trace = None if probes is None else probes.trace(request.down.x)
        before = oracle.passes
        walked = self.walk(request, client, plan, trace=trace, started=started)
        self._check_deadline(started)
        if not (finite(walked.loss) and finite(walked.walk.end) and finite(oracle.buffers)):
            raise self.diverged(request, client, memory)
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
            result = self.measured(request, client, result, before=memory, walk=walked.walk, path2=path2)
        return self.attacked(request, client, result)

    def walk(
        self,
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
        stream, order = self.stream(request.round, client), self.minibatches(request.round, client)
        batches: Iterable[Batch] = self.settings.training_data.batches(client, order, stream)
        if started is not None and (self.settings.client_seconds or self.settings.faults):
            batches = self._interruptible(batches, request.round, client, len(order), started)
        self.oracle.load_buffers(request.buffers)
        with seeded(stream.branch("dropout").integer(), self.oracle.device):
            return run_local_steps(
                self.oracle,
                plan,
                batches,
                self.step_settings(request, len(order)),
                partial(self.full_gradient, client),
                trace=trace,
            )

    def stream(self, round: int, client: int) -> Stream:
        """Return the randomness of a client in a round."""
        return Stream(self.settings.seed).branch("client", round, client)

    def minibatches(self, round: int, client: int) -> list[np.ndarray]:
        """Return the minibatches of a client in a round, as indices into its own samples."""
        samples = len(self.settings.federation.rows(client))
        return self.settings.work.order(samples, self.stream(round, client).branch("order").numpy())

    def facts(self, request: RoundRequest, clients: int | Sequence[int]) -> Facts:
        """Return what a method may know of a client, or of several."""
        federation, like = self.settings.federation, self.oracle.point
        mean = federation.mean_size if request.mean_samples is None else request.mean_samples
        if isinstance(clients, int):
            return Facts.of(federation.size(clients), mean, like)
        return Facts.of([federation.size(client) for client in clients], mean, like)

    def step_settings(self, request: RoundRequest, steps: int) -> StepSettings:
        """Return the settings of the local steps of a client that takes that many in a round."""
        rates = self.settings.work.rates(request.round, self.settings.rounds, steps)
        if rates is not None:
            rates = tuple(rate * request.rate_factor for rate in rates)
        return StepSettings.of(self.settings.work, request.lr, rates)

    def full_gradient(self, client: int, at: Vector) -> Vector:
        """Return the gradient at a vector over all of a client's samples, as stored.

        It is put together from batches where the loss is a mean over samples; any other loss sees all at
        once.
        """
        federation = self.settings.training_data
        x, y = federation.samples(client)
        size = count(y) if self._sees_all else _FULL_BATCH

        def batches() -> Iterator[Batch]:
            for inputs, target in zip(split(x, size), split(y, size), strict=True):
                yield federation.prepare(inputs), target

        return self.oracle.full_gradient(at, batches(), count(y))

    @cached_property
    def _sees_all(self) -> bool:
        """Whether the loss is no mean over samples, so that one of parts cannot be put together."""
        loss = self.settings.task.loss
        return bool(needing_all({"loss": loss})) or weighs_targets(self.settings, self.oracle)

    def measured(
        self,
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
            gradient=lambda at: self._probed_gradient(request.round, client, at),
        )
        measures, notes = (
            without_views_of(self.oracle.point, part) for part in request.probes.measure(view, before.notes)
        )
        return result._replace(measures=measures, memory=result.memory._replace(notes=notes))

    def attacked(self, request: RoundRequest, client: int, result: ClientResult) -> ClientResult:
        """Return the result with what a hostile client sends in place of its upload, where that is attacked.

        It comes last, so the client state and what probes measured are those of the round that it did.
        """
        attack, upload = self.settings.attack, result.upload
        if attack is None or client not in self.settings.hostile:
            return result
        view = AttackView(request.round, client, request.down.x, attack.stream(self.settings.seed))
        return result._replace(upload=attack.send(upload, view))

    def diverged(self, request: RoundRequest, client: int, memory: ClientMemory) -> Diverged:
        """Return the error that names the client whose numbers are no longer finite, and the first layer."""
        layer = self._first_layer(request, client, memory)
        where = "" if layer is None else f", first in {layer}"
        return Diverged(
            f"round {request.round}, client {client}: the loss or the model turned NaN or infinite{where}; "
            f"lower the learning rate ({request.lr:g}) or set Work(clip=…)",
            round=request.round,
            client=client,
            layer=layer,
        )

    def _first_layer(self, request: RoundRequest, client: int, memory: ClientMemory) -> str | None:
        """Walk again and return the layer that diverged first: by the next step all of them have."""
        points: list[Vector] = []  # the last one that is finite, and the first one that is not

        def trace(y: Vector) -> None:
            if not points or finite(points[-1]):
                points[:] = [*points[-1:], y.clone()]

        try:
            facts = self.facts(request, client)
            self.walk(
                request, client, request.algorithm.plan(request.down, memory.method, facts), trace=trace
            )
            trace(self.oracle.point)
        except Exception:  # it does not even get as far
            return None
        return worst_layer(self.oracle.layout, points[-1], points[0])

    def _probed_gradient(self, round: int, client: int, at: Vector) -> Vector:
        """Return a full gradient for a probe: dropout is keyed by the round and the client alone."""
        with seeded(self.stream(round, client).branch("probe").integer(), self.oracle.device):
            return self.full_gradient(client, at)

    def _interruptible(
        self, batches: Iterable[Batch], round: int, client: int, steps: int, started: float
    ) -> Iterator[Batch]:
        """Yield a client's minibatches until its deadline, or its simulated crash."""
        faults = self.settings.faults
        crash = faults is not None and faults.of(round, client) == "crash"
        for index, batch in enumerate(batches):
            if crash and index >= steps // 2:
                raise SimulatedFailure("crash")
            yield batch
            self._check_deadline(started)

    def _check_deadline(self, started: float) -> None:
        """Raise where a client has taken longer than it may."""
        limit = self.settings.client_seconds
        if limit is not None and time.monotonic() - started > limit:
            raise UnusableClient(past_deadline(limit))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Give torch's own generators (dropout) a keyed seed, and set the global state back afterwards."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.get_device_module(device).manual_seed(seed)
        yield


def weighs_targets(settings: RunSettings, oracle: Oracle) -> bool:
    """Tell whether the loss is a mean over something else than samples: over real tokens, or weighted."""
    task, federation = settings.task, settings.federation
    if holds_padding(task.loss, federation.pool.sample().y):
        return True
    known, lazy = known_loss(task.loss), not isinstance(federation.pool, InMemory)
    if known is not None:  # of samples that are loaded when needed only some were looked at
        return known.names_padding and lazy
    if isinstance(task.loss, TokenLoss):
        return lazy
    x, y = federation.samples(0)
    inputs, target = oracle.to_device((federation.prepare(part(x, 0, 2)), part(y, 0, 2)))
    with torch.no_grad():
        return returns_pair(task.loss, call(oracle.eval_copy, inputs), target)
