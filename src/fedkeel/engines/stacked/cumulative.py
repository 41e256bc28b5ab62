"""BatchNorm with `momentum=None`: its statistics are means over all minibatches so far.

Its own code reads the count of minibatches as a Python number, but the count differs between clients. So a
pass overwrites the statistics, and the mean is taken afterwards, with the counts as tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class CumulativeNorms:
    """The layers of a model that average over all minibatches."""

    def __init__(self, module: nn.Module) -> None:
        self._layers = {
            f"{name}." if name else "": layer
            for name, layer in module.named_modules()
            if isinstance(layer, _BatchNorm) and layer.track_running_stats and layer.momentum is None
        }

    @contextmanager
    def averaged(self, tensors: dict[str, Tensor]) -> Iterator[None]:
        """Let a pass inside the block update the buffers among named tensors as these layers would."""
        parts = [f"{prefix}{part}" for prefix in self._layers for part in ("running_mean", "running_var")]
        before = {name: tensors[name].clone() for name in parts}
        for layer in self._layers.values():
            layer.momentum = 1.0
        try:
            yield
        finally:
            for layer in self._layers.values():
                layer.momentum = None
        for name, old in before.items():
            count = tensors[f"{name.rpartition('running_')[0]}num_batches_tracked"]
            tensors[name] = old + (tensors[name] - old) / count.to(old.dtype)
