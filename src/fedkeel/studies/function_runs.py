"""Runs that a function of the user's makes, as some of many; they keep nothing, unless the function does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError, Diverged
from fedkeel.common.progress import RunProgress
from fedkeel.engines.jobs.pickles import Known, Packed, pack, unpack
from fedkeel.experiments.run_all import RunEvents
from fedkeel.running.result import Result
from fedkeel.running.shown import part_of


class FunctionResult(NamedTuple):
    """What a function returned, or what there was of a run that diverged, and why it did."""

    result: Result
    problem: str | None

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The run's history."""
        return self.result.history


class FunctionRun(NamedTuple):
    """A run that a function makes."""

    function: Callable[[Any, int], Result]
    choice: Any
    name: str
    seed: int
    number: int
    display: RunProgress | None

    @property
    def directory(self) -> Path:
        """A name of its own; nothing is written there."""
        return Path(f"{self.number}")

    @property
    def rounds(self) -> int:
        """Unknown: the function says."""
        return 0

    @property
    def cost(self) -> float:
        """What a round costs."""
        return 1.0

    @property
    def sendable(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function that makes it in another process, and what that takes."""
        return _made_elsewhere, (pack((self.function, self.choice, self.name), Known()), self.seed)

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    def finished(self) -> None:
        """Return nothing: only the function knows."""

    def run(self, on_row: Callable[[Any], None] | None = None) -> FunctionResult:
        """Call the function."""
        with part_of(self.display, self.number):
            return _made(self.function, self.choice, self.name, self.seed)

    def rounds_done(self) -> int:
        """Return 0: only the function knows."""
        return 0


class TakenRuns(RunEvents):
    """Hands over what has ended."""

    def __init__(self, take: Callable[[FunctionRun, FunctionResult], None]) -> None:
        self._take = take

    def ended(self, run: Any, result: FunctionResult | Packed, *, kept: bool) -> None:
        """Hand it over."""
        self._take(run, unpack(result) if isinstance(result, Packed) else result)


def _made(run: Callable[[Any, int], Result], choice: Any, name: str, seed: int) -> FunctionResult:
    """Make one run; what there is of one that diverged is a result too."""
    try:
        return FunctionResult(_checked(run(choice, seed), name, seed), None)
    except Diverged as diverged:
        return FunctionResult(diverged.result, str(diverged))


def _made_elsewhere(packed: Packed, seed: int) -> Packed:
    """Make one run in another process."""
    run, choice, name = unpack(packed)
    result, problem = _made(run, choice, name, seed)
    return pack(FunctionResult(replace(result, client_states={}), problem), Known())


def _checked(result: object, name: str, seed: int) -> Result:
    if not isinstance(result, Result):
        raise ConfigError(
            f"{name}, seed {seed}: the function returned {type(result).__name__}: give train's result"
        )
    return result
