"""The stacked engine: all clients of a cohort in one computation over (clients, d).

The Python cost of a step is paid once for the cohort instead of once a client. The step is recorded once for
a model, a shape and a kind of step, and replayed for every method, round and run of that task; where that
pays it is compiled. Results are the serial engine's up to rounding (1e-10 in float64, FLOAT32 in float32),
because products over many clients are summed in another order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedkeel.algorithm import Walk
from fedkeel.engines.capture import Replay, capture
from fedkeel.engines.contract import Answer, Harvest, Order, Setting, Upload
from fedkeel.engines.local import diverged, full_gradient
from fedkeel.engines.ragged import Feed, Form, Group
from fedkeel.engines.serial import fits_channels_last, sensible_threads, threads
from fedkeel.engines.stackable import check_stackable
from fedkeel.engines.stacked_loss import Net
from fedkeel.engines.stacked_step import Route, State, Step, fit, route
from fedkeel.oracle import Oracle
from fedkeel.records import Record, leaves, nbytes, rebuild, stack, transform
from fedkeel.reducers import CHUNK, Reducer
from fedkeel.task import Task
from fedkeel.walk import Pace

_CACHE = 2**25  # bytes of a group that is large enough: more clients at once fall out of the caches
_MEMORY = 2**30  # bytes that a group may take at most
_FEW = 8  # clients a group has where memory allows: fewer do not pay for a step's Python
_SPARE = 8  # empty slots that are cheaper than recording another shape
_VECTORS = 12  # vectors of length d alive a client: plan, state, gradients and what lies between

_RECORDED: WeakKeyDictionary[Task, dict[Hashable, Replay]] = WeakKeyDictionary()


class Taken(NamedTuple):
    """The walks of a group, its losses (clients,), and the gradients each step took."""

    walk: Walk
    losses: Tensor
    passes: int


class Stacked:
    """Runs the clients of a cohort side by side; raises `Unstackable` where that is not possible."""

    def __init__(
        self,
        setting: Setting,
        oracle: Oracle,
        threads: int | None = None,
        *,
        compiled: bool = True,
        memory: int = _MEMORY,
    ) -> None:
        self.setting, self.oracle, self.form = setting, oracle, Form.of(setting)
        check_stackable(setting, oracle, self.form.padded)
        oracle.channels_last = fits_channels_last(setting, oracle)
        self.threads = threads or sensible_threads(setting, oracle)
        self.name = "stacked" if compiled else "stacked-uncompiled"
        self.compiled = compiled and not _convolves(oracle.module)
        size = _bytes_a_client(setting, oracle, self.form)
        self.capacity = max(1, min(memory // size, max(_FEW, _CACHE // size)))
        self._net, self._text = Net(oracle), repr(oracle.module)
        self._slots: list[int] = []

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

    def close(self) -> None:
        """Nothing to give back: recorded steps live as long as their task."""

    def _answers(self, order: Order, memories: Sequence[Record]) -> Iterator[Answer]:
        """Yield the clients' answers in drawn order; groups of them are computed when they are due."""
        count = len(order.clients)
        groups = -(-count // self.capacity)
        size = -(-count // groups)
        slots = self._seats(size)
        self.oracle.buffers.copy_(order.buffers)
        for start in range(0, count, size):
            clients = order.clients[start : start + size]
            group = Group(self.setting, self.oracle, order.round, clients, slots, self.form)
            yield from self._of_group(order, group, stack(memories[start : start + size]))

    def _of_group(self, order: Order, group: Group, memories: Record) -> Iterator[Answer]:
        taken = self._take(order, group, memories)
        sound = torch.isfinite(taken.losses) & torch.isfinite(taken.walk.end).all(1)
        if not bool(sound.all()):
            raise diverged(order, group.clients[int(sound.int().argmin())])
        up, kept = order.algorithm.finish(taken.walk, order.down, memories)
        steps = taken.walk.steps[:, 0].tolist()
        for place, loss in enumerate(taken.losses.tolist()):
            upload = Upload(_of_client(up, place), order.buffers.clone())
            memory = _of_client(kept, place)
            yield Answer(upload, memory, loss, round(steps[place]) * taken.passes, nbytes(upload))

    def _take(self, order: Order, group: Group, memories: Record) -> Taken:
        """Walk as planned: `walk.take` for a group."""
        work, count = self.setting.work, len(group.clients)
        plan = order.algorithm.plan(order.down, memories)
        pace = Pace(order.lr, work.weight_decay, work.clip, work.clip_on == "direction")
        full = None
        if plan.full_gradient:
            anchor = fit(plan.start if plan.anchor is None else plan.anchor, count)
            full = torch.stack(
                [
                    full_gradient(self.setting, self.oracle, client, at)
                    for client, at in zip(group.clients, anchor, strict=True)
                ]
            )
        ready = route(plan, pace, group.slots, self.form.padded)
        orders = group.orders()
        end, losses = self._walk(ready, group, orders)
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
        return Taken(walk, losses[:count] / steps[:, 0], 2 if ready.kind.sharp else 1)

    @torch.no_grad()
    def _walk(
        self, ready: Route, group: Group, orders: Sequence[Sequence[np.ndarray]]
    ) -> tuple[State, Tensor]:
        """Take all steps of a group; return the last state and the sum of the losses."""
        state = [tensor for _, tensor in leaves(ready.start)]
        constants = [*(tensor for _, tensor in leaves(ready.words)), *self._net.fixed]
        losses = ready.start.y.new_zeros(group.slots)
        step: Replay | None = None
        for window in group.windows(orders):
            for feed in window.feeds():
                data = [part for part in feed if part is not None]
                if step is None:
                    step = self._recorded(ready, feed, [*state, *data, *constants])
                *state, loss = step(*state, *data, *constants)
                losses += loss
        names = [name for name, _ in leaves(ready.start)]
        return rebuild(ready.start, dict(zip(names, state, strict=True))), losses

    def _recorded(self, ready: Route, feed: Feed, examples: list[Tensor]) -> Replay:
        """Return the recorded step of this kind and these shapes; record it where it is new."""
        shapes = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in examples)
        key = (ready.kind, self.compiled, self.threads, self.oracle.layout, self._text, shapes)
        known = _RECORDED.setdefault(self.setting.task, {})
        if key not in known:
            known[key] = capture(Step(self._net, ready, feed), examples, compiled=self.compiled)
        return known[key]

    def _seats(self, size: int) -> int:
        """Return how many slots a group of that size gets.

        Each number of slots is a step of its own, so where cohorts vary in size (Bernoulli sampling) a number
        that was used before is taken again, and a new one is a multiple of eight.
        """
        near = [slots for slots in self._slots if size <= slots <= size + _SPARE]
        if near:
            return min(near)
        slots = -(-size // _SPARE) * _SPARE if self._slots else size
        self._slots.append(min(slots, max(size, self.capacity)))
        return self._slots[-1]


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
    activations = _outputs(oracle, oracle.place((sample, federation.y[:1]))[0])
    numbers = (
        _VECTORS * oracle.layout.total
        + int(federation.sizes.max()) * sample.numel()
        + form.width * (sample.numel() + 3 * activations)  # values, their gradients, and room between
    )
    return numbers * oracle.point.element_size()


def _outputs(oracle: Oracle, inputs: Tensor) -> int:
    """Return how many numbers the layers of the model give for one sample."""
    total = 0

    def count(_: nn.Module, __: object, output: object) -> None:
        nonlocal total
        total += output.numel() if isinstance(output, Tensor) else 0

    layers = [layer for layer in oracle.still.modules() if not list(layer.children())]
    handles = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        oracle.still(inputs)
    for handle in handles:
        handle.remove()
    return total
