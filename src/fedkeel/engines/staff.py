"""One worker process as its parent sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe

from fedkeel.engines.pieces import Piece
from fedkeel.engines.shared import Slab
from fedkeel.engines.worker import Handles, Start

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Hand:
    """A worker process: its pipe, its slabs, the piece it works on.

    `ready` once it has unpacked the setting, `briefed` once it knows the round's order.
    """

    def __init__(self, start: Start, data: Slab, board: Slab) -> None:
        self.pipe, theirs = Pipe()
        self.inbox, self.outbox = Slab(), Slab()
        self.piece: Piece | None = None
        self.ready = self.briefed = False
        slabs = (data, board, self.inbox, self.outbox)
        handles = Handles(theirs.fileno(), *(slab.handle for slab in slabs))
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; sys.argv[:] = {sys.argv!r}; "
            "from fedkeel.engines.worker import Handles, main; "
            f"main(Handles{tuple(handles)!r}, parent={os.getpid()})"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                pass_fds=handles,
                process_group=0,  # a Ctrl-C in the terminal reaches the parent alone
            )
        with suppress(ConnectionError):  # its end is heard of at the first wait
            self.pipe.send(start)

    @property
    def pid(self) -> int:
        """Return the worker's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the process and give back what it held."""
        self._process.kill()
        self.bury()

    def bury(self) -> str:
        """Give back what a process held that has ended, and say how it ended."""
        code = self._process.wait()
        self.pipe.close()
        self.inbox.close()
        self.outbox.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
