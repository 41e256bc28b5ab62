"""The stacked engine: all clients of a cohort in one computation over (clients, d).

The Python cost of a step is paid once for the cohort instead of once per client. The step is recorded once
per model, shape and kind of step, and replayed for every method, round and run of that task; where that
pays it is compiled. Results are the serial engine's up to rounding, because products over many clients are
summed in another order: relative to the model 1e-10 in float64, and 1e-5 in float32 (an MLP on digits: 4e-8
after a round, at most 5e-6 after forty). Buffers that training changes (BatchNorm's statistics) are part of
the state, each client has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Facts, Plan, Walk
from fedkeel.core.oracle import Oracle, Passes
from fedkeel.core.task import Task
from fedkeel.core.walk import StepSettings, length_of, unit_move_of, with_local_momentum
from fedkeel.data.samples import Samples
from fedkeel.engines.client import ClientRound, ClientRunner
from fedkeel.engines.contract import ClientOutcome, ClientResult, CohortResult, RoundRequest, Unsuited, Upload
from fedkeel.engines.reduction import Reduction
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import activation_count, first_batch, fits_channels_last, sensible_threads
from fedkeel.engines.stacked.capture import Replay, capture
from fedkeel.engines.stacked.ragged import BatchShape, ClientGroup
from fedkeel.engines.stacked.span import SpanStep, SpanWalk, linear_model
from fedkeel.engines.stacked.stackable import stackable_model
from fedkeel.engines.stacked.step import PreparedPlan, StackedState, StackedStep, fit_to_slots, prepare_plan
from fedkeel.probes.client import WalkTraces
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import (
    ClientMemory,
    Record,
    RecordList,
    leaves,
    nbytes,
    rebuild,
    stack,
    transform,
)
from fedkeel.tensors.trees import tensors
from fedkeel.tensors.vector import Vector

_CACHE = 2**25  # bytes of a group that is large enough: more clients at once fall out of the caches
_MEMORY = 2**30  # bytes that a group may take at most
_LEAST_CLIENTS = 8  # of a group, where memory allows: fewer do not pay for a step's Python
_SLOT_MULTIPLE = 8  # slots of groups of varying size come in multiples of this
_VECTORS = 12  # vectors of length d in use per client: plan, state, gradients and intermediate ones


class RecordedStep(NamedTuple):
    """A recorded step, and how many forward passes it makes."""

    replay: Replay
    forwards: int


class FinishedSteps(NamedTuple):
    """The state after a group's steps, the summed losses (clients,), and the forward passes per step."""

    end: StackedState
    losses: Tensor
    forwards: int


class GroupWalk(NamedTuple):
    """The walks of a group, its losses (clients,), and every client's passes.

    `buffers` has one row per client, None if training does not change them; `path2` is there if probes trace.
    """

    walk: Walk
    losses: Tensor
    gradients: list[int]
    passes: list[Passes]
    buffers: Vector | None
    path2: Tensor | None


_logger = logging.getLogger("fedkeel")

