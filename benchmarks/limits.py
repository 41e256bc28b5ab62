"""Says how far a step is from what matrix products allow: `python benchmarks/limits.py cnn`.

Every layer with a matrix is timed alone, forward and backward, on the inputs that it gets; beside it stands
the rate of a plain matrix product in the same minute, since that is what the machine gives at best.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from benchlib.workloads import WORKLOADS, build_model, make_data
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedkeel.engines.malloc import keep_freed_memory

_REPETITIONS = 15
_SIDE = 1000


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=[n for n, one in WORKLOADS.items() if len(one.shape) == 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="not in channels-last memory")
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    workload = WORKLOADS[options.workload].with_(clients=1)
    x, y = (part[: workload.batch] for part in make_data(workload))
    x = x if options.plain else x.contiguous(memory_format=torch.channels_last)
    report(build_model(workload), x, y)


def report(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Time the layers, the step and a product."""
    square = torch.randn(_SIDE, _SIDE)
    limit = 2 * _SIDE**3 / seconds(lambda: square @ square)
    print(f"a matrix product: {limit / 1e9:.0f} GFLOP/s")
    total, spent = 0.0, 0.0
    for name, layer, given in inputs(model, x):
        work, forward, backward = timed(layer, given)
        total, spent = total + work, spent + forward + backward
        rate = work / (forward + backward)
        print(
            f"{name:14s}{work / 1e9:6.2f} GFLOP, forward {forward * 1e3:6.2f} ms, backward "
            f"{backward * 1e3:6.2f} ms: {rate / 1e9:4.0f} GFLOP/s, {rate / limit:4.0%} of the product's"
        )
    parameters = list(model.parameters())
    step = seconds(lambda: torch.autograd.grad(cross_entropy(model(x), y), parameters))
    print(
        f"a gradient takes {step * 1e3:.1f} ms: {spent / step:.0%} in these layers; products would take "
        f"{total / limit * 1e3:.1f} ms, {step * limit / total:.2f} times less"
    )


def inputs(model: nn.Module, x: Tensor) -> list[tuple[str, nn.Module, Tensor]]:
    """Return the layers with a matrix and what they are given."""
    seen: list[tuple[str, nn.Module, Tensor]] = []
    handles = [
        layer.register_forward_pre_hook(lambda one, given, name=name: seen.append((name, one, given[0])))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    model(x)
    for handle in handles:
        handle.remove()
    return seen


def timed(layer: nn.Module, given: Tensor) -> tuple[float, float, float]:
    """Return a layer's operations and its seconds; the first layer's input takes no gradient."""
    inner = given.requires_grad
    given = given.detach().requires_grad_(inner)
    output = layer(given)
    width = output.shape[1]
    forward_work = 2 * layer.weight.numel() * output.numel() / width
    wanted = [*layer.parameters(), *([given] if inner else [])]
    slope = torch.randn_like(output)
    forward = seconds(lambda: layer(given))
    both = seconds(lambda: torch.autograd.grad(layer(given), wanted, slope))
    return forward_work * (3 if inner else 2), forward, both - forward


def seconds(function: Callable[[], object]) -> float:
    """Return the least seconds of a call."""
    function()
    times = []
    for _ in range(_REPETITIONS):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
