"""A worker process: waits for a piece of work, lets clients do their rounds or judges a model, answers.

It keeps nothing between two pieces but what the board says, so one that dies can be replaced without a trace.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

import torch

from fedkeel.engines.client import run_client
from fedkeel.engines.contract import RoundRequest
from fedkeel.engines.malloc import keep_freed_memory
from fedkeel.engines.pieces import Piece
from fedkeel.engines.processes.judging import Exam, samples
from fedkeel.engines.processes.mainmodule import Surroundings
from fedkeel.engines.processes.shared import Place, Slab
from fedkeel.engines.reduction import ChunkSum
from fedkeel.errors import FedkeelError
from fedkeel.oracle import Oracle
from fedkeel.records import ClientMemory
from fedkeel.settings import RunSettings
from fedkeel.vector import Vector

_HEARTBEAT = 0.5


class Handles(NamedTuple):
    """The file descriptors a worker is born with: a pipe, and the slabs of the run, the round and itself."""

    pipe: int
    data: int
    board: int
    inbox: int
    outbox: int


class Start(NamedTuple):
    """The first message: where the settings lies, and what else makes two processes compute alike."""

    settings: list[Place]
    surroundings: Surroundings
    channels_last: bool
    switches: TorchState


class TorchState(NamedTuple):
    """Global switches of torch that change results."""

    dtype: torch.dtype
    matmul: str
    deterministic: bool
    mkldnn: bool

    @classmethod
    def now(cls) -> TorchState:
        """Return how this process is set."""
        return cls(
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            bool(torch.backends.mkldnn.enabled),
        )

    def take_over(self) -> None:
        """Set this process so."""
        torch.set_default_dtype(self.dtype)
        torch.set_float32_matmul_precision(self.matmul)
        if self.deterministic:  # the call imports half of torch: seconds
            torch.use_deterministic_algorithms(True)
        torch.backends.mkldnn.set_flags(self.mkldnn)  # type: ignore[no-untyped-call]


class Job(NamedTuple):
    """A piece to work on, where its memories lie, and where the round's order lies if it is a new one."""

    piece: Piece
    memories: list[Place]
    board: list[Place] | None


class Done(NamedTuple):
    """Where a piece's result lies.

    (sum, answers) of a whole chunk, an answer with upload of a single client, a judged batch's sums.
    """

    result: list[Place]


class Failed(NamedTuple):
    """The exception that a piece ended with, in parts."""

    error: bytes

    def exception(self) -> BaseException:
        """Return the exception, of the type it had."""
        kind, args, state = pickle.loads(self.error)
        made: BaseException = kind.__new__(kind, *args)
        made.args = args
        made.__dict__.update(state)
        return made


def work(handles: Handles, parent: int) -> NoReturn:
    """Serve until the main process hangs up or the parent dies."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        _serve(Connection(handles.pipe), handles)
    except (EOFError, ConnectionError):
        pass  # nobody waits for an answer any more
    finally:
        os._exit(1)  # nothing here is worth an orderly end


def _end_with(parent: int) -> None:
    """End this process soon after its parent, however that one ended and whatever goes on here."""
    while os.getppid() == parent:
        time.sleep(_HEARTBEAT)
    os._exit(1)


def _serve(pipe: Connection, handles: Handles) -> None:
    start: Start = pipe.recv()
    try:
        desk = _Desk(start, handles)
    except Exception as problem:
        pipe.send(Failed(_portable(problem)))
        return
    pipe.send(None)
    while True:
        pipe.send(desk.reply(pipe.recv()))


class _Desk:
    """What a worker works with."""

    def __init__(self, start: Start, handles: Handles) -> None:
        start.switches.take_over()
        start.surroundings.take_over()
        self.settings: RunSettings = Slab(handles.data, private=True).read(start.settings)
        self.oracle = Oracle(self.settings.task, torch.device("cpu"))
        self.oracle.channels_last = start.channels_last
        self.board, self.inbox, self.outbox = (Slab(handle) for handle in handles[2:])
        self.posted: Any = None

    def reply(self, job: Job | Exam) -> Done | Failed:
        """Do a piece, or tell why not."""
        try:
            if job.board is not None:
                self.posted = self.board.read(job.board)
            if isinstance(job, Exam):
                return Done(self.outbox.write(self._judged(job, *self.posted)))
            memories = self.inbox.read(job.memories)
            return Done(self.outbox.write(self._walked(job.piece, memories, self.posted)))
        except Exception as problem:
            return Failed(_portable(problem))

    def _judged(self, exam: Exam, vectors: Sequence[Vector], buffers: Vector) -> list[dict[str, float]]:
        federation, (model, start, stop) = self.settings.federation, exam.stretch
        data = samples(federation, exam.where, start, stop)
        return self.oracle.batch_sums(vectors[model], buffers, data, federation.prepare)

    def _walked(self, piece: Piece, memories: Sequence[ClientMemory], request: RoundRequest) -> Any:
        found, reducer = ChunkSum(), self.settings.reducer
        for position, memory in zip(range(piece.start, piece.stop), memories, strict=True):
            result = run_client(self.settings, self.oracle, request, request.clients[position], memory)
            if not piece.whole:
                return result
            found.add(reducer, request.weights[position], result)
        return found


def _portable(problem: Exception) -> bytes:
    """Return an exception as bytes, also one whose constructor asks for more than its message."""
    state = dict(problem.__dict__)
    if not isinstance(problem, FedkeelError):
        told = "".join(traceback.format_exception(problem))
        state["__notes__"] = [*state.get("__notes__", []), f"In a worker process:\n{told}"]
    try:
        pickled = pickle.dumps((type(problem), problem.args, state))
        pickle.loads(pickled)
    except Exception:
        text = f"{type(problem).__name__}: {problem}"
        pickled = pickle.dumps((RuntimeError, (text,), {"__notes__": state.get("__notes__", [])}))
    return pickled
