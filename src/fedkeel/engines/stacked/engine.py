"""The stacked engine: all clients of a cohort in one computation over (clients, d).

The Python cost of a step is paid once for the cohort instead of once a client. The step is recorded once for
a model, a shape and a kind of step, and replayed for every method, round and run of that task; where that
pays it is compiled. Results are the serial engine's up to rounding, because products over many clients are
summed in another order: relative to the model 1e-10 in float64, and 1e-5 in float32 (an MLP on digits: 4e-8
after a round, at most 5e-6 after forty). Buffers that training moves (BatchNorm's statistics) are walked
beside the model, each client's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedkeel.algorithm import Plan, Walk
from fedkeel.data.federation import Batch
from fedkeel.engines.client import diverged, full_gradient, measured
from fedkeel.engines.contract import ClientResult, CohortResult, RoundRequest, Upload
from fedkeel.engines.reduction import Reduction
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import fits_channels_last, numbers_given, sensible_threads
from fedkeel.engines.stacked.capture import Replay, capture
from fedkeel.engines.stacked.ragged import Form, Group
from fedkeel.engines.stacked.span import Span, SpanStep, linear_walk
from fedkeel.engines.stacked.stackable import stackable_net
from fedkeel.engines.stacked.step import Route, State, Step, fit, route
from fedkeel.oracle import Oracle, Passes
from fedkeel.probes.client import WalkTraces
from fedkeel.records import ClientMemory, Record, leaves, nbytes, rebuild, stack, transform
from fedkeel.settings import RunSettings
from fedkeel.task import Task
from fedkeel.vector import Vector
from fedkeel.walk import Pace

_CACHE = 2**25  # bytes of a group that is large enough: more clients at once fall out of the caches
_MEMORY = 2**30  # bytes that a group may take at most
_FEW = 8  # clients a group has where memory allows: fewer do not pay for a step's Python
_SPARE = 8  # slots of groups of varying size come in multiples of this
_VECTORS = 12  # vectors of length d alive a client: plan, state, gradients and what lies between


class Recorded(NamedTuple):
    """A recorded step, and how many forward passes it makes."""

    replay: Replay
    forwards: int


class Walked(NamedTuple):
    """Where a group's steps have led, the summed losses (clients,), and the passes of a step."""

    end: State
    losses: Tensor
    forwards: int


class GroupWalk(NamedTuple):
    """The walks of a group, its losses (clients,), and every client's passes.

    `buffers` are the clients' own, None where training leaves them; `path2` is there where probes trace.
    """

    walk: Walk
    losses: Tensor
    gradients: list[int]
    passes: list[Passes]
    buffers: Vector | None
    path2: Tensor | None


_RECORDED: WeakKeyDictionary[Task, dict[Hashable, Recorded]] = WeakKeyDictionary()


