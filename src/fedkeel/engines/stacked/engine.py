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
from fedkeel.engines.client import diverged, full_gradient, shown
from fedkeel.engines.contract import Answer, Harvest, Order, Setting, Upload
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import fits_channels_last, numbers_given, sensible_threads
from fedkeel.engines.stacked.capture import Replay, capture
from fedkeel.engines.stacked.ragged import Form, Group
from fedkeel.engines.stacked.span import Span, SpanStep, linear_walk
from fedkeel.engines.stacked.stackable import stackable_net
from fedkeel.engines.stacked.step import Route, State, Step, fit, route
from fedkeel.oracle import Oracle
from fedkeel.probes.base import Passes
from fedkeel.probes.watch import Paths
from fedkeel.records import Record, leaves, nbytes, rebuild, stack, transform
from fedkeel.reducers import CHUNK, Reducer
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


class Taken(NamedTuple):
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

    `cohort` is how many clients a round has as a rule; `memory` bounds the bytes of those that run at once.
    """

    def __init__(
        self,
        setting: Setting,
        oracle: Oracle,
        threads: int | None = None,
        *,
        compiled: bool = True,
        cohort: int | None = None,
        memory: int = _MEMORY,
    ) -> None:
        self.setting, self.oracle, self.form = setting, oracle, Form.of(setting)
        self._net, self._text = stackable_net(setting, oracle, self.form.padded), repr(oracle.module)
        oracle.channels_last = fits_channels_last(setting, oracle)
        self.threads = threads or sensible_threads(setting, oracle)
        self.name = "stacked" if compiled else "stacked-uncompiled"
        self.compiled = compiled and not _convolves(oracle.module)
        size = _bytes_a_client(setting, oracle, self.form)
        self.capacity = max(1, min(memory // size, max(_FEW, _CACHE // size)))
        self._cohort, self._linear = cohort, linear_walk(setting, oracle)

    def run(self, order: Order, memories: Sequence[Record], reducer: Reducer) -> Harvest:
        """Let every client of the cohort do its round, and reduce what they send."""
        kept: list[Answer] = []
        answers = self._answers(order, memories)

        def uploads(chunk: Sequence[float]) -> Iterator[tuple[float, Record]]:
            for weight in chunk:
                given = next(answers)
                kept.append(given.without_upload())
                yield weight, given.upload

        with threads(self.threads):
            count = len(order.clients)
            chunks = [order.weights[start : start + CHUNK] for start in range(0, count, CHUNK)]
            upload = reducer.merge([reducer.fold(uploads(chunk)) for chunk in chunks])
        return Harvest.of(upload, kept)

    def judge(self, vectors: Sequence[Vector], buffers: Vector, data: Batch) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""
        prepare = self.setting.federation.prepare
        with threads(self.threads):
            return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]

    def close(self) -> None:
        """Nothing to give back: recorded steps live as long as their task."""

    def _answers(self, order: Order, memories: Sequence[Record]) -> Iterator[Answer]:
        """Yield the clients' answers in drawn order; groups of them are computed when they are due."""
        count = len(order.clients)
        size, slots = self._division(count)
        for start in range(0, count, size):
            clients = order.clients[start : start + size]
            group = Group(self.setting, self.oracle, order.round, clients, slots, self.form)
            yield from self._of_group(order, group, memories[start : start + size])

    def _of_group(self, order: Order, group: Group, memories: Sequence[Record]) -> Iterator[Answer]:
        self.oracle.load_buffers(order.buffers)
        stacked = stack(memories if order.watch is None else [one.method for one in memories])
        taken = self._take(order, group, stacked)
        sound = torch.isfinite(taken.losses) & torch.isfinite(taken.walk.end).all(1)
        if not bool(sound.all()):
            raise diverged(order, group.clients[int(sound.int().argmin())])
        up, kept = order.algorithm.finish(taken.walk, order.down, stacked)
        for place, loss in enumerate(taken.losses.tolist()):
            buffers = order.buffers if taken.buffers is None else taken.buffers[place]
            upload = Upload(_of_client(up, place), buffers.clone())
            memory, passes = _of_client(kept, place), taken.passes[place]
            given = Answer(upload, memory, loss, taken.gradients[place], nbytes(upload), passes)
            if order.watch is None:
                yield given
                continue
            self.oracle.load_buffers(buffers)
            yield shown(
                self.setting,
                self.oracle,
                order,
                group.clients[place],
                given,
                before=memories[place],
                walk=_of_client(taken.walk, place),
                path2=_of_client(taken.path2, place),
            )

    def _take(self, order: Order, group: Group, memories: Record) -> Taken:
        """Walk as planned: `walk.take` for a group."""
        work, count = self.setting.work, len(group.clients)
        plan = order.algorithm.plan(order.down, memories)
        pace = Pace(order.lr, work.weight_decay, work.clip, work.clip_on == "direction")
        full, whole = self._full_gradients(plan, group) if plan.full_gradient else (None, [0] * count)
        ready = route(plan, pace, group.slots, self.form.padded, self._net.moving)
        orders = group.orders()
        paths = None if order.watch is None else order.watch.paths(order.down.x, group.slots)
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
        return Taken(walk, losses[:count] / steps[:, 0], gradients, passes, buffers, path2)

    def _full_gradients(self, plan: Plan, group: Group) -> tuple[Tensor, list[int]]:
        """Return the gradients over all samples, taken client by client, and the passes of each."""
        anchors = fit(plan.start if plan.anchor is None else plan.anchor, len(group.clients))
        found, passes = [], []
        for client, at in zip(group.clients, anchors, strict=True):
            before = self.oracle.gradients
            found.append(full_gradient(self.setting, self.oracle, client, at))
            passes.append(self.oracle.gradients - before)
        return torch.stack(found), passes

    @torch.no_grad()
    def _walk(
        self, ready: Route, group: Group, orders: Sequence[Sequence[np.ndarray]], paths: Paths | None
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
        paths: Paths | None = None,
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
        known = _RECORDED.setdefault(self.setting.task, {})
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
        if self._cohort in {None, count}:
            return size, size
        return size, max(size, min(-(-size // _SPARE) * _SPARE, self.capacity))


def _convolves(module: nn.Module) -> bool:
    """Tell whether a model has convolutions: they are slower compiled."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return any(isinstance(layer, kinds) for layer in module.modules())


def _of_client(record: Record, place: int) -> Record:
    """Return one client's part of a stacked record; what has no client axis is everyone's."""
    return transform(lambda tensor: (tensor[place] if tensor.ndim > 1 else tensor).clone(), record)


def _bytes_a_client(setting: Setting, oracle: Oracle, form: Form) -> int:
    """Estimate what a client takes in a group: vectors, its samples, and what its layers give."""
    federation = setting.federation
    sample = federation.prepare(federation.samples(0)[0][:1])
    activations = numbers_given(oracle.still, oracle.place((sample, federation.y[:1]))[0])
    numbers = (
        _VECTORS * oracle.layout.total
        + int(federation.sizes.max()) * sample.numel()
        + form.width * (sample.numel() + 3 * activations)  # values, their gradients, and room between
    )
    return numbers * oracle.point.element_size()
