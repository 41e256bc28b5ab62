"""The processes engine: walks and judgements on worker processes of this machine, one thread each.

Nothing of this process is forked, so libraries that do not survive a fork may be in use. The data lies in
shared memory once; the order of a round is put there once a round, and so are models that are judged. A
client's round is a pure function, so a worker that dies is replaced, its clients are done again, and nothing
changes in the result, which is the serial engine's to the bit.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from fedkeel.data.federation import Batch, Federation
from fedkeel.engines.contract import CohortResult, RoundRequest
from fedkeel.engines.processes.judging import Judging, known_as
from fedkeel.engines.processes.mainmodule import Surroundings
from fedkeel.engines.processes.nursery import nursery
from fedkeel.engines.processes.pickles import Unsendable, dumps
from fedkeel.engines.processes.pile import PATIENCE, Undertaking
from fedkeel.engines.processes.shared import Place, Slab
from fedkeel.engines.processes.staff import Hand
from fedkeel.engines.processes.walking import Walking
from fedkeel.engines.processes.worker import Done, Failed, Start, TorchState
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import fits_channels_last
from fedkeel.errors import ConfigError, TooFewClients
from fedkeel.oracle import EVALUATION_BATCH, Oracle
from fedkeel.records import ClientMemory
from fedkeel.settings import RunSettings
from fedkeel.vector import Vector

_SENDING = 0.003  # seconds: a batch that is judged faster is not worth sending out


class Processes:
    """Runs the clients of a cohort on worker processes."""

    name = "processes"
    threads = 1

    def __init__(self, settings: RunSettings, oracle: Oracle, workers: int | None = None) -> None:
        if oracle.device.type != "cpu":
            raise ConfigError(
                f"engine = 'processes' computes on the CPU, not on {oracle.device}: "
                "choose engine='serial' or 'stacked' there"
            )
        oracle.channels_last = fits_channels_last(settings, oracle)
        self.settings, self.oracle, self.workers = settings, oracle, workers or _cores()
        self._data, self._board = Slab(), Slab()
        lean = settings.changed(federation=_without_copies(settings.federation))
        where = _write(self._data, lean, _parts(settings))
        self._start = Start(where, Surroundings.now(), oracle.channels_last, TorchState.now())
        self._hands: list[Hand] = []
        self._batch_seconds: float | None = None
        nursery()  # imports torch while this process does what else there is to do

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [hand.pid for hand in self._hands]

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round, and reduce what they send."""
        where = _write(self._board, request, {"the method": request.algorithm})
        walking = Walking(self.settings.federation, request, memories, self.settings.reducer, self.workers)
        self._see_through(walking, where)
        return walking.harvest()

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Batch) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples; workers share them where that is faster."""
        prepare, where = self.settings.federation.prepare, known_as(data, self.settings.federation)
        with threads(self.threads):
            if where is None or not self._worth_sharing(vectors[0], buffers, data):
                return [self.oracle.evaluate(vector, buffers, data, prepare) for vector in vectors]
        judging = Judging(where, len(vectors), len(data[0]))
        self._see_through(judging, self._board.write((vectors, buffers)))
        return judging.scores()

    def close(self) -> None:
        """End the workers and give back the shared memory."""
        self._dismiss()
        for slab in (self._data, self._board):
            slab.close()

    def _worth_sharing(self, vector: Vector, buffers: Vector, data: Batch) -> bool:
        """Tell whether there are several batches that take some time each; no bit depends on the answer."""
        if self.workers < 2 or len(data[0]) <= EVALUATION_BATCH:
            return False
        if self._batch_seconds is None:
            x, y = (part[:EVALUATION_BATCH] for part in data)
            started = time.perf_counter()
            self.oracle.batch_sums(vector, buffers, (x, y), self.settings.federation.prepare)
            self._batch_seconds = time.perf_counter() - started
        return self._batch_seconds > _SENDING

    def _see_through(self, work: Undertaking, board: list[Place]) -> None:
        """Let the workers do all pieces of something; `board` is where that lies which concerns them all."""
        self._staff()
        for hand in self._hands:
            hand.briefed = False
        try:
            with threads(self.threads):
                self._deal_out(work, board)
        except BaseException:  # an interrupt too: workers amid a piece are of no more use
            self._dismiss()
            raise

    def _deal_out(self, work: Undertaking, board: list[Place]) -> None:
        while not work.pile.finished:
            for hand in self._hands:
                if hand.ready and hand.piece is None and (piece := work.pile.next()) is not None:
                    self._assign(hand, piece, work, board)
            for hand in self._waited_for():
                self._hear(hand, work)

    def _assign(self, hand: Hand, piece: Any, work: Undertaking, board: list[Place]) -> None:
        message = work.message(piece, hand.inbox, None if hand.briefed else board)
        hand.piece = piece
        with suppress(ConnectionError):  # its end is heard of next
            hand.pipe.send(message)
            hand.briefed = True

    def _waited_for(self) -> list[Hand]:
        listened = {hand.pipe: hand for hand in self._hands if hand.piece is not None or not hand.ready}
        return [listened[pipe] for pipe in connection.wait(list(listened))]  # type: ignore[index]

    def _hear(self, hand: Hand, work: Undertaking) -> None:
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
        if isinstance(reply, Done):
            work.take(piece, hand.outbox.take(reply.result))
        else:
            work.pile.fail(piece, reply.exception())

    def _replace(self, hand: Hand, work: Undertaking) -> None:
        """Hire another worker for one that died, whose piece has to be done again."""
        self._hands.remove(hand)
        ended = hand.bury()
        if hand.piece is not None:
            work.again(hand.piece, ended)
        else:
            self._stillborn += 1
            if self._stillborn == PATIENCE:
                raise TooFewClients(
                    f"engine = 'processes': {PATIENCE} worker processes in a row died while starting "
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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _without_copies(federation: Federation) -> Federation:
    """Return the federation without what workers gather for themselves."""
    lean = copy.copy(federation)
    lean.__dict__.pop("everything", None)
    return lean


def _parts(settings: RunSettings) -> dict[str, Any]:
    task, federation = settings.task, settings.federation
    return {
        "the model": task.model,
        "the loss": task.loss,
        **{f"the metric {name!r}": metric for name, metric in task.metrics.items()},
        "the federation's transform": federation.transform,
        "the federation's augment": federation.augment,
        "the reducer": settings.reducer,
    }


def _write(slab: Slab, value: Any, parts: Mapping[str, Any]) -> list[Place]:
    """Write a value for the workers; where it cannot be sent, say which of its parts is to blame."""
    try:
        return slab.write(value)
    except Unsendable as problem:
        blamed = next((name for name, part in parts.items() if not _sendable(part)), "the settings")
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
