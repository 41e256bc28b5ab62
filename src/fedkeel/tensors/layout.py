"""Where each named tensor of a module lies inside one flat vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Layout(NamedTuple):
    """Names and shapes of the tensors that make up a flat vector, in their order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Tensor]]) -> Layout:
        """Lay out named tensors in the given order."""
        pairs = [(name, tensor.shape) for name, tensor in tensors]
        return cls(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))

    @property
    def sizes(self) -> list[int]:
        """Return the number of entries of each tensor."""
        return [shape.numel() for shape in self.shapes]

    @property
    def total(self) -> int:
        """Return the length of the flat vector."""
        return sum(self.sizes)

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the named tensors as views of the last axis of `vector`."""
        parts = torch.split(vector, self.sizes, dim=-1)
        lead = vector.shape[:-1]
        return {
            name: part.view(lead + shape)
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }


def worst_layer(layout: Layout, vector: Tensor, before: Tensor | None = None) -> str | None:
    """Return the tensor with the largest share of entries that are no numbers; of equals the largest one.

    Large is by its largest entry: of those that are numbers, or of those `before`, where all were.
    """
    now, earlier = layout.views(vector), layout.views(vector if before is None else before)

    def badness(name: str) -> tuple[float, float]:
        bad = float((~torch.isfinite(now[name])).double().mean())
        largest = float(torch.nan_to_num(earlier[name].abs(), nan=0.0, posinf=0.0).amax())
        return bad, largest

    return max((name for name in layout.names if now[name].numel()), key=badness, default=None)


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that take gradients, each once, in the module's order."""
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def float_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the floating-point buffers (BatchNorm's running statistics), in the module's order."""
    return [(name, b) for name, b in module.named_buffers() if b.is_floating_point()]


def flatten(tensors: Iterable[tuple[str, Tensor]], like: Tensor) -> Tensor:
    """Copy named tensors into one new flat vector of the dtype and device of `like`."""
    parts = [tensor.detach().reshape(-1).to(like) for _, tensor in tensors]
    return torch.cat(parts) if parts else like.new_empty(0)
