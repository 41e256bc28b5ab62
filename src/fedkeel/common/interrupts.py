"""Signals that ask a run to end: they stop it where that loses nothing, with a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_USUAL = (signal.SIG_DFL, signal.default_int_handler)
_AGAIN_SECONDS = 1.0  # a signal so soon after another one says nothing new
_IMPORT_SECONDS = 10.0  # how long a signal waits until an extension module is imported
_LOOK_AGAIN = 0.02
_IMPORTING = ("ExtensionFileLoader.create_module", "ExtensionFileLoader.exec_module")


class Interrupted(KeyboardInterrupt):
    """A signal asks this process to end; `name` is the signal's."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Raiser:
    """A handler that raises `Interrupted`, but not again while the first one is dealt with.

    A signal while an extension module is imported waits for its end: the module would make an ImportError of
    the exception, and stay half imported.
    """

    def __init__(self) -> None:
        self._last = -_AGAIN_SECONDS
        self._imports = _extensions_below(sys._getframe())
        self._waits_since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if _extensions_below(frame) > self._imports:
            self._waits_since = self._waits_since or now
            if now - self._waits_since < _IMPORT_SECONDS:
                again = threading.Timer(_LOOK_AGAIN, os.kill, (os.getpid(), number))
                again.daemon = True
                again.start()
                return
        self._waits_since = None
        if now - self._last >= _AGAIN_SECONDS:
            self._last = now
            raise Interrupted(signal.Signals(number).name)


def _extensions_below(frame: FrameType | None) -> int:
    """Return how many extension modules are being imported."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_qualname in _IMPORTING
        frame = frame.f_back
    return count


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, by an exception.

    Signals that somebody handles already, or that are ignored (`nohup`), are left alone, and so is every
    thread but the main one, where Python takes signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = raise_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_on_signals() -> dict[signal.Signals, Any]:
    """Let signals that nobody handles raise an exception from now on; return how they were dealt with."""
    raiser = _Raiser()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = {number: handler for number, handler in before.items() if handler in _USUAL}
    for number in ours:
        signal.signal(number, raiser)
    return ours


@contextmanager
def uninterrupted(*, forget: bool = False) -> Iterator[None]:
    """Let a signal that arrives inside the block take effect at its end, or not at all (`forget`)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[signal.Signals, FrameType | None]] = []
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, frame: arrived.append((signal.Signals(number), frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived and not forget:
            before[arrived[0][0]](*arrived[0])
