"""A pile of work for worker processes: what is to be done, what is done, what failed, who died of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from fedkeel.engines.processes.shared import Place, Slab

PATIENCE = 3  # workers that one piece, or the start, may kill

Part = TypeVar("Part", bound=tuple[Any, ...])


class Pile(Generic[Part]):
    """Pieces of work, handed out as they come; their order as tuples is the one that serial works in."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._open = list(parts[::-1])
        self._out: set[Part] = set()
        self._failures: dict[Part, BaseException] = {}
        self._deaths: Counter[Part] = Counter()

    @property
    def finished(self) -> bool:
        """Tell whether nothing more is to be done or awaited."""
        return not self._out and not self._open

    def next(self) -> Part | None:
        """Hand out a piece."""
        if not self._open:
            return None
        part = self._open.pop()
        self._out.add(part)
        return part

    def done(self, part: Part) -> None:
        """Strike off a piece."""
        self._out.remove(part)

    def fail(self, part: Part, error: BaseException) -> None:
        """Note a failure. What serial would do later need not be done: the first is raised."""
        self._out.remove(part)
        self._failures[part] = error
        first = min(self._failures)
        self._open = [part for part in self._open if part < first]

    def again(self, parts: Sequence[Part]) -> None:
        """Put these on top: they were part of what a worker died of."""
        self._open += parts[::-1]

    def deadly(self, part: Part) -> bool:
        """Count a worker that died of a piece; tell whether that is one too many."""
        self._deaths[part] += 1
        return self._deaths[part] == PATIENCE

    def check(self) -> None:
        """Raise the failure that the serial engine would meet first."""
        if self._failures:
            raise self._failures[min(self._failures)]


class Undertaking(Protocol):
    """What the engine sees through with its workers: the walks of a round, or a judgement of models."""

    @property
    def pile(self) -> Pile[Any]:
        """Return its pieces."""

    def message(self, piece: Any, inbox: Slab, board: list[Place] | None) -> Any:
        """Return what a worker is told; `board` is where all that concerns every piece lies, if it is new."""

    def take(self, piece: Any, result: Any) -> None:
        """Take a piece's result."""

    def again(self, piece: Any, ended: str) -> None:
        """Put back the piece of a worker that died."""
