"""How a cohort is cut into pieces of work, so that the sum is the serial one and no worker waits for long.

Uploads are summed in chunks of eight by drawn position. While there is plenty to do a worker takes a whole
chunk and sends back its sum; towards the end of the round single clients are handed out, the longest first,
and the chunk is summed here in drawn order: the same additions in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedkeel.engines.reduction import chunks
from fedkeel.reducers import CHUNK


class Piece(NamedTuple):
    """Neighbouring positions of a cohort; a whole chunk is summed by the worker, a single client is not."""

    start: int
    stop: int
    whole: bool

    def singles(self) -> list[Piece]:
        """Return the same work client by client."""
        return [Piece(place, place + 1, whole=False) for place in range(self.start, self.stop)]


def pieces(sizes: Sequence[int], workers: int) -> list[Piece]:
    """Cut a cohort of clients of these sizes: whole chunks, and singles for the last chunk of each worker."""
    parts = chunks(len(sizes))
    whole = parts[: max(0, len(parts) - workers)]
    rest = range(len(whole) * CHUNK, len(sizes))
    longest_first = sorted(rest, key=lambda place: -sizes[place])
    return [
        *(Piece(part.start, part.stop, whole=True) for part in whole),
        *(Piece(place, place + 1, whole=False) for place in longest_first),
    ]
