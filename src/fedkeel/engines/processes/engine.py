"""The processes engine: a cohort's walks on worker processes of this machine, one thread each.

Nothing of this process is forked, so libraries that do not survive a fork may be in use. The data lies in
shared memory once; the order of a round is put there once a round. A client's round is a pure function, so a
worker that dies is replaced, its clients are done again, and nothing changes in the result, which is the
serial engine's to the bit.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from fedkeel.data.federation import Federation
from fedkeel.engines.contract import Answer, Harvest, Order, Setting
from fedkeel.engines.pieces import Piece, chunks, pieces
from fedkeel.engines.processes.mainmodule import Surroundings
from fedkeel.engines.processes.nursery import nursery
from fedkeel.engines.processes.pickles import Unsendable, dumps
from fedkeel.engines.processes.shared import Place, Slab
from fedkeel.engines.processes.staff import Hand
from fedkeel.engines.processes.worker import Done, Failed, Job, Start, TorchState
from fedkeel.engines.serial import fits_channels_last, threads
from fedkeel.errors import ConfigError, TooFewClients
from fedkeel.oracle import Oracle
from fedkeel.records import Record
from fedkeel.reducers import CHUNK, Reducer

_PATIENCE = 3  # workers that one client, or the start, may kill


class Processes:
    """Runs the clients of a cohort on worker processes."""

    name = "processes"
    threads = 1

    def __init__(self, setting: Setting, oracle: Oracle, workers: int | None = None) -> None:
        if setting.device.type != "cpu":
            raise ConfigError(
                f"engine = 'processes' computes on the CPU, not on {setting.device}: "
                "choose engine='serial' or 'stacked' there"
            )
        oracle.channels_last = fits_channels_last(setting, oracle)
        self.setting, self.workers = setting, workers or _cores()
        self._data, self._board = Slab(), Slab()
        lean = setting._replace(federation=_without_test(setting.federation))
        where = _write(self._data, lean, _parts(setting))
        self._start = Start(where, Surroundings.now(), oracle.channels_last, TorchState.now())
        self._hands: list[Hand] = []
        nursery()  # imports torch while this process does what else there is to do

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [hand.pid for hand in self._hands]

    def run(self, order: Order, memories: Sequence[Record], reducer: Reducer) -> Harvest:
        """Let every client of the cohort do its round, and reduce what they send."""
        parts = {"the method": order.algorithm, "the reducer": reducer}
        where = _write(self._board, (order, reducer), parts)
        work = _Round(self.setting.federation, order, memories, reducer, self.workers)
        self._staff()
        for hand in self._hands:
            hand.briefed = False
        try:
            with threads(self.threads):
                self._see_through(work, where)
        except BaseException:  # an interrupt too: workers amid a piece are of no more use
            self._dismiss()
            raise
        return work.harvest()

    def close(self) -> None:
        """End the workers and give back the shared memory."""
        self._dismiss()
        for slab in (self._data, self._board):
            slab.close()

    def _see_through(self, work: _Round, where: list[Place]) -> None:
        while not work.finished:
            for hand in self._hands:
                if hand.ready and hand.piece is None and (piece := work.next()) is not None:
                    self._assign(hand, piece, work, where)
            for hand in self._waited_for():
                self._hear(hand, work)

    def _assign(self, hand: Hand, piece: Piece, work: _Round, where: list[Place]) -> None:
        memories = hand.inbox.write(work.memories[piece.start : piece.stop])
        hand.piece = piece
        with suppress(ConnectionError):  # its end is heard of next
            hand.pipe.send(Job(piece, memories, None if hand.briefed else where))
            hand.briefed = True

    def _waited_for(self) -> list[Hand]:
        listened = {hand.pipe: hand for hand in self._hands if hand.piece is not None or not hand.ready}
        return [listened[pipe] for pipe in connection.wait(list(listened))]  # type: ignore[index]

    def _hear(self, hand: Hand, work: _Round) -> None:
        try:
            reply = hand.pipe.recv()
        except (EOFError, OSError):
            self._replace(hand, work)
            return
        if not hand.ready:
            if isinstance(reply, Failed):
                raise reply.exception()
            hand.ready, self._stillborn = True, 0
            return
        piece, hand.piece = hand.piece, None
        assert piece is not None
        if isinstance(reply, Done):
            work.take(piece, hand.outbox.take(reply.result))
        else:
            work.fail(piece, reply.exception())

    def _replace(self, hand: Hand, work: _Round) -> None:
        """Hire another worker for one that died, whose piece has to be done again."""
        self._hands.remove(hand)
        ended = hand.bury()
        if hand.piece is not None:
            work.again(hand.piece, ended)
        else:
            self._stillborn += 1
            if self._stillborn == _PATIENCE:
                raise TooFewClients(
                    f"engine = 'processes': {_PATIENCE} worker processes in a row died while starting "
                    f"({ended}): is there memory enough? Try fewer workers, or engine='serial'"
                )
        self._hands.append(Hand(self._start, self._data, self._board))

    def _staff(self) -> None:
        """Bring the workers to their number; those that died idle are replaced."""
        self._stillborn = 0
        for hand in [hand for hand in self._hands if hand.died_idle]:
            self._hands.remove(hand)
            hand.bury()
        while len(self._hands) < self.workers:
            self._hands.append(Hand(self._start, self._data, self._board))

    def _dismiss(self) -> None:
        while self._hands:
            self._hands.pop().end()


class _Round:
    """The pieces of a round: what is to be done, what is done, what failed."""

    def __init__(
        self,
        federation: Federation,
        order: Order,
        memories: Sequence[Record],
        reducer: Reducer,
        workers: int,
    ) -> None:
        self.order, self.memories, self.reducer = order, memories, reducer
        sizes = [len(federation.rows(client)) for client in order.clients]
        self._open = pieces(sizes, workers)[::-1]
        self._out: set[Piece] = set()
        self._answers: dict[int, Answer] = {}
        self._sums: dict[int, Any] = {}
        self._failures: dict[int, BaseException] = {}
        self._deaths: Counter[int] = Counter()

    @property
    def finished(self) -> bool:
        """Tell whether nothing more is to be done or awaited."""
        return not self._out and not self._open

    def next(self) -> Piece | None:
        """Hand out a piece."""
        if not self._open:
            return None
        piece = self._open.pop()
        self._out.add(piece)
        return piece

    def take(self, piece: Piece, result: Any) -> None:
        """Take a piece's result; sum up its chunk where that is complete."""
        self._out.remove(piece)
        chunk = piece.start // CHUNK
        if piece.whole:
            self._sums[chunk], answers = result
            self._answers.update(zip(range(piece.start, piece.stop), answers, strict=True))
            return
        self._answers[piece.start] = result
        places = chunks(len(self.order.clients))[chunk]
        if all(place in self._answers for place in places):
            self._sums[chunk] = self.reducer.fold(self._uploads(places))

    def fail(self, piece: Piece, error: BaseException) -> None:
        """Note a failure. What was drawn later need not be done: the first in drawn order is raised."""
        self._out.remove(piece)
        self._failures[piece.start] = error
        first = min(self._failures)
        self._open = [piece for piece in self._open if piece.start < first]

    def again(self, piece: Piece, ended: str) -> None:
        """Put back the piece of a worker that died, client by client to find one that kills its workers."""
        self._out.remove(piece)
        if not piece.whole:
            self._deaths[piece.start] += 1
            if self._deaths[piece.start] == _PATIENCE:
                raise TooFewClients(
                    f"round {self.order.round}, client {self.order.clients[piece.start]}: {_PATIENCE} worker "
                    f"processes died while it did its round ({ended}): is there memory enough? "
                    "engine='serial' shows what happens in this process"
                )
        self._open += piece.singles()[::-1]

    def harvest(self) -> Harvest:
        """Return the cohort's answers, or raise the failure that the serial engine would meet first."""
        if self._failures:
            raise self._failures[min(self._failures)]
        upload = self.reducer.merge([self._sums[chunk] for chunk in sorted(self._sums)])
        return Harvest.of(upload, [self._answers[place] for place in range(len(self.order.clients))])

    def _uploads(self, places: range) -> Iterator[tuple[float, Record]]:
        for place in places:
            upload = self._answers[place].upload
            self._answers[place] = self._answers[place].without_upload()
            yield self.order.weights[place], upload


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _without_test(federation: Federation) -> Federation:
    """Return the federation without what only the parent uses, unchecked: it was checked when it was made."""
    lean = copy.copy(federation)
    lean.__dict__.update(test=None)
    lean.__dict__.pop("everything", None)
    return lean


def _parts(setting: Setting) -> dict[str, Any]:
    task, federation = setting.task, setting.federation
    return {
        "the model": task.model,
        "the loss": task.loss,
        **{f"the metric {name!r}": metric for name, metric in task.metrics.items()},
        "the federation's transform": federation.transform,
        "the federation's augment": federation.augment,
    }


def _write(slab: Slab, value: Any, parts: Mapping[str, Any]) -> list[Place]:
    """Write a value for the workers; where it cannot be sent, say which of its parts is to blame."""
    try:
        return slab.write(value)
    except Unsendable as problem:
        blamed = next((name for name, part in parts.items() if not _sendable(part)), "the setting")
        raise ConfigError(
            f"engine = 'processes': {blamed} cannot be sent to worker processes: {problem}. Define it with "
            "def or class at the top level of a module, or `pip install cloudpickle`, or use engine='serial'"
        ) from None


def _sendable(value: Any) -> bool:
    try:
        dumps(value)
    except Unsendable:
        return False
    return True
