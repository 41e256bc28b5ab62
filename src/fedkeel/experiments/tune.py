"""Hyper-parameter search on Optuna: a journal file keeps every trial, hopeless ones are pruned by rounds."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.errors import ConfigError, Diverged, Stopped
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse
from fedkeel.running.callbacks import Callback
from fedkeel.running.round import Row
from fedkeel.running.selection import ON_TEST_SET, Selection
from fedkeel.streams import Stream
from fedkeel.studies.artifacts import open_directory

JOURNAL = "journal.log"
_BRACES = r"\{([^{}]*)\}"


class UniformRange(NamedTuple):
    """A number between two others."""

    low: float
    high: float


class LogRange(NamedTuple):
    """A number between two positive others, its logarithm uniform."""

    low: float
    high: float


class IntegerRange(NamedTuple):
    """A whole number between two others, both included."""

    low: int
    high: int


class ChoiceRange(NamedTuple):
    """One of several values."""

    values: tuple[Any, ...]


Range = UniformRange | LogRange | IntegerRange | ChoiceRange


class SearchedSetting(NamedTuple):
    """A setting to search: its key, a text with {} for each value, and the values' ranges."""

    key: str
    template: str
    ranges: tuple[Range, ...]

    @property
    def names(self) -> list[str]:
        """Return what its values are called: the key, numbered where there are several."""
        if len(self.ranges) == 1:
            return [self.key]
        return [f"{self.key}[{index}]" for index in range(len(self.ranges))]

    def setting(self, chosen: Mapping[str, Any]) -> str:
        """Return the setting with its values, by their names, in it."""
        first, *rest = self.template.split("{}")
        filled = zip((chosen[name] for name in self.names), rest, strict=True)
        return f"{self.key}={first}{''.join(f'{value}{text}' for value, text in filled)}"


class PrunedTrial(Callback):
    """Reports the evaluations of a trial to Optuna, and ends it where Optuna sees no hope in it.

    They are of validation data where there is some, else of the test set.
    """

    def __init__(self, trial: Any, pruned: type[Exception]) -> None:
        self.selection, self.last, self.column = Selection(), 0.0, ""
        self._trial, self._pruned = trial, pruned

    def on_round_end(self, row: Row) -> None:
        """Report a round that was evaluated."""
        score = self.selection.score(row)
        if score is None:
            return
        self.last, self.column = score, self.selection.column(row)
        self._trial.report(score, row["round"])
        if self._trial.should_prune():
            raise self._pruned


class Tuned(NamedTuple):
    """What a search found: the best settings and accuracy, and how many trials ran, were pruned, diverged.

    `column` says what the accuracy is of: `validation_accuracy`, or `accuracy` on the test set.
    """

    best: dict[str, Any] | None
    accuracy: float | None
    column: str | None
    settings: list[str]
    trials: int
    pruned: int
    failed: int


def knob(text: str) -> SearchedSetting:
    """Read `work.lr=log(0.001, 1)` or `method=FedSAGD(lam={log(0.01, 1)}, mu={log(0.001, 1)})`."""
    key, equals, rest = text.partition("=")
    if not equals:
        raise ConfigError(f"tune: {text!r}: write a key and a range, as in work.lr=log(0.001, 1)")
    inside: list[str] = re.findall(_BRACES, rest)
    template = re.sub(_BRACES, "{}", rest).strip() if inside else "{}"
    ranges = tuple(parse(one, _RANGES, kind="range") for one in inside or [rest])
    for made in ranges:
        if not isinstance(made, ChoiceRange) and not made.low < made.high:
            raise ConfigError(f"tune: {text!r}: the range must rise: give the smaller end first")
        if isinstance(made, LogRange) and made.low <= 0:
            raise ConfigError(f"tune: {text!r}: a logarithmic range starts above 0")
    return SearchedSetting(key.strip(), template, ranges)


