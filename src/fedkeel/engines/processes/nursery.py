"""Where workers come from: a process that has imported torch, computed nothing, and forks on demand.

Importing torch takes seconds, forking milliseconds: all engines of a process share one nursery, and a worker
that died is replaced at once. The nursery is a new interpreter with a single thread, so nothing of the main
process is forked. It ends when the main process does, and its workers with it.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence

from fedkeel.engines.processes.worker import Handles, work
from fedkeel.errors import TooFewClients

_REQUEST, _REPLY = struct.Struct("=cq"), struct.Struct("=q")
_FORK, _END, _BURY = b"f", b"e", b"b"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Nursery:
    """The nursery as the main process sees it; one request at a time."""

    def __init__(self) -> None:
        self.owner, self._lock = os.getpid(), threading.Lock()
        self._socket, theirs = socket.socketpair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from fedkeel.engines.processes.nursery import tend; tend({theirs.fileno()})"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                pass_fds=[theirs.fileno()],
                process_group=0,  # a Ctrl-C in the terminal reaches the main process alone
            )

    @property
    def usable(self) -> bool:
        """Tell whether this process can ask it for workers."""
        return self.owner == os.getpid() and self._socket.fileno() >= 0 and self._process.poll() is None

    def fork(self, handles: Handles) -> int:
        """Return the process id of a new worker that holds copies of these descriptors."""
        return self._ask(_FORK, 0, handles)

    def end(self, pid: int) -> int:
        """Kill a worker and return its exit code."""
        return self._ask(_END, pid)

    def bury(self, pid: int) -> int:
        """Return the exit code of a worker that is about to end by itself."""
        return self._ask(_BURY, pid)

    def close(self) -> None:
        """End the nursery; its workers follow."""
        self._socket.close()
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()

    def _ask(self, what: bytes, pid: int, handles: Sequence[int] = ()) -> int:
        with self._lock:
            try:
                socket.send_fds(self._socket, [_REQUEST.pack(what, pid)], handles)
                reply = self._socket.recv(_REPLY.size, socket.MSG_WAITALL)
                number: int = _REPLY.unpack(reply)[0]
            except struct.error:  # it hung up
                self.close()
                raise ConnectionResetError from None
            except BaseException:  # an interrupt too: its answer would be taken for the next one's
                self.close()
                raise
        return number


_nurseries: list[Nursery] = []
_choosing = threading.Lock()


def nursery() -> Nursery:
    """Return this process's nursery, started if need be."""
    with _choosing:
        if _nurseries and not _nurseries[-1].usable:
            _nurseries.pop().close()
        if not _nurseries:
            _nurseries.append(Nursery())
            atexit.register(_nurseries[-1].close)
        return _nurseries[-1]


def hire(handles: Handles) -> tuple[Nursery, int]:
    """Return a new worker's process id and its nursery, a new one where the present one has died."""
    for _ in range(2):
        home = nursery()
        try:
            return home, home.fork(handles)
        except ConnectionError:
            continue
    raise TooFewClients(
        "engine = 'processes': worker processes cannot be started (see the messages above); "
        "engine='serial' needs none"
    )


def tend(handle: int) -> None:
    """Be a nursery until the main process hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # collections in the workers then leave shared pages alone
    me = os.getpid()
    asked = socket.socket(fileno=handle)
    while True:
        request, handles, _, _ = socket.recv_fds(asked, _REQUEST.size, len(Handles._fields))
        if not request:
            os._exit(0)
        what, pid = _REQUEST.unpack(request)
        if what == _FORK:
            pid = os.fork()
            if pid == 0:
                asked.close()
                work(Handles(*handles), parent=me)
            for copied in handles:
                os.close(copied)
            asked.send(_REPLY.pack(pid))
            continue
        if what == _END:
            os.kill(pid, signal.SIGKILL)
        asked.send(_REPLY.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
