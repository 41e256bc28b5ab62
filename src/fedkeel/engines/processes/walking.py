"""The walks of a round, as pieces of work for worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedkeel.data.federation import Federation
from fedkeel.engines.contract import ClientResult, CohortResult, RoundRequest
from fedkeel.engines.pieces import Piece, pieces
from fedkeel.engines.processes.pile import PATIENCE, Pile
from fedkeel.engines.processes.shared import Place, Slab
from fedkeel.engines.processes.worker import Job
from fedkeel.engines.reduction import ChunkSum, chunks, merge_chunks
from fedkeel.errors import TooFewClients
from fedkeel.records import ClientMemory
from fedkeel.reducers import CHUNK, Reducer


class Walking:
    """The pieces of a round's cohort and their answers."""

    def __init__(
        self,
        federation: Federation,
        order: RoundRequest,
        memories: Sequence[ClientMemory],
        reducer: Reducer,
        workers: int,
    ) -> None:
        self.order, self.memories, self.reducer = order, memories, reducer
        sizes = [len(federation.rows(client)) for client in order.clients]
        self.pile: Pile[Piece] = Pile(pieces(sizes, workers))
        self._answers: dict[int, ClientResult] = {}
        self._sums: dict[int, ChunkSum] = {}

    def message(self, piece: Piece, inbox: Slab, board: list[Place] | None) -> Job:
        """Return what a worker is told: the piece, and where its memories lie."""
        return Job(piece, inbox.write(self.memories[piece.start : piece.stop]), board)

    def take(self, piece: Piece, result: Any) -> None:
        """Take a piece's result; sum up its chunk where that is complete."""
        self.pile.done(piece)
        chunk = piece.start // CHUNK
        if piece.whole:
            self._sums[chunk] = result
            return
        self._answers[piece.start] = result
        places = chunks(len(self.order.clients))[chunk]
        if all(place in self._answers for place in places):
            self._sums[chunk] = ChunkSum()
            for place in places:
                self._sums[chunk].add(self.reducer, self.order.weights[place], self._answers.pop(place))

    def again(self, piece: Piece, ended: str) -> None:
        """Put back the piece of a worker that died, client by client to find one that kills its workers."""
        self.pile.done(piece)
        if not piece.whole and self.pile.deadly(piece):
            raise TooFewClients(
                f"round {self.order.round}, client {self.order.clients[piece.start]}: {PATIENCE} worker "
                f"processes died while it did its round ({ended}): is there memory enough? "
                "engine='serial' shows what happens in this process"
            )
        self.pile.again(piece.singles())

    def harvest(self) -> CohortResult:
        """Return the cohort's answers, or raise the failure that the serial engine would meet first."""
        self.pile.check()
        return merge_chunks(self.reducer, [self._sums[chunk] for chunk in sorted(self._sums)])