def tune(
    base: Experiment,
    knobs: Sequence[SearchedSetting],
    out: Path,
    *,
    trials: int = 20,
    seed: int = 0,
    there: Callable[[int], None] | None = None,
    told: Callable[[int, str, float | None, Mapping[str, Any]], None] | None = None,
) -> Tuned:
    """Search for the settings with the best final accuracy; go on with what the journal holds.

    The accuracy is that of validation data (`data.validation`) where there is some, else of the test set.
    Trials are counted over all calls; each draws from the seed and its own number, so a search that was
    interrupted finds what an uninterrupted one does. A trial is pruned where its accuracy after some rounds
    is below the median of the others at that point. `there` hears how many trials there are already, `told`
    of each trial: its number, how it ended ("complete", "pruned" or "fail": it diverged), accuracy, settings.
    """
    optuna = _optuna()
    _check(base, knobs)
    open_directory(out, "search", {**base.table(), "knobs": [repr(one) for one in knobs]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = optuna.storages.journal.JournalFileBackend(str(out / JOURNAL))
        study = optuna.create_study(
            study_name="fedkeel",
            storage=optuna.storages.JournalStorage(backend),
            load_if_exists=True,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=max(1, base.rounds // 5)),
        )
    before = len(_over(study))
    if there is not None:
        there(before)
    for number in range(before, trials):
        study.sampler = optuna.samplers.TPESampler(seed=_sampler_seed(seed, number))
        trial = study.ask()
        chosen = {
            name: _suggest(trial, name, made)
            for one in knobs
            for name, made in zip(one.names, one.ranges, strict=True)
        }
        try:
            state, value = _attempt(base, knobs, chosen, trial, optuna)
        except Stopped:
            raise Stopped(f"stopped in trial {number + 1} of {trials}, which begins anew") from None
        study.tell(trial, value if state == optuna.trial.TrialState.COMPLETE else None, state=state)
        if told is not None:
            told(number, state.name.lower(), value, chosen)
    return _summary(study, knobs, optuna)


def _attempt(
    base: Experiment, knobs: Sequence[SearchedSetting], chosen: Mapping[str, Any], trial: Any, optuna: Any
) -> tuple[Any, float | None]:
    """Train with the chosen settings; return how it ended and the last accuracy."""
    experiment = base.with_settings([one.setting(chosen) for one in knobs])
    states, reported = optuna.trial.TrialState, PrunedTrial(trial, optuna.TrialPruned)
    try:
        with warnings.catch_warnings():  # that it selects on the test set is said once, at the end
            warnings.filterwarnings("ignore", message=f".*{re.escape(ON_TEST_SET)}")
            experiment.train(callback=reported)
    except optuna.TrialPruned:
        return states.PRUNED, reported.last
    except Diverged:
        return states.FAIL, None
    trial.set_user_attr("column", reported.column)
    return states.COMPLETE, reported.last


def _suggest(trial: Any, name: str, made: Range) -> Any:
    match made:
        case UniformRange(low, high):
            return trial.suggest_float(name, low, high)
        case LogRange(low, high):
            return trial.suggest_float(name, low, high, log=True)
        case IntegerRange(low, high):
            return trial.suggest_int(name, low, high)
        case ChoiceRange(values):
            return trial.suggest_categorical(name, values)


def _check(base: Experiment, knobs: Sequence[SearchedSetting]) -> None:
    """Refuse before the search what no trial could use, at one end of every range."""
    for one in knobs:
        base.with_settings([one.setting(dict(zip(one.names, map(_first, one.ranges), strict=True)))])


def _first(made: Range) -> Any:
    return made.values[0] if isinstance(made, ChoiceRange) else made.low


def _sampler_seed(seed: int, number: int) -> int:
    """Return what a trial draws from: Optuna takes 32 bits."""
    return Stream(seed).branch("trial", number).integer() % 2**32


def _over(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.is_finished()]


def _summary(study: Any, knobs: Sequence[SearchedSetting], optuna: Any) -> Tuned:
    states = optuna.trial.TrialState
    ended = [trial.state for trial in _over(study)]
    best = study.best_trial if states.COMPLETE in ended else None
    return Tuned(
        None if best is None else dict(best.params),
        None if best is None else best.value,
        None if best is None else best.user_attrs.get("column", "accuracy"),
        [] if best is None else [one.setting(best.params) for one in knobs],
        len(ended),
        ended.count(states.PRUNED),
        ended.count(states.FAIL),
    )


def _optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415  an extra
    except ImportError:
        raise ConfigError('fedkeel tune needs Optuna: pip install "fedkeel[tune]"') from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def uniform(low: float, high: float) -> UniformRange:
    """A number between two others."""
    return UniformRange(*_ends("uniform", low, high))


def log(low: float, high: float) -> LogRange:
    """A number between two positive others, its logarithm uniform."""
    return LogRange(*_ends("log", low, high))


def integer(low: int, high: int) -> IntegerRange:
    """A whole number between two others."""
    if not (isinstance(low, int) and isinstance(high, int)):
        raise ConfigError(f"integer({low!r}, {high!r}): give two whole numbers, as in integer(1, 10)")
    return IntegerRange(low, high)


def choice(*values: Any) -> ChoiceRange:
    """One of several values."""
    if not values:
        raise ConfigError("choice(): give the values, as in choice(1, 2, 5)")
    return ChoiceRange(values)


def _ends(name: str, low: object, high: object) -> tuple[float, float]:
    """Return the ends of a range as numbers."""
    ends = [float(end) for end in (low, high) if isinstance(end, int | float) and math.isfinite(end)]
    if len(ends) < 2:
        raise ConfigError(f"{name}({low!r}, {high!r}): give two numbers, as in {name}(0.01, 1)")
    return ends[0], ends[1]


_RANGES: dict[str, Callable[..., Range]] = {
    "uniform": uniform,
    "log": log,
    "integer": integer,
    "choice": choice,
}
