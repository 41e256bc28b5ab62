"""Models judged by worker processes, batch by batch: the same batches, sums and additions as in one process.

Workers hold the samples already: the test set, the pool, and which of its rows are whose. Products may round
differently where samples lie at other alignments or strides, so a worker's batch lies as the parent's would;
samples that cannot be laid so are judged in the parent.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fedkeel.data.federation import Batch, Federation
from fedkeel.engines.processes.pile import PATIENCE, Pile
from fedkeel.engines.processes.shared import ALIGNED, Place, Slab
from fedkeel.errors import TooFewClients
from fedkeel.oracle import EVALUATION_BATCH, mean

Where: TypeAlias = Literal["test", "pool", "rows"]

_NAMES = {"test": "the test set", "pool": "the clients' data", "rows": "the clients' data"}


class Stretch(NamedTuple):
    """A batch that one of the models is judged on: from which sample to which."""

    model: int
    start: int
    stop: int


class Exam(NamedTuple):
    """A stretch to judge, of which samples, and where the models lie if they are new ones."""

    stretch: Stretch
    where: Where
    board: list[Place] | None


class Judging:
    """The batches that models are judged on, and what they gave."""

    def __init__(self, where: Where, models: int, samples: int) -> None:
        self.where, self.models, self.samples = where, models, samples
        starts = range(0, samples, EVALUATION_BATCH)
        self.pile: Pile[Stretch] = Pile(
            [
                Stretch(model, start, min(start + EVALUATION_BATCH, samples))
                for model in range(models)
                for start in starts
            ]
        )
        self._sums: dict[Stretch, list[dict[str, float]]] = {}

    def message(self, piece: Stretch, inbox: Slab, board: list[Place] | None) -> Exam:
        """Return what a worker is told."""
        return Exam(piece, self.where, board)

    def take(self, piece: Stretch, result: list[dict[str, float]]) -> None:
        """Take a batch's sums."""
        self.pile.done(piece)
        self._sums[piece] = result

    def again(self, piece: Stretch, ended: str) -> None:
        """Put back the batch of a worker that died."""
        self.pile.done(piece)
        if self.pile.deadly(piece):
            raise TooFewClients(
                f"evaluation, samples {piece.start} to {piece.stop - 1} of {_NAMES[self.where]}: {PATIENCE} "
                f"worker processes died while they judged a model on them ({ended}): is there memory enough? "
                "engine='serial' shows what happens in this process"
            )
        self.pile.again([piece])

    def scores(self) -> list[dict[str, float]]:
        """Return every model's loss and metrics, or raise the failure that serial would meet first."""
        self.pile.check()
        found: list[list[dict[str, float]]] = [[] for _ in range(self.models)]
        for stretch in sorted(self._sums):
            found[stretch.model] += self._sums[stretch]
        return [mean(sums, self.samples) for sums in found]


def known_as(data: Batch, federation: Federation) -> Where | None:
    """Return what workers know samples as; None where they do not have them, or not laid as they are here."""
    if not all(_dense(part) for part in data):
        return None
    if data is federation.test:
        return "test"
    if data is vars(federation).get("everything"):  # there once somebody has asked for it
        return "pool" if data[0] is federation.x else "rows"
    return None


def samples(federation: Federation, where: Where, start: int, stop: int) -> Batch:
    """Return neighbouring samples as a view of all of them would be."""
    if where == "rows":
        rows = federation.index[start:stop]
        return _shifted(federation.x[rows], start), _shifted(federation.y[rows], start)
    x, y = (federation.x, federation.y) if where == "pool" or federation.test is None else federation.test
    return x[start:stop], y[start:stop]


def _shifted(part: Tensor, start: int) -> Tensor:
    """Return gathered samples at the alignment of a view that begins at a sample of the whole gather."""
    shift = start * part.stride(0) % (ALIGNED // part.element_size())
    if shift == 0:
        return part
    room = part.new_empty(shift + part.numel())
    return room[shift:].as_strided(part.shape, part.stride()).copy_(part)


def _dense(part: Tensor) -> bool:
    """Tell whether a tensor's order in memory outlives a copy."""
    return part.stride() == torch.empty_like(part, device="meta").stride()
