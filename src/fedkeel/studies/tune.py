"""Hyper-parameter search on Optuna: a journal file keeps every trial, hopeless ones are pruned by rounds."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.errors import ConfigError, Diverged, StorageError
from fedkeel.experiment import Experiment
from fedkeel.expression import parse
from fedkeel.runs import storage, write_durably

JOURNAL, FILE = "journal.log", "search.json"


class Uniform(NamedTuple):
    """A number between two others."""

    low: float
    high: float


class Log(NamedTuple):
    """A number between two positive others, its logarithm uniform."""

    low: float
    high: float


class Integer(NamedTuple):
    """A whole number between two others, both included."""

    low: int
    high: int


class Choice(NamedTuple):
    """One of several values."""

    values: tuple[Any, ...]


Range = Uniform | Log | Integer | Choice


class Knob(NamedTuple):
    """A setting to search: its key, the text around the value, and the range."""

    key: str
    template: str
    range: Range

    def setting(self, value: object) -> str:
        """Return the setting with a value in it."""
        return f"{self.key}={self.template.replace('{}', str(value))}"


class Tuned(NamedTuple):
    """What a search found: the best settings and accuracy, and how many trials ran, were pruned, diverged."""

    best: dict[str, Any] | None
    accuracy: float | None
    settings: list[str]
    trials: int
    pruned: int
    failed: int


def knob(text: str) -> Knob:
    """Read `work.lr=log(0.001, 1)` or `method=FedInit(beta={uniform(0, 0.2)})`."""
    key, equals, rest = text.partition("=")
    if not equals:
        raise ConfigError(f"tune: {text!r}: write a key and a range, as in work.lr=log(0.001, 1)")
    inside = re.search(r"\{(.*)\}", rest)
    template = rest if inside is None else rest.replace(inside.group(0), "{}")
    made = parse(rest if inside is None else inside.group(1), _RANGES, kind="range")
    if not isinstance(made, Choice) and not made.low < made.high:
        raise ConfigError(f"tune: {text!r}: the range must rise")
    if isinstance(made, Log) and made.low <= 0:
        raise ConfigError(f"tune: {text!r}: a logarithmic range starts above 0")
    return Knob(key.strip(), "{}" if inside is None else template.strip(), made)


def tune(
    base: Experiment,
    knobs: Sequence[Knob],
    out: Path,
    *,
    trials: int = 20,
    seed: int = 0,
    told: Callable[[int, float | None, Mapping[str, Any]], None] | None = None,
) -> Tuned:
    """Search for the settings with the best final accuracy; go on with what the journal holds.

    Trials are counted over all runs of the search. A trial is pruned where its accuracy after some rounds is
    below the median of the others at that point. `told` hears of each trial: its number, accuracy, settings.
    """
    optuna = _optuna()
    _same_search(out, {"experiment": base.table(), "knobs": [repr(one) for one in knobs]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        backend = optuna.storages.journal.JournalFileBackend(str(out / JOURNAL))
        study = optuna.create_study(
            study_name="fedkeel",
            storage=optuna.storages.JournalStorage(backend),
            load_if_exists=True,
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=max(1, base.rounds // 5)),
        )
    before = len(_over(study, optuna))
    for _ in range(before, trials):
        trial = study.ask()
        chosen = {one.key: _suggest(trial, one) for one in knobs}
        state, value = _attempt(base, knobs, chosen, trial, optuna)
        study.tell(trial, value if state == optuna.trial.TrialState.COMPLETE else None, state=state)
        if told is not None:
            told(trial.number, value, chosen)
    return _summary(study, knobs, optuna)


def _same_search(out: Path, described: Mapping[str, Any]) -> None:
    """Write what is searched, or refuse a directory that holds another search."""
    path, text = out / FILE, json.dumps(described, sort_keys=True, ensure_ascii=False, indent=2)
    with storage(out):
        out.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text() != text:
            raise StorageError(
                f"{out} belongs to another search (see {path}): choose another directory or the same settings"
            )
        if not path.exists() and any(out.iterdir()):
            raise StorageError(f"{out}: is not empty and holds no search: choose an empty or new directory")
        write_durably(path, text.encode())


def _attempt(
    base: Experiment, knobs: Sequence[Knob], chosen: Mapping[str, Any], trial: Any, optuna: Any
) -> tuple[Any, float | None]:
    """Train with the chosen settings; return how it ended and the last accuracy."""
    experiment = base.with_settings([one.setting(chosen[one.key]) for one in knobs])
    last: list[float] = []

    def watch(row: Mapping[str, Any]) -> None:
        if row["accuracy"] is not None:
            last.append(row["accuracy"])
            trial.report(row["accuracy"], row["round"])
            if trial.should_prune():
                raise optuna.TrialPruned

    states = optuna.trial.TrialState
    try:
        experiment.train(callback=watch)
    except optuna.TrialPruned:
        return states.PRUNED, last[-1]
    except Diverged:
        return states.FAIL, None
    return states.COMPLETE, last[-1]


def _suggest(trial: Any, one: Knob) -> Any:
    match one.range:
        case Uniform(low, high):
            return trial.suggest_float(one.key, low, high)
        case Log(low, high):
            return trial.suggest_float(one.key, low, high, log=True)
        case Integer(low, high):
            return trial.suggest_int(one.key, low, high)
        case Choice(values):
            return trial.suggest_categorical(one.key, values)


def _over(study: Any, optuna: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.is_finished()]


def _summary(study: Any, knobs: Sequence[Knob], optuna: Any) -> Tuned:
    states = optuna.trial.TrialState
    ended = [trial.state for trial in _over(study, optuna)]
    best = study.best_trial if states.COMPLETE in ended else None
    return Tuned(
        None if best is None else dict(best.params),
        None if best is None else best.value,
        [] if best is None else [one.setting(best.params[one.key]) for one in knobs],
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


def uniform(low: float, high: float) -> Uniform:
    """A number between two others."""
    return Uniform(float(low), float(high))


def log(low: float, high: float) -> Log:
    """A number between two positive others, its logarithm uniform."""
    return Log(float(low), float(high))


def integer(low: int, high: int) -> Integer:
    """A whole number between two others."""
    return Integer(low, high)


def choice(*values: Any) -> Choice:
    """One of several values."""
    return Choice(values)


_RANGES: dict[str, Callable[..., Range]] = {
    "uniform": uniform,
    "log": log,
    "integer": integer,
    "choice": choice,
}
