"""How a cohort's results are reduced: in chunks of eight by drawn position, the same in every engine.

A client that failed leaves its slot empty: the others keep their chunks, and the weights that count are
theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedkeel.engines.contract import ClientFailure, ClientOutcome, ClientResult, CohortResult
from fedkeel.reducers import CHUNK, Mean, Reducer

_MEAN = Mean()  # of the probes' measures: equal weights, whatever the method's own weights or reducer are


def chunks(clients: int) -> list[range]:
    """Return the positions of a cohort that are added up together."""
    return [range(start, min(start + CHUNK, clients)) for start in range(0, clients, CHUNK)]


class ChunkSum:
    """The results of a chunk, added up in drawn order; an upload is let go as soon as it is added."""

    def __init__(self) -> None:
        self.part: Any = None
        self.measures: Any = None
        self.results: list[ClientResult] = []
        self.skipped: list[ClientFailure] = []

    def add(self, reducer: Reducer, weight: float, result: ClientOutcome) -> None:
        """Take the next client's result, or leave its slot empty."""
        if isinstance(result, ClientFailure):
            self.skipped.append(result)
            return
        self.part = reducer.add(self.part, weight, result.upload)
        if result.measures is not None:
            self.measures = _MEAN.add(self.measures, 1.0, result.measures)
        self.results.append(result._replace(upload=None, measures=None))


class Reduction:
    """Reduces a cohort's results as they come in, in drawn order."""

    def __init__(self, reducer: Reducer, weights: Sequence[float]) -> None:
        self._reducer, self._weights, self._count = reducer, weights, 0
        self._sums: list[ChunkSum] = []

    def add(self, result: ClientOutcome) -> None:
        """Take the next client's result, or its failure."""
        if self._count % CHUNK == 0:
            self._sums.append(ChunkSum())
        self._sums[-1].add(self._reducer, self._weights[self._count], result)
        self._count += 1

    def result(self) -> CohortResult:
        """Return the cohort's result once all clients are in."""
        return merge_chunks(self._reducer, self._sums)


def merge_chunks(reducer: Reducer, sums: Sequence[ChunkSum]) -> CohortResult:
    """Return a cohort's result from its chunks in order; one without any result has nothing to merge."""
    filled = [chunk for chunk in sums if chunk.results]
    upload = reducer.merge([chunk.part for chunk in filled]) if filled else None
    measured = [chunk.measures for chunk in filled if chunk.measures is not None]
    return CohortResult(
        upload,
        _MEAN.merge(measured) if measured else None,
        [result for chunk in filled for result in chunk.results],
        [failure for chunk in sums for failure in chunk.skipped],
    )
