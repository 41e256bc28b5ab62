"""One worker process as the engine sees it."""

from __future__ import annotations

import signal
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

from fedkeel.engines.processes.nursery import hire
from fedkeel.engines.processes.shared import Slab
from fedkeel.engines.processes.worker import Handles, Start


class Hand:
    """A worker process: its pipe, its slabs, the piece it works on.

    `ready` once it has unpacked the setting, `briefed` once it knows what lies on the board.
    """

    def __init__(self, start: Start, data: Slab, board: Slab) -> None:
        self.pipe, theirs = Pipe()
        self.inbox, self.outbox = Slab(), Slab()
        self.piece: Any = None
        self.ready = self.briefed = False
        slabs = (data, board, self.inbox, self.outbox)
        with theirs:
            self._home, self.pid = hire(Handles(theirs.fileno(), *(slab.handle for slab in slabs)))
        with suppress(ConnectionError):  # its end is heard of at the first wait
            self.pipe.send(start)

    @property
    def died_idle(self) -> bool:
        """Tell whether a worker that was not asked anything has hung up."""
        return self.ready and self.piece is None and self.pipe.poll()

    def end(self) -> None:
        """End the process and give back what it held."""
        with suppress(ConnectionError, OSError):  # without its nursery it ends by itself
            self._home.end(self.pid)
        self._give_back()

    def bury(self) -> str:
        """Give back what a process held that has hung up, and say how it ended."""
        self._give_back()
        try:
            code = self._home.bury(self.pid)
        except OSError:
            return "its nursery ended"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _give_back(self) -> None:
        self.pipe.close()
        self.inbox.close()
        self.outbox.close()
