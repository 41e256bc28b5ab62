"""A data set before it is split: training samples, a test set, and how a batch is made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.common.frozen import AsGiven, frozen
from fedkeel.data.federation import Augmentation, Batch, Federation, Transform
from fedkeel.data.mapped import samples_of
from fedkeel.data.partition import Natural, Splitter
from fedkeel.data.samples import InMemory, array_tree, as_target
from fedkeel.data.tables import in_numbers
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.trees import Tree, count, each, leaves


@frozen
class Scale:
    """Pictures from bytes to floats: (x / 255 - mean) / std, one mean and std per channel."""

    mean: AsGiven[tuple[float, ...]]
    std: AsGiven[tuple[float, ...]]

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise a batch (n, c, h, w) of uint8."""
        mean, std = (torch.tensor(v, dtype=torch.float32).view(-1, 1, 1) for v in (self.mean, self.std))
        # One multiplication and one addition per pixel: x / (255 std) - mean / std.
        return x.float().mul_(1 / (255 * std)).sub_(mean / std)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples `x` with targets `y`; pictures stay uint8, (n, c, h, w), until `transform` takes a batch.

    `groups` says which natural client (role, writer) each training sample comes from, by its number
    in `group_names`. `classes` is None where targets are real numbers.
    """

    name: str
    x: Tree
    y: Tree
    test: Batch | None = None
    classes: int | None = None
    transform: Transform | None = None
    groups: NDArray[np.int64] | None = None
    group_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for what, x, y in (("training", self.x, self.y), *([("test", *self.test)] if self.test else [])):
            found = {len(leaf) for tree in (x, y) for leaf in leaves(tree, kind=(Tensor, np.memmap))}
            if len(found) != 1 or 0 in found:
                raise DataError(
                    f"{self.name}: {count(x)} {what} samples with {count(y)} targets; give each sample one "
                    "target"
                )
        if self.groups is not None and len(self.groups) != len(self):
            raise DataError(f"{self.name}: {len(self.groups)} group numbers for {len(self)} samples")

    def __len__(self) -> int:
        """Return the number of training samples."""
        return count(self.y)

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        test: tuple[Any, Any] | None = None,
        *,
        name: str = "arrays",
        classes: int | None = None,
        transform: Transform | None = None,
        groups: NDArray[np.int64] | None = None,
        group_names: tuple[str, ...] | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> Dataset:
        """Make a data set of NumPy arrays, tensors or pandas tables; whole-number targets are classes.

        `classes`, if not given, is one more than the largest target seen. Targets that are words are numbered
        in the order of the alphabet: they are the `class_names`.
        """
        ((x, y),), test, words = in_numbers([(x, y)], test)
        if words is not None:
            classes, class_names = classes or len(words), class_names or tuple(words)
        train = _arrays(name, x, y)
        tested = None if test is None else _arrays(name, *test)
        if classes is None and isinstance(train.y, Tensor) and not train.y.is_floating_point():
            classes = 1 + max(int(one.y.max()) for one in filter(None, (train, tested)) if one.y.numel())
        return cls(name, *train, tested, classes, transform, groups, group_names, class_names)

    def split(
        self,
        splitter: Splitter,
        *,
        clients: int | None = None,
        seed: int = 0,
        augment: Augmentation | None = None,
    ) -> Federation:
        """Give the training samples to clients.

        `clients` may be left out for `Natural`, whose groups are then all clients. Samples that the
        splitter gives to nobody stay in the pool and are never seen.
        """
        if not isinstance(self.y, Tensor):
            raise DataError(f"{self.name}: a split goes by one target per sample, and there are several")
        labels = self.y.numpy()
        if clients is None:
            if not isinstance(splitter, Natural):
                raise DataError(
                    f"{splitter} needs to know for how many clients: give their number, as in clients=50"
                )
            clients = splitter.clients(labels, self.groups)
        if isinstance(splitter, type) or not callable(splitter):
            raise DataError(f"split: {splitter!r} is not a split: give one, as in fk.DirichletByClass(0.1)")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise DataError(f"the seed of a split is {seed!r}; use 0 or a positive number")
        shares = splitter(labels, clients, Stream(seed).branch("split").numpy(), self.groups)
        return Federation(
            samples_of(self.x, self.y, self.name),
            index=torch.from_numpy(np.concatenate(shares)),
            offsets=torch.from_numpy(np.cumsum([0, *map(len, shares)])),
            test=None if self.test is None else samples_of(*self.test, self.name),
            transform=self.transform,
            augment=augment,
            classes=self.classes,
            origin={"dataset": self.name, "splitter": repr(splitter), "clients": clients, "seed": seed},
        )


def _arrays(name: str, x: Any, y: Any) -> InMemory:
    """Return inputs and targets as tensors; memory-mapped inputs stay in their files."""
    return InMemory(array_tree(x, name, keep=np.memmap), each(as_target, array_tree(y, name)))
