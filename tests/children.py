"""For tests that start processes."""

from __future__ import annotations

import signal


def interruptible() -> None:
    """Take interrupts again: a suite in the background of a shell ignores them, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