class Stacked:
    """Runs the clients of a cohort side by side; raises `Unstackable` where that is not possible.

    `memory` bounds the bytes of the clients that run at once.
    """

    def __init__(
        self,
        settings: RunSettings,
        oracle: Oracle,
        threads: int | None = None,
        *,
        compiled: bool = True,
        memory: int = _MEMORY,
    ) -> None:
        self.settings, self.oracle, self.form = settings, oracle, Form.of(settings)
        self._net, self._text = stackable_net(settings, oracle, self.form.padded), repr(oracle.module)
        oracle.channels_last = fits_channels_last(settings, oracle)
        self.threads = threads or sensible_threads(settings, oracle)
        self.name = "stacked" if compiled else "stacked-uncompiled"
        self.compiled = compiled and not _convolves(oracle.module)
        size = _bytes_a_client(settings, oracle, self.form)
        self.capacity = max(1, min(memory // size, max(_FEW, _CACHE // size)))
        self._linear = linear_walk(settings, oracle)

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, group by group, and reduce what they send."""
        reduction = Reduction(self.settings.reducer, request.weights)
        count = len(request.clients)
        size, slots = self._division(count)
        with threads(self.threads):
            for start in range(0, count, size):
                clients = request.clients[start : start + size]
                group = Group(self.settings, self.oracle, request.round, clients, slots, self.form)
                for result in self._results(request, group, memories[start : start + size]):
                    reduction.add(result)
            return reduction.result()

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Batch) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""
        prepare = self.settings.federation.prepare
        with threads(self.threads):
            return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]

    def close(self) -> None:
        """Nothing to give back: recorded steps live as long as their task."""

    def _results(
        self, request: RoundRequest, group: Group, memories: Sequence[ClientMemory]
    ) -> Iterator[ClientResult]:
        """Walk a group and yield its clients' results in drawn order."""
        self.oracle.load_buffers(request.buffers)
        stacked = stack([memory.method for memory in memories])
        taken = self._take(request, group, stacked)
        sound = torch.isfinite(taken.losses) & torch.isfinite(taken.walk.end).all(1)
        if not bool(sound.all()):
            raise diverged(request, group.clients[int(sound.int().argmin())])
        up, kept = request.algorithm.finish(taken.walk, request.down, stacked)
        for index, loss in enumerate(taken.losses.tolist()):
            buffers = request.buffers if taken.buffers is None else taken.buffers[index]
            upload = Upload(_of_client(up, index), buffers.clone())
            memory = memories[index]._replace(method=_of_client(kept, index))
            passes, gradients = taken.passes[index], taken.gradients[index]
            result = ClientResult(upload, memory, loss, gradients, nbytes(upload), passes)
            if request.probes is None:
                yield result
                continue
            self.oracle.load_buffers(buffers)
            yield measured(
                self.settings,
                self.oracle,
                request,
                group.clients[index],
                result,
                before=memories[index],
                walk=_of_client(taken.walk, index),
                path2=_of_client(taken.path2, index),
            )

    def _take(self, request: RoundRequest, group: Group, memories: Record) -> GroupWalk:
        """Walk as planned: `walk.take` for a group."""
        count = len(group.clients)
        plan = request.algorithm.plan(request.down, memories)
        pace = Pace.of(self.settings.work, request.lr)
        full, whole = self._full_gradients(plan, group) if plan.full_gradient else (None, [0] * count)
        ready = route(plan, pace, group.slots, self.form.padded, self._net.moving)
        orders = group.orders()
        paths = None if request.probes is None else request.probes.trace_many(request.down.x, group.slots)
        end, losses, forwards = self._walk(ready, group, orders, paths)
        steps = torch.tensor([[len(own)] for own in orders]).to(ready.start.y)
        walk = Walk(
            start=ready.start.y[:count],
            end=end.y[:count],
            length=torch.tensor([[pace.lr * len(own)] for own in orders], dtype=torch.float64).to(steps),
            steps=steps,
            buffer=None if end.buffer is None else end.buffer[:count],
            dual=None if end.dual is None else end.dual[:count],
            full_gradient=full,
        )
        each = 2 if ready.kind.sharp else 1
        gradients = [each * len(own) for own in orders]
        passes = [
            Passes(walked + over_all, forwards * len(own) + over_all)
            for walked, own, over_all in zip(gradients, orders, whole, strict=True)
        ]
        buffers = end.moving.floats[:count] if end.moving else None
        path2 = None if paths is None else paths.total
        return GroupWalk(walk, losses[:count] / steps[:, 0], gradients, passes, buffers, path2)

    def _full_gradients(self, plan: Plan, group: Group) -> tuple[Tensor, list[int]]:
        """Return the gradients over all samples, taken client by client, and the passes of each."""
        anchors = fit(plan.start if plan.anchor is None else plan.anchor, len(group.clients))
        found, passes = [], []
        for client, at in zip(group.clients, anchors, strict=True):
            before = self.oracle.gradients
            found.append(full_gradient(self.settings, self.oracle, client, at))
            passes.append(self.oracle.gradients - before)
        return torch.stack(found), passes

    @torch.no_grad()
    def _walk(
        self, ready: Route, group: Group, orders: Sequence[Sequence[np.ndarray]], paths: WalkTraces | None
    ) -> Walked:
        """Take all steps of a group, a linear model's in the span of the clients' samples."""
        if self._linear is not None and paths is None and Span.fits(ready):
            span = Span(self._linear, group, ready)
            walked = self._steps(SpanStep, span.route(), span.feeds(orders), span.fixed)
            return walked._replace(end=span.out(walked.end))
        feeds = (feed for window in group.windows(orders) for feed in window.feeds())
        return self._steps(Step, ready, feeds, self._net.fixed, paths)

    def _steps(
        self,
        kind: type[Step],
        ready: Route,
        feeds: Iterable[Record],
        fixed: list[Tensor],
        paths: WalkTraces | None = None,
    ) -> Walked:
        state = [tensor for _, tensor in leaves(ready.start)]
        constants = [*(tensor for _, tensor in leaves(ready.words)), *fixed]
        losses = ready.start.y.new_zeros(len(ready.start.y))
        step: Recorded | None = None
        for feed in feeds:
            data = [part for part in feed if part is not None]
            if step is None:
                step = self._recorded(kind, ready, feed, [*state, *data, *constants])
            if paths is not None:
                paths(state[0], feed.alive)
            *state, loss = step.replay(*state, *data, *constants)
            losses += loss
        names = [name for name, _ in leaves(ready.start)]
        assert step is not None
        return Walked(rebuild(ready.start, dict(zip(names, state, strict=True))), losses, step.forwards)

    def _recorded(self, kind: type[Step], ready: Route, feed: Record, examples: list[Tensor]) -> Recorded:
        """Return the recorded step of this kind and these shapes; record it where it is new."""
        shapes = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in examples)
        names = tuple(name for part in (ready.start, feed, ready.words) for name, _ in leaves(part))
        step = (kind, ready.kind, names, shapes)
        key = (step, self.compiled, self.threads, self.oracle.layout, self._text)
        known = _RECORDED.setdefault(self.settings.task, {})
        if key not in known:
            self._net.looks = 0
            replay = capture(kind(self._net, ready, feed), examples, compiled=self.compiled)
            known[key] = Recorded(replay, self._net.looks)
        return known[key]

    def _division(self, count: int) -> tuple[int, int]:
        """Return the clients of a group, and its slots, for a cohort of that size.

        Each number of slots is a step to record. Cohorts that vary in size (Bernoulli sampling) get a
        multiple of eight, some empty: few numbers, and none that depends on the rounds before.
        """
        groups = -(-count // self.capacity)
        size = -(-count // groups)
        if count == self.settings.cohort_size:
            return size, size
        return size, max(size, min(-(-size // _SPARE) * _SPARE, self.capacity))


def _convolves(module: nn.Module) -> bool:
    """Tell whether a model has convolutions: they are slower compiled."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return any(isinstance(layer, kinds) for layer in module.modules())


def _of_client(record: Record, index: int) -> Record:
    """Return one client's part of a stacked record; what has no client axis is everyone's."""
    return transform(lambda tensor: (tensor[index] if tensor.ndim > 1 else tensor).clone(), record)


def _bytes_a_client(settings: RunSettings, oracle: Oracle, form: Form) -> int:
    """Estimate what a client takes in a group: vectors, its samples, and what its layers give."""
    federation = settings.federation
    sample = federation.prepare(federation.samples(0)[0][:1])
    activations = numbers_given(oracle.eval_copy, oracle.to_device((sample, federation.y[:1]))[0])
    numbers = (
        _VECTORS * oracle.layout.total
        + int(federation.sizes.max()) * sample.numel()
        + form.width * (sample.numel() + 3 * activations)  # values, their gradients, and room between
    )
    return numbers * oracle.point.element_size()
