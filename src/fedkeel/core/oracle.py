"""Gradients of a task at one flat point: the only place that sees layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Objective
from fedkeel.core.evaluation import EvaluationTotals, Sums, batch_sums
from fedkeel.core.task import Task, watched
from fedkeel.data.samples import Batch, Samples, as_samples
from fedkeel.tensors.layout import Layout, flatten, float_buffers, trainable
from fedkeel.tensors.trees import Tree, call, call_at, count, each
from fedkeel.tensors.vector import Vector

EVALUATION_BATCH = 1000


class Passes(NamedTuple):
    """Passes over minibatches: gradients (full ones too, minibatch by minibatch) and forward passes."""

    gradients: int
    forwards: int

    def since(self, before: Passes) -> Passes:
        """Return how many passes there were since another count."""
        return Passes(self.gradients - before.gradients, self.forwards - before.forwards)


class Oracle:
    """A private copy of a task's model whose parameters and buffers are views of flat vectors.

    `point` is where the model stands: move it in place and the model has moved. `gradient` finds the
    gradient there, `grad` copies it into a flat vector, `descend` steps along it without that copy.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task = task
        self.device = device
        self.module = copy.deepcopy(task.module).to(device).train()
        parameters, buffers = trainable(self.module), float_buffers(self.module)
        self.layout, self.buffer_layout = Layout.of(parameters), Layout.of(buffers)
        self.point = flatten(parameters, like=parameters[0][1])
        self.buffers = flatten(buffers, like=self.point)
        self._views = list(self.layout.views(self.point).values())
        self._parameters = [parameter for _, parameter in parameters]
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.data = view
        self._layer_gradients: Sequence[Tensor | None] | None = None  # None once `grad` is flat
        self._grad: Vector | None = None
        self._sum: Vector | None = None  # where `descend` adds up its terms
        self._sum_views: list[Tensor] = []
        for (_, buffer), view in zip(buffers, self.buffer_layout.views(self.buffers).values(), strict=True):
            buffer.data = view
        counters = [buffer for buffer in self.module.buffers() if not buffer.is_floating_point()]
        self._counters = [(buffer, buffer.clone()) for buffer in counters]
        self.channels_last = False
        self.gradients = self.forwards = 0
        self._eval_copy: nn.Module | None = None

    @property
    def passes(self) -> Passes:
        """Return the passes over minibatches so far; evaluations are not counted."""
        return Passes(self.gradients, self.forwards)

    def gradient(self, batch: Batch, objective: Objective | None = None) -> Tensor:
        """Take the gradient at `point` on a minibatch and return the loss."""
        self._layer_gradients = None
        inputs, target = self.to_device(batch)
        if objective is None:
            loss = self.task.training_loss(call(self.module, inputs), target)
        else:
            loss = self._with_objective(inputs, target, objective)
        self._layer_gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        self.gradients += 1
        self.forwards += 1
        return loss.detach()

    @property
    def grad(self) -> Vector:
        """Return the last gradient as a flat vector, which the caller may change."""
        if self._grad is None:
            self._grad = torch.empty_like(self.point)
        if self._layer_gradients is not None:
            views = self.layout.views(self._grad).values()
            for view, gradient in zip(views, self._layer_gradients, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    view.copy_(_dense(gradient))
            self._layer_gradients = None
        return self._grad

    def descend(self, rate: float, shrink: float = 0.0, bias: Vector | None = None) -> None:
        """Move the point by −rate·(gradient + bias + shrink·point), without the copy of `grad`.

        All terms are added up before they are added to the point, which is thus rounded once: in float32 a
        small term added on its own is rounded the same way in every step, up to being lost.
        """
        layers = self._layer_gradients
        found = [] if layers is None else [_dense(one).contiguous() for one in layers if one is not None]
        whole = layers is None or len(found) < len(layers)
        gradients, points = ([self.grad], [self.point]) if whole else (found, self._views)
        sums: list[Tensor] = []
        if bias is not None:
            if self._sum is None:
                self._sum = torch.empty_like(self.point)
                self._sum_views = list(self.layout.views(self._sum).values())
            self._sum.copy_(bias)
            sums = [self._sum] if whole else self._sum_views
        # The kernel of torch's SGD reads and writes everything once. Its momentum buffers serve as the sums:
        # with a momentum of one it adds the gradient and the decay to what is there, and steps along that.
        torch._fused_sgd_(
            points,
            gradients,
            sums,
            weight_decay=shrink,
            momentum=1.0 if sums else 0.0,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    def load_buffers(self, buffers: Vector) -> None:
        """Take over a model's float buffers; counters (BatchNorm's of its batches) start anew."""
        self.buffers.copy_(buffers)
        for buffer, initial in self._counters:
            buffer.copy_(initial)

    @contextmanager
    def buffers_kept(self) -> Iterator[None]:
        """Set all buffers back at the end of the block: a pass that must not move the statistics."""
        before = self.buffers.clone()
        counts = [buffer.clone() for buffer, _ in self._counters]
        yield
        self.buffers.copy_(before)
        for (buffer, _), former in zip(self._counters, counts, strict=True):
            buffer.copy_(former)

    def full_gradient(self, at: Vector, batches: Iterable[Batch], samples: int) -> Vector:
        """Return the gradient over all samples at a vector; buffers and `point` end as they were."""
        point = self.point.clone()
        self.point.copy_(at)
        total = torch.zeros_like(self.point)
        for batch in batches:
            with self.buffers_kept():
                self.gradient(batch)
            total.add_(self.grad, alpha=count(batch[1]) / samples)
        self.point.copy_(point)
        return total

    def randomness(self) -> Tensor:
        """Return the state of the generator that dropout draws from."""
        if self.device.type == "cpu":
            return torch.get_rng_state()
        return torch.get_device_module(self.device).get_rng_state(self.device)  # type: ignore[no-any-return]

    def replay(self, state: Tensor) -> None:
        """Set that generator back."""
        if self.device.type == "cpu":
            torch.set_rng_state(state)
        else:
            torch.get_device_module(self.device).set_rng_state(state, self.device)

    def to_device(self, batch: Batch) -> Batch:
        """Put a batch on the device in the model's dtype and memory format."""
        return each(self._input, batch[0]), each(self._target, batch[1])

    def _input(self, inputs: Tensor) -> Tensor:
        if inputs.is_floating_point() or inputs.dtype == torch.uint8:
            inputs = inputs.to(self.device, self.point.dtype)
        else:
            inputs = inputs.to(self.device)
        if self.channels_last and inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs

    def _target(self, target: Tensor) -> Tensor:
        return target.to(self.device, self.point.dtype if target.is_floating_point() else target.dtype)

    @torch.no_grad()
    def evaluate(
        self, vector: Vector, buffers: Vector, data: Samples | Batch, prepare: Callable[[Tree], Tree]
    ) -> dict[str, float]:
        """Return loss and metrics of a model on data."""
        samples = as_samples(data)
        evaluation = EvaluationTotals(self.task.scores, samples.size)
        with closing(self._outputs(vector, buffers, samples, prepare)) as batches:
            for batch in batches:
                evaluation.add(*batch)
        return evaluation.result()

    @torch.no_grad()
    def batch_sums(
        self, vector: Vector, buffers: Vector, data: Samples | Batch, prepare: Callable[[Tree], Tree]
    ) -> list[Sums]:
        """Return loss and metrics summed over samples, for each batch; all must be means over samples."""
        means: Any = self.task.scores
        with closing(self._outputs(vector, buffers, as_samples(data), prepare)) as batches:
            return [batch_sums(means, *batch) for batch in batches]

    def _outputs(
        self, vector: Vector, buffers: Vector, data: Samples, prepare: Callable[[Tree], Tree]
    ) -> Generator[tuple[Tree, Tree, int]]:
        """Yield a model's outputs, the targets and the number of samples, batch by batch."""
        self.point.copy_(vector)
        self.buffers.copy_(buffers)
        with _evaluating(self.module):
            for start in range(0, data.size, EVALUATION_BATCH):
                x, y = data.part(start, min(start + EVALUATION_BATCH, data.size))
                inputs, target = self.to_device((prepare(x), y))
                yield call(self.module, inputs), target, count(y)

    def trained(self, vector: Vector, buffers: Vector) -> nn.Module:
        """Return a new module of the user's class that holds the given parameters and buffers."""
        module = copy.deepcopy(self.task.module)
        with torch.no_grad():
            for (_, parameter), view in zip(
                trainable(module), self.layout.views(vector).values(), strict=True
            ):
                parameter.copy_(view)
            for (_, buffer), view in zip(
                float_buffers(module), self.buffer_layout.views(buffers).values(), strict=True
            ):
                buffer.copy_(view)
        return module

    def _with_objective(self, inputs: Tree, target: Tree, objective: Objective) -> Tensor:
        forward = Forward(self, inputs, objective.features)
        loss = self.task.training_loss(forward.output, target)
        return loss + objective.function(forward, self.point, (inputs, target), objective.context)

    @property
    def eval_copy(self) -> nn.Module:
        """Return a copy of the model in evaluation mode, for passes at other vectors."""
        if self._eval_copy is None:
            self._eval_copy = copy.deepcopy(self.task.module).to(self.device).eval()
        return self._eval_copy


class Forward:
    """The forward passes an objective may ask for: at the walk's own point (with gradient) or elsewhere."""

    def __init__(self, oracle: Oracle, inputs: Tree, features: bool) -> None:
        self._oracle = oracle
        if features:
            with watched(oracle.module, oracle.task.features) as found:
                self.output = call(oracle.module, inputs)
            self._features = found[-1]
        else:
            self.output = call(oracle.module, inputs)

    def __call__(self, vector: Vector, inputs: Tree) -> Any:
        """Return the model's outputs at a vector."""
        if vector is self._oracle.point:
            return self.output
        return self._elsewhere(vector, inputs)

    def features(self, vector: Vector, inputs: Tree) -> Tensor:
        """Return the model's penultimate features at a vector."""
        if vector is self._oracle.point:
            return self._features
        with watched(self._oracle.eval_copy, self._oracle.task.features) as found:
            self._elsewhere(vector, inputs)
        return found[-1]

    @torch.no_grad()
    def _elsewhere(self, vector: Vector, inputs: Tree) -> Any:
        oracle = self._oracle
        oracle.forwards += 1
        tensors = {**oracle.layout.views(vector), **oracle.buffer_layout.views(oracle.buffers)}
        return call_at(oracle.eval_copy, tensors, inputs)


def device_of(name: str | torch.device) -> torch.device:
    """Return a device that exists on this machine."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        kind = torch.accelerator.current_accelerator()
        others = [f"{kind}:{index}" for index in range(torch.accelerator.device_count())]
        raise ConfigError(
            f"device = {str(name)!r}: PyTorch cannot compute there ({str(problem).splitlines()[0]}); "
            f"this machine has {', '.join(['cpu', *others])}"
        ) from None
    if device.type == "meta":
        raise ConfigError("device = 'meta' holds no numbers: choose cpu")
    return device


def _dense(gradient: Tensor) -> Tensor:
    """Return a gradient as a plain tensor: that of an embedding may be sparse."""
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    module.eval()
    try:
        yield
    finally:
        module.train()
