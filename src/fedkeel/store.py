"""The clients' memories between rounds: only clients that took part cost anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedkeel.records import Record


class Store(Mapping[int, Record]):
    """Client → memory, and what has changed since the last checkpoint."""

    def __init__(self, memories: Mapping[int, Record] | None = None) -> None:
        self._memories: dict[int, Record] = dict(memories or {})
        self._changed: set[int] = set()
        self._cleared = False

    def __getitem__(self, client: int) -> Record:
        return self._memories[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._memories)

    def __len__(self) -> int:
        return len(self._memories)

    def commit(self, memories: Mapping[int, Record]) -> None:
        """Take over a round's new memories."""
        self._changed.update(memories)
        self._memories.update(memories)

    def clear(self) -> None:
        """Forget all memories (a new stage begins)."""
        self._memories.clear()
        self._changed.clear()
        self._cleared = True

    def news(self) -> tuple[bool, set[int]]:
        """Return whether all older memories were dropped, and who changed, since this was last asked."""
        news = self._cleared, self._changed
        self._cleared, self._changed = False, set()
        return news