_RECORDED: WeakKeyDictionary[Task, dict[Hashable, RecordedStep]] = WeakKeyDictionary()


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
        if settings.client_seconds is not None:
            raise Unsuited(
                "clients walk side by side, so none has a time of its own that client_seconds bounds"
            )
        self.settings, self.oracle, self.shape = settings, oracle, BatchShape.of(settings)
        self.runner = ClientRunner(settings, oracle)
        self._model = stackable_model(settings, oracle, self.shape.padded)
        self._architecture = repr(oracle.module)
        oracle.channels_last = fits_channels_last(settings, oracle)
        self.threads = threads or sensible_threads(settings, oracle)
        self.name = "stacked" if compiled else "stacked-uncompiled"
        self.compiled = compiled and is_compiled(oracle.module)
        size = _bytes_per_client(settings, oracle, self.shape)
        self.capacity = max(1, min(memory // size, max(_LEAST_CLIENTS, _CACHE // size)))
        self._linear = linear_model(settings, oracle)

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, group by group, and reduce what they send."""
        reduction = Reduction(self.settings.reducer, request.weights)
        count = len(request.clients)
        size, slots = self._division(count)
        with threads(self.threads):
            for start in range(0, count, size):
                clients = request.clients[start : start + size]
                group = ClientGroup(self.runner, request.round, clients, slots, self.shape)
                for result in self._outcomes(request, group, memories[start : start + size]):
                    reduction.add(result)
            return reduction.result()

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Samples) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples."""
        prepare = self.settings.federation.prepare
        with threads(self.threads):
            return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]

    def close(self) -> None:
        """Do nothing: recorded steps live as long as their task."""

    def _outcomes(
        self, request: RoundRequest, group: ClientGroup, memories: Sequence[ClientMemory]
    ) -> Iterator[ClientOutcome]:
        """Walk a group and yield its clients' results, or failures, in drawn order."""
        try:
            results = self._results(request, group, memories)
        except ConfigError:
            raise
        except Exception as problem:  # of a client's data, or of a model or loss that does not take it
            yield from self._one_by_one(request, group, memories, problem)
            return
        for client, memory, result in zip(group.clients, memories, results, strict=True):
            yield self.runner.outcome(request, client, memory, result)

    def _one_by_one(
        self,
        request: RoundRequest,
        group: ClientGroup,
        memories: Sequence[ClientMemory],
        problem: Exception,
    ) -> Iterator[ClientOutcome]:
        """Run the clients of a group that failed as serial does, which shows whose failure it is."""
        found = [
            self.runner.outcome(request, client, memory)
            for client, memory in zip(group.clients, memories, strict=True)
        ]
        if not self.settings.skips_failed:  # no single one fails
            raise problem
        _logger.info("round %d: clients were run one by one (%r)", request.round, problem)
        yield from found

    def _results(
        self, request: RoundRequest, group: ClientGroup, memories: Sequence[ClientMemory]
    ) -> list[ClientRound]:
        """Walk a group; return what gives each client's result, or raises what is wrong with it."""
        self.oracle.load_buffers(request.buffers)
        stacked = stack([memory.method for memory in memories])
        facts = self.runner.facts(request, group.clients)
        walked = self._walk_group(request, group, stacked, facts)
        finite = torch.isfinite(walked.losses) & torch.isfinite(walked.walk.end).all(1)
        if walked.buffers is not None:
            finite &= torch.isfinite(walked.buffers).all(1)
        up, kept = request.algorithm.finish(walked.walk, request.down, stacked, facts)
        losses = walked.losses.tolist()

        def result(index: int, request: RoundRequest, client: int, before: ClientMemory) -> ClientResult:
            if not bool(finite[index]):
                raise self.runner.diverged(request, client, before)
            buffers = request.buffers if walked.buffers is None else walked.buffers[index]
            upload = Upload(_of_client(up, index), buffers.clone())
            memory = before._replace(method=_of_client(kept, index))
            passes, gradients = walked.passes[index], walked.gradients[index]
            result = ClientResult(upload, memory, losses[index], gradients, nbytes(upload), passes)
            if request.probes is not None:
                self.oracle.load_buffers(buffers)
                walk, path2 = _of_client(walked.walk, index), _of_client(walked.path2, index)
                result = self.runner.measured(request, client, result, before=before, walk=walk, path2=path2)
            return self.runner.attacked(request, client, result)

        return [partial(result, index) for index in range(len(group.clients))]

    def _walk_group(
        self, request: RoundRequest, group: ClientGroup, memories: Record, facts: Facts
    ) -> GroupWalk:
        """Walk as planned: `walk.run_local_steps` for a group."""
        count, orders = len(group.clients), group.orders()
        counts = [len(own) for own in orders]
        by_steps = {steps: self.runner.step_settings(request, steps) for steps in set(counts)}
        step_settings = by_steps[max(counts)]
        plan = with_local_momentum(request.algorithm.plan(request.down, memories, facts), step_settings)
        full, whole = self._full_gradients(plan, group) if plan.full_gradient else (None, [0] * count)
        prepared = prepare_plan(plan, step_settings, group.slots, self.shape.padded, self._model.moving)
        traces = None if request.probes is None else request.probes.trace_many(request.down.x, group.slots)
        rates = (
            None
            if step_settings.rates is None
            else _step_rates(by_steps, counts, group.slots).to(prepared.start.y)
        )
        end, losses, forwards = self._walk(prepared, group, orders, traces, rates)
        steps = torch.tensor([[len(own)] for own in orders]).to(prepared.start.y)
        lengths = {own: length_of(by_steps[own], own) for own in by_steps}
        walk = Walk(
            start=prepared.start.y[:count],
            end=end.y[:count],
            length=torch.tensor([[lengths[own]] for own in counts], dtype=torch.float64).to(steps),
            steps=steps,
            buffer=None if end.buffer is None else end.buffer[:count],
            dual=None if end.dual is None else end.dual[:count],
            full_gradient=full,
            unit_move=_unit_moves(plan, by_steps, counts, like=steps),
            clipped=None if end.clipped is None else end.clipped[:count],
        )
        each = 2 if prepared.kind.sharp else 1
        gradients = [each * len(own) for own in orders]
        passes = [
            Passes(taken + over_all, forwards * len(own) + over_all)
            for taken, own, over_all in zip(gradients, orders, whole, strict=True)
        ]
        buffers = end.moving.floats[:count] if end.moving else None
        path2 = None if traces is None else traces.total
        return GroupWalk(walk, losses[:count] / steps[:, 0], gradients, passes, buffers, path2)

    def _full_gradients(self, plan: Plan, group: ClientGroup) -> tuple[Tensor, list[int]]:
        """Return the gradients over all samples, taken client by client, and the passes of each."""
        anchors = fit_to_slots(plan.start if plan.anchor is None else plan.anchor, len(group.clients))
        found, passes = [], []
        for client, at in zip(group.clients, anchors, strict=True):
            before = self.oracle.gradients
            found.append(self.runner.full_gradient(client, at))
            passes.append(self.oracle.gradients - before)
        return torch.stack(found), passes

    @torch.no_grad()
    def _walk(
        self,
        prepared: PreparedPlan,
        group: ClientGroup,
        orders: Sequence[Sequence[np.ndarray]],
        traces: WalkTraces | None,
        rates: Tensor | None,
    ) -> FinishedSteps:
        """Take all steps of a group, a linear model's in the span of the clients' samples."""
        if self._linear is not None and traces is None and SpanWalk.fits(prepared):
            span = SpanWalk(self._linear, group, prepared)
            finished = self._take_steps(SpanStep, span.plan(), span.steps(orders), span.fixed, rates=rates)
            return finished._replace(end=span.in_parameters(finished.end))
        steps = (inputs for window in group.windows(orders) for inputs in window.steps())
        return self._take_steps(StackedStep, prepared, steps, self._model.fixed, traces=traces, rates=rates)

    def _take_steps(
        self,
        step_type: type[StackedStep],
        prepared: PreparedPlan,
        steps: Iterable[Record],
        fixed: list[Tensor],
        *,
        traces: WalkTraces | None = None,
        rates: Tensor | None = None,
    ) -> FinishedSteps:
        """Take steps; `rates` are those of every step and slot, where they differ within the round."""
        if rates is not None:
            steps = (step._replace(lr=lr) for step, lr in zip(steps, rates.unbind(), strict=True))
        state = [tensor for _, tensor in leaves(prepared.start)]
        constants = [*(tensor for _, tensor in leaves(prepared.constants)), *fixed]
        losses = prepared.start.y.new_zeros(len(prepared.start.y))
        step: RecordedStep | None = None
        for inputs in steps:
            data = _tensors(inputs)
            if step is None:
                step = self._recorded(step_type, prepared, inputs, [*state, *data, *constants])
            if traces is not None:
                traces(state[0], inputs.alive)
            *state, loss = step.replay(*state, *data, *constants)
            losses += loss
        names = [name for name, _ in leaves(prepared.start)]
        assert step is not None
        end = rebuild(prepared.start, dict(zip(names, state, strict=True)))
        return FinishedSteps(end, losses, step.forwards)

    def _recorded(
        self, step_type: type[StackedStep], prepared: PreparedPlan, inputs: Record, examples: list[Tensor]
    ) -> RecordedStep:
        """Return the recorded step of this kind and these shapes; record it where it is new."""
        shapes = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in examples)
        names = tuple(
            name for part in (prepared.start, inputs, prepared.constants) for name, _ in leaves(part)
        )
        step = (step_type, prepared.kind, names, shapes)
        key = (step, self.compiled, self.threads, self.oracle.layout, self._architecture)
        known = _RECORDED.setdefault(self.settings.task, {})
        if key not in known:
            self._model.forwards = 0
            replay = capture(step_type(self._model, prepared, inputs), examples, compiled=self.compiled)
            known[key] = RecordedStep(replay, self._model.forwards)
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
        return size, max(size, min(-(-size // _SLOT_MULTIPLE) * _SLOT_MULTIPLE, self.capacity))


def _tensors(inputs: Record) -> list[Tensor]:
    """Return the tensors of a step's inputs in order; `leaves` for a loop that has microseconds."""
    found: list[Tensor] = []
    for part in inputs:
        if isinstance(part, RecordList):
            found += part
        elif part is not None:
            found.append(part)
    return found


def is_compiled(module: nn.Module) -> bool:
    """Tell whether steps of a model are compiled: convolutions are slower so."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return not any(isinstance(layer, kinds) for layer in module.modules())


def _step_rates(by_steps: Mapping[int, StepSettings], counts: Sequence[int], slots: int) -> Tensor:
    """Return the rates of all steps, (steps, slots, 1), zero where a client has no step."""
    rates = torch.zeros(max(counts), slots, 1, dtype=torch.float64)
    for slot, steps in enumerate(counts):
        rates[:steps, slot, 0] = torch.tensor(list(by_steps[steps].of_steps(steps)), dtype=torch.float64)
    return rates


def _unit_moves(
    plan: Plan, by_steps: Mapping[int, StepSettings], counts: Sequence[int], like: Tensor
) -> Tensor | None:
    """Return how far a constant gradient of one would carry each client, None where that is its length."""
    pulls = torch.as_tensor(plan.pull, dtype=torch.float64).flatten().expand(len(counts)).tolist()
    cases = list(zip(counts, pulls, strict=True))
    found = {case: unit_move_of(plan, by_steps[case[0]], *case) for case in set(cases)}
    if all(move is None for move in found.values()):
        return None
    lengths = {steps: length_of(step_settings, steps) for steps, step_settings in by_steps.items()}
    moves = [lengths[case[0]] if found[case] is None else found[case] for case in cases]
    return torch.tensor(moves, dtype=torch.float64)[:, None].to(like)


def _of_client(record: Record, index: int) -> Record:
    """Return one client's part of a stacked record; all clients share what has no client axis."""
    return transform(lambda tensor: (tensor[index] if tensor.ndim > 1 else tensor).clone(), record)


def _bytes_per_client(settings: RunSettings, oracle: Oracle, shape: BatchShape) -> int:
    """Estimate the memory of a client in a group: vectors, its samples, and activations."""
    federation = settings.federation
    inputs, _ = oracle.to_device(first_batch(settings, 1))
    sample, activations = (
        sum(one.numel() for one in tensors(inputs)),
        activation_count(oracle.eval_copy, inputs),
    )
    numbers = (
        _VECTORS * oracle.layout.total
        + int(federation.sizes.max()) * sample
        + shape.width * (sample + 3 * activations)  # values, their gradients, and temporary ones
    )
    return numbers * oracle.point.element_size()
