"""The size of a step, from the layers of the model: the same in every run and on every machine."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from fedkeel.core.oracle import Oracle
from fedkeel.data.federation import Batch
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.trees import Tree, call, count, part

_FLOPS_WORTH_THREADS = 2e7  # a smaller step is faster on one thread, on a busy machine ten times so
_LEAST_OUTPUTS = 0.5  # numbers that convolutions give, per number of their weights


def first_batch(settings: RunSettings, limit: int) -> Batch:
    """Return some samples of the first client, ready for the model."""
    x, y = settings.federation.samples(0)
    return settings.federation.prepare(part(x, 0, limit)), part(y, 0, limit)


def batch_size(settings: RunSettings) -> int:
    """Return how many samples a step has."""
    return settings.work.batch_size or int(settings.federation.sizes[0])


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sensible_threads(settings: RunSettings, oracle: Oracle) -> int:
    """Return how many threads a step should use, from its operations."""
    return torch.get_num_threads() if step_flops(settings, oracle) > _FLOPS_WORTH_THREADS else 1


def step_flops(settings: RunSettings, oracle: Oracle, *, recurrent: bool = False) -> float:
    """Return about how many operations a client's step takes: forward, and twice that backward."""
    inputs, _ = oracle.to_device(first_batch(settings, limit=2))
    found = forward_flops(oracle.eval_copy, inputs, recurrent=recurrent)
    return 3 * found / count(inputs) * batch_size(settings)


def forward_flops(module: nn.Module, inputs: Tree, *, recurrent: bool = False) -> float:
    """Count the operations of a pass: each layer's matrices are applied once per position of its output.

    Recurrent layers do not count unless asked for: they are many small products one after another, and
    whether more threads help those shows only when one tries. torch's own counter imports its compiler, which
    takes three seconds.
    """
    left_out = (nn.Embedding,) if recurrent else (nn.RNNBase, nn.Embedding)
    return sum(
        2 * weight.numel() * shape.numel() / shape[1 if weight.ndim > 2 else -1]
        for layer, shape in layer_outputs(module, inputs)
        if not isinstance(layer, left_out)
        for weight in layer.parameters(recurse=False)
        if weight.ndim > 1
    )


def activation_count(module: nn.Module, inputs: Tree) -> int:
    """Return how many numbers the layers without children give."""
    return sum(shape.numel() for layer, shape in layer_outputs(module, inputs) if not list(layer.children()))


def fits_channels_last(settings: RunSettings, oracle: Oracle) -> bool:
    """Tell whether the model has convolutions and is faster on batches in channels-last memory.

    Weights stay in the default format and are converted in every pass, so where they outnumber the
    convolutions' outputs (a deep network's last layers, short minibatches) the default format is faster.
    """
    inputs, _ = oracle.to_device(first_batch(settings, limit=2))
    if not isinstance(inputs, Tensor) or inputs.ndim != 4:
        return False
    try:
        seen = layer_outputs(oracle.eval_copy, inputs.contiguous(memory_format=torch.channels_last))
    except RuntimeError:  # the model reshapes with view(), which needs the default format
        return False
    convolutions = [(layer, shape) for layer, shape in seen if isinstance(layer, nn.Conv2d)]
    weights = sum(layer.weight.numel() for layer, _ in convolutions)
    activations = sum(shape.numel() for _, shape in convolutions) / len(inputs) * batch_size(settings)
    return bool(convolutions) and activations > _LEAST_OUTPUTS * weights


@torch.no_grad()
def layer_outputs(module: nn.Module, inputs: Tree) -> list[tuple[nn.Module, torch.Size]]:
    """Return each layer and the shape of its output in a pass; of several outputs, the first."""
    seen: list[tuple[nn.Module, torch.Size]] = []

    def remember(layer: nn.Module, _: object, output: object) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if isinstance(first, Tensor):
            seen.append((layer, first.shape))

    handles = [layer.register_forward_hook(remember) for layer in module.modules()]
    try:
        call(module, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen
