"""Callbacks: what hears of a run's rounds, and may end it early."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.running.round import Row
from fedkeel.running.selection import Selection

if TYPE_CHECKING:
    from fedkeel.running.result import Result

_METHODS = (
    "on_settings",
    "on_run_begin",
    "on_round_begin",
    "on_round_end",
    "on_run_end",
    "on_run_error",
)


class Callback:
    """Hears of a run's rounds: write the methods you need.

    `on_run_begin` and `on_round_end` may return True to end the run there: a normal end, after which `train`
    returns its result. Any other value is passed over. An exception ends the run too, and carries what there
    is of the result as its attribute `result`.
    """

    def on_settings(self, settings: Mapping[str, Any]) -> None:
        """Hear what the run is, before it begins: its settings as plain values, and its `run_dir`."""

    def on_run_begin(self, rows: Sequence[Row]) -> bool | None:
        """Hear that a run begins; `rows` are those of rounds before, where it is resumed."""

    def on_round_begin(self, round: int) -> None:
        """Hear that a round begins; they count from 0."""

    def on_round_end(self, row: Row) -> bool | None:
        """Hear of a finished round: its row of the history."""

    def on_run_end(self, result: Result) -> None:
        """Hear that a run has ended, early or not; not called where an exception ends it."""

    def on_run_error(self, problem: BaseException) -> None:
        """Hear that an exception has ended the run, `Stopped` (as by Ctrl-C) and `Diverged` among them."""


CallbackLike: TypeAlias = Callback | Callable[[Row], Any]


class EarlyStop(Callback):
    """Ends a run after `patience` evaluations without one that is better by more than `min_delta`.

    Better is by a column of the history, "max" or "min" of it; by default the accuracy, or the loss of a task
    without one. `result.best` is by the same column. Losses and metrics are those of validation data where
    there is some, else of the test set, with a warning: the accuracy of a round chosen so flatters. A resumed
    run counts the rounds before with.
    """

    def __init__(
        self, patience: int, metric: str | None = None, mode: str | None = None, *, min_delta: float = 0.0
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ConfigError(f"EarlyStop: patience = {patience!r}: give a number of evaluations from 1 on")
        if not isinstance(min_delta, int | float) or not min_delta >= 0:
            raise ConfigError(f"EarlyStop: min_delta = {min_delta!r}: give a number from 0 on")
        self.patience, self.min_delta, self.selection = patience, min_delta, Selection(metric, mode)
        self._best: float | None = None
        self._since = 0

    def __repr__(self) -> str:
        chosen = f", {self.selection.metric!r}" if self.selection.metric else ""
        chosen += f", {self.selection.mode!r}" if self.selection.mode else ""
        return f"EarlyStop({self.patience}{chosen}{f', min_delta={self.min_delta}' * bool(self.min_delta)})"

    def on_run_begin(self, rows: Sequence[Row]) -> bool:
        """Begin anew, and count the rounds before."""
        self._best, self._since = None, 0
        for row in rows:
            self.on_round_end(row)
        return self._since >= self.patience

    def on_round_end(self, row: Row) -> bool:
        """Tell whether it is time to stop."""
        score = self.selection.score(row)
        if score is None:
            return False
        if self._best is None or score > self._best + self.min_delta:
            self._best, self._since = score, 0
        else:
            self._since += 1
        return self._since >= self.patience


class KeepBest(Callback):
    """Says by which column of the history `result.best` is chosen, "max" or "min" of it."""

    def __init__(self, metric: str, mode: str | None = None) -> None:
        self.selection = Selection(metric, mode)


class CallbackList:
    """All callbacks of a run, called in order: best model, recorder, the user's own, progress."""

    def __init__(self, given: CallbackLike | Sequence[CallbackLike] | None) -> None:
        self.given = listed(given)
        for one in self.given:
            _check(one)

    @property
    def selections(self) -> list[Selection]:
        """Return what callbacks go by."""
        found = (getattr(one, "selection", None) for one in self.given)
        return [one for one in found if isinstance(one, Selection)]

    @property
    def selection(self) -> Selection | None:
        """Return what the best round is chosen by; None where no callback says."""
        return next((one for one in self.selections if one.metric), None)

    @property
    def ask_for_settings(self) -> bool:
        """Tell whether one wants to hear of the settings: to collect them takes a moment."""
        return any(_hears(one, "on_settings") for one in self.given)

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Tell all what the run is."""
        for one in self.given:
            _call(one, "on_settings", settings)

    @contextmanager
    def told_of_errors(self) -> Iterator[None]:
        """Tell all of an exception that ends the run; what goes wrong in that is not worth another."""
        try:
            yield
        except BaseException as problem:
            for one in self.given:
                with suppress(Exception):
                    _call(one, "on_run_error", problem)
            raise

    def run_begin(self, rows: Sequence[Row]) -> str | None:
        """Tell all that a run begins; return who ends it at once, None where nobody does."""
        return self._first([(one, _call(one, "on_run_begin", rows)) for one in self.given])

    def round_begin(self, round: int) -> None:
        """Tell all that a round begins."""
        for one in self.given:
            _call(one, "on_round_begin", round)

    def round_end(self, row: Row) -> str | None:
        """Tell all of a finished round; return who ends the run here, None where nobody does."""
        return self._first([(one, _call(one, "on_round_end", row)) for one in self.given])

    def run_end(self, result: Result) -> None:
        """Tell all that the run has ended."""
        for one in self.given:
            _call(one, "on_run_end", result)

    def _first(self, returned_by: list[tuple[object, Any]]) -> str | None:
        return next((_name(one) for one, returned in returned_by if _is_true(returned)), None)


def listed(given: Any) -> list[Any]:
    """Return callbacks as a list, whether one, several or none are given."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _check(one: object) -> None:
    """Refuse what hears nothing, and methods that nobody would call."""
    if isinstance(one, type):
        raise ConfigError(
            f"callbacks: {one.__name__}: that is a class: give an object, as in {one.__name__}(…)"
        )
    words = [name for name in dir(type(one)) if name.startswith("on_")]
    for word in words:
        if word not in _METHODS:
            raise ConfigError(
                f"callbacks: {type(one).__name__}: nobody calls {word!r}; {did_you_mean(word, _METHODS)}"
            )
    if not words and not callable(one):
        raise ConfigError(
            f"callbacks: {one!r}: give a function of a round's row, or an object with {', '.join(_METHODS)}"
        )


def _hears(one: object, name: str) -> bool:
    """Tell whether an object has a method of its own for something, not only the empty one of `Callback`."""
    return getattr(type(one), name, None) not in (None, getattr(Callback, name))


def _call(one: Any, name: str, argument: object) -> Any:
    method = getattr(one, name, None)
    if method is not None:
        return method(argument)
    return one(argument) if name == "on_round_end" and callable(one) else None


def _is_true(returned: object) -> bool:
    """Tell whether a value is True, Python's or NumPy's; 1 is not."""
    return type(returned).__name__ in {"bool", "bool_"} and bool(returned)


def _name(one: object) -> str:
    if type(one).__repr__ is object.__repr__:
        return type(one).__name__
    return str(getattr(one, "__qualname__", None) or repr(one))
