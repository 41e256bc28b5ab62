"""Standard output and error where they are closed, full, or in an encoding without ±."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO


class LossyStream:
    """Standard error whose reader may be gone: what cannot be written is lost, and the work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, as far as that is possible."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as far as that is possible."""
        with suppress(OSError):
            self._stream.flush()


def prepare_streams() -> None:
    """Make both streams writable: replace a closed one, and characters that its encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed, as by >&-: there is nobody to tell
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):  # a pipe in the C locale cannot say ± otherwise
            stream.reconfigure(errors="replace")
    sys.stderr = LossyStream(sys.stderr)
