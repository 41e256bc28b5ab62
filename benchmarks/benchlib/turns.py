"""A contender's side of the race: it runs rounds when told, and says how long they took.

The driver writes a line with a number of rounds to the standard input; after so many rounds the contender
answers with one JSON line. Between turns it waits in `round_done`, which uses no processor, so contenders of
different frameworks can be interleaved in one run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


class Enough(BaseException):
    """The driver wants no more rounds. Not an `Exception`, so that no framework takes it for a failure."""


class Turns:
    """Call `round_done` after every round, from wherever the framework lets us."""

    def __init__(self, warm: int, **facts: Any) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # whatever a framework prints is no answer
        self._asked, self._rounds, self._started = warm, 0, time.perf_counter()
        self.facts = facts
        self._answer = {"ready": facts}

    def round_done(self) -> None:
        """Answer if the turn is over, and wait for the next. The first turn warms up."""
        now = time.perf_counter()
        self._rounds += 1
        if self._rounds < self._asked:
            return
        seconds = (now - self._started) / self._rounds
        self._out.write(json.dumps({**self._answer, "seconds": seconds}) + "\n")
        self._out.flush()
        line = sys.stdin.readline().strip()
        if not line:
            raise Enough
        self._answer, self._asked, self._rounds = {}, int(line), 0
        self._started = time.perf_counter()


def job() -> dict[str, Any]:
    """Return what the driver asks for: workload, data, options."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given
