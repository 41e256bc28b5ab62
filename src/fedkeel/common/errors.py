"""What can go wrong, one class per kind; the command line turns each into its exit code.

Every message names the thing, the value and the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class FedkeelError(Exception):
    """Base of all errors that fedkeel raises on purpose."""

    exit_code = 1
    result: Any = None  # what there is of a run that this ended: a `Result` of the rounds before


class ConfigError(FedkeelError, ValueError):
    """A setting is unknown, of the wrong type, out of range, or does not fit another."""

    exit_code = 2


class DataError(FedkeelError, ValueError):
    """The data is missing, corrupt, or does not fit the model."""

    exit_code = 3


class Diverged(FedkeelError):
    """A loss or a model turned NaN or infinite."""

    exit_code = 4

    def __init__(
        self, message: str, *, round: int, client: int | None = None, layer: str | None = None
    ) -> None:
        super().__init__(message)
        self.round, self.client, self.layer = round, client, layer


class TooFewClients(FedkeelError):
    """Fewer clients answered than the round needs."""

    exit_code = 5


class ClientFailed(TooFewClients):
    """A client failed in a run in which all must answer; its cause is what the client raised, if it did."""

    def __init__(self, message: str, *, round: int, client: int) -> None:
        super().__init__(message)
        self.round, self.client = round, client


class RunsLost(FedkeelError):
    """Some of many runs ended the process that made them, as when memory runs out; the others are done."""

    exit_code = 5


class StorageError(FedkeelError):
    """A run directory cannot be read or written, or belongs to another experiment."""

    exit_code = 6


class Stopped(FedkeelError):
    """The user stopped the run: `result` is what there is; on disk too where a run directory was given."""

    exit_code = 130


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown word: a near miss, else all that is known."""
    known = sorted(known)
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in known], n=1, cutoff=0.65)
    if near:
        return f"did you mean {next(name for name in known if name.lower() == near[0])!r}?"
    return f"known: {', '.join(known)}"
