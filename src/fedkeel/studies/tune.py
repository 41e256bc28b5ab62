"""Hyper-parameter search on Optuna: a journal file keeps every trial, hopeless ones are pruned by rounds."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError, Diverged, Stopped
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse
from fedkeel.experiments.placement import ONE_BY_ONE, Placement
from fedkeel.running.callbacks import Callback
from fedkeel.running.round import Row
from fedkeel.running.selection import ON_TEST_SET, Selection
from fedkeel.studies.artifacts import open_directory
from fedkeel.tensors.streams import Stream

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
        self.reports: dict[int, float] = {}
        self._trial, self._pruned = trial, pruned

    def on_round_end(self, row: Row) -> None:
        """Report a round that was evaluated."""
        score = self.selection.score(row)
        if score is None:
            return
        self.last, self.column = score, self.selection.column(row)
        self.reports[row["round"]] = score
        if self._trial is None:  # of a further seed
            return
        self._trial.report(score, row["round"])
        if self._trial.should_prune():
            raise self._pruned


class EndedTrial(NamedTuple):
    """How a trial ended (as Optuna names it), its last score, whose it is, and its scores by round."""

    state: str
    value: float | None
    column: str | None
    reports: dict[int, float]


class Tuned(NamedTuple):
    """What a search found: the best settings and their score, and how many trials ran, were pruned, diverged.

    `column` says what the score is of: `validation_accuracy`, or `accuracy` on the test set.
    """

    best: dict[str, Any] | None
    score: float | None
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
    at_once: int = 1,
    placement: Placement = ONE_BY_ONE,
    seeds: int = 1,
    there: Callable[[int], None] | None = None,
    told: Callable[[int, str, float | None, Mapping[str, Any]], None] | None = None,
) -> Tuned:
    """Search for the settings with the best final accuracy; go on with what the journal holds.

    The accuracy is that of validation data (`data.validation`) where there is some, else of the test set.
    Trials are counted over all calls; each draws from the seed and its own number, so a search that was
    interrupted finds what an uninterrupted one does. With several `seeds` a trial is scored by the mean over
    them, and pruned in its first one. A trial is pruned where its accuracy after some rounds
    is below the median of the others at that point. `at_once` trials are drawn together and run where
    `placement` says: they know of the ones before them, not of each other. `there` hears how many trials
    there are already, `told` of each trial: its number, how it ended ("complete", "pruned" or "fail": it
    diverged), accuracy, settings.
    """
    optuna = _optuna()
    _check(base, knobs)
    open_directory(out, "search", search_settings(base, knobs, seeds))
    study = _kept_study(out)
    known = {_number(trial, index): trial for index, trial in enumerate(_over(study))}
    if there is not None:
        there(len(known))

    def take(number: int, ended: EndedTrial) -> None:
        drawn = asked[number]
        known[number] = optuna.trial.create_trial(
            state=optuna.trial.TrialState[ended.state],
            value=ended.value if ended.state == "COMPLETE" else None,
            params=drawn.params,
            distributions=drawn.distributions,
            user_attrs={"number": number, **({} if ended.column is None else {"column": ended.column})},
            intermediate_values=ended.reports,
        )
        study.add_trial(known[number])
        if told is not None:
            told(number, ended.state.lower(), ended.value, drawn.params)

    for start in range(0, trials, at_once):
        numbers = [number for number in range(start, min(start + at_once, trials)) if number not in known]
        earlier = [known[number] for number in sorted(known) if number < start]
        asked = {number: _ask(earlier, knobs, _sampler_seed(seed, number)) for number in numbers}
        jobs = {
            number: (base.table(), knobs, dict(one.params), earlier, seeds) for number, one in asked.items()
        }
        try:
            placement.run(attempt, jobs, out, take)
        except Stopped:
            left = min(number for number in numbers if number not in known)
            raise Stopped(f"stopped in trial {left + 1} of {trials}, which begins anew") from None
    return _summary(study, knobs, optuna)


def _kept_study(out: Path) -> Any:
    """Return Optuna's study of a directory."""
    optuna = _optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = optuna.storages.journal.JournalFileBackend(str(out / JOURNAL))
        return optuna.create_study(
            study_name="fedkeel",
            storage=optuna.storages.JournalStorage(backend),
            load_if_exists=True,
            direction="maximize",
        )


def read_trials(out: Path) -> list[dict[str, Any]]:
    """Return how every finished trial of a search ended, in the order of their numbers."""
    trials = [
        {
            "trial": _number(trial, index),
            "settings": dict(trial.params),
            "value": _last(trial),
            "state": {"COMPLETE": "complete", "PRUNED": "pruned"}.get(trial.state.name, "diverged"),
        }
        for index, trial in enumerate(_over(_kept_study(out)))
    ]
    return sorted(trials, key=lambda one: one["trial"])


def _last(trial: Any) -> float | None:
    """Return a trial's score, of a pruned one that of its last evaluation."""
    if trial.value is not None:
        return float(trial.value)
    reports = trial.intermediate_values
    return float(reports[max(reports)]) if reports else None


def search_settings(base: Experiment, knobs: Sequence[SearchedSetting], seeds: int) -> dict[str, Any]:
    """Return what a search's directory belongs to."""
    several = {} if seeds == 1 else {"seeds": seeds}
    return {**base.table(), "knobs": [repr(one) for one in knobs], **several}


def attempt(
    table: Mapping[str, Any],
    knobs: Sequence[SearchedSetting],
    chosen: Mapping[str, Any],
    earlier: Sequence[Any],
    seeds: int = 1,
) -> EndedTrial:
    """Train with the chosen settings, pruned where earlier trials did better; return how it ended."""
    optuna, base = _optuna(), Experiment.from_table(table)
    experiment = base.with_settings([one.setting(chosen) for one in knobs])
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=max(1, base.rounds // 5))
    trial = _study_of(earlier, pruner=pruner).ask()
    reported = PrunedTrial(trial, optuna.TrialPruned)
    others = [PrunedTrial(None, optuna.TrialPruned) for _ in range(seeds - 1)]
    try:
        with warnings.catch_warnings():  # that it selects on the test set is said once, at the end
            warnings.filterwarnings("ignore", message=f".*{re.escape(ON_TEST_SET)}")
            for seed, one in enumerate([reported, *others], start=base.seed):
                experiment.model_copy(update={"seed": seed}).train(callbacks=one)
    except optuna.TrialPruned:
        return EndedTrial("PRUNED", reported.last, reported.column, reported.reports)
    except Diverged:
        return EndedTrial("FAIL", None, None, {})
    mean = math.fsum(one.last for one in [reported, *others]) / seeds
    return EndedTrial("COMPLETE", mean, reported.column, reported.reports)


def _ask(earlier: Sequence[Any], knobs: Sequence[SearchedSetting], seed: int) -> Any:
    """Return a trial with settings drawn in the knowledge of earlier ones."""
    trial = _study_of(earlier, sampler=_optuna().samplers.TPESampler(seed=seed)).ask()
    for one in knobs:
        for name, made in zip(one.names, one.ranges, strict=True):
            _suggest(trial, name, made)
    return trial


def _study_of(earlier: Sequence[Any], **options: Any) -> Any:
    """Return a study in memory that knows of some trials."""
    study = _optuna().create_study(direction="maximize", **options)
    study.add_trials(earlier)
    return study


def _number(trial: Any, index: int) -> int:
    """Return a finished trial's number; journals of older versions do not hold it."""
    number: int = trial.user_attrs.get("number", index)
    return number


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
