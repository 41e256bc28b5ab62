"""Do the measures that a table asks for fit the runs? Said before the first round, not after the last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from fedkeel.common.columns import DECLARED, RUN_COLUMNS, VALIDATION, KnownColumns
from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.report.measures import MeanOfLast, parse_measure, plain_measure, rule_of, split_measure
from fedkeel.report.table_columns import measure_columns, parse_columns

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment
    from fedkeel.probes import Probe

_SCORES = ("accuracy", "loss")
_LAYERS = "layers"  # stands for all columns of that probe, which are named as the model's tensors
_NO_NUMBERS = ("round", "stage", "cohort")


def check_scoring(experiments: Sequence[Experiment], measure: str, columns: Sequence[str]) -> None:
    """Refuse a measure, or a column that is one, of more rounds or of another column than the runs have.

    `experiments` are those that are run, one of each kind.
    """
    rounds = min(one.rounds for one in experiments)
    known = set.union(*map(_columns, experiments))
    check_measures([measure], rounds, known, "--measure")
    check_measures(measure_columns(columns), rounds, known, "--columns")
    for text in (measure, *measure_columns(columns)):
        _check_evaluated(text, experiments)


def scoring_of(
    measure: str, columns: str | Sequence[str], experiment: Experiment
) -> tuple[str, tuple[str, ...]]:
    """Return a measure and the columns of a table in their plain forms, which say what is better."""
    named = tuple(directed(name, experiment) for name in parse_columns(columns))
    return directed(plain_measure(measure), experiment), named


def directed(text: str, experiment: Experiment) -> str:
    """Return a measure that says what is better; where it does not, the probe that reports its column does.

    Other texts, as columns of a table, stay as they are.
    """
    _, column, mode = split_measure(text)
    if column is None or mode is not None:
        return text
    known = KnownColumns(column for probe in _probes(experiment) for column in probe.columns)
    return str(parse_measure(text, known))


def check_measures(texts: Iterable[str], rounds: int, known: Collection[str], option: str) -> None:
    """Refuse measures of more rounds, or of other columns, than runs have; `option` names what was given."""
    for text in texts:
        measure = parse_measure(text)
        rule, column = rule_of(measure), measure.metric
        if isinstance(rule, MeanOfLast) and rule.rounds > rounds:
            raise ConfigError(f"{option} {text}: the runs have {rounds} rounds: give last:{rounds} or less")
        of_layer = column.startswith("layers/") and _LAYERS in known
        if column not in known and not of_layer:
            near = did_you_mean(column, known)
            probe = DECLARED.is_diagnostic(column) and "known:" in near
            raise ConfigError(
                f"{option} {text}: the runs have no column {column!r}; "
                f"{'ask for the probe that reports it, as --probe diversity' if probe else near}"
            )


def _check_evaluated(text: str, experiments: Sequence[Experiment]) -> None:
    """Refuse a part of the run in which no round is evaluated."""
    measure = parse_measure(text)
    if measure.metric.partition("/")[0].removeprefix(VALIDATION) not in _SCORES:
        return
    for one in experiments:
        rounds = {*range(one.eval_every, one.rounds + 1, one.eval_every), one.rounds}
        if not measure.covers([(done, 0.0) for done in sorted(rounds)]):
            raise ConfigError(
                f"measure {text}: in that part of {one.rounds} rounds none is evaluated (eval_every = "
                f"{one.eval_every}): take a longer part, or a smaller eval_every"
            )


def _columns(experiment: Experiment) -> set[str]:
    """Return the columns with numbers that a run's history will have; `_LAYERS` for those of layers."""
    import torch  # noqa: PLC0415  heavy

    from fedkeel.core.algorithm import Algorithm  # noqa: PLC0415
    from fedkeel.tensors.layout import Layout  # noqa: PLC0415

    method, x, layout = experiment.make_method(), torch.zeros(1), Layout((), ())
    parts = () if isinstance(method, Algorithm) else method.parts
    methods = [method] if isinstance(method, Algorithm) else [part.method for part in parts]
    models = {name for one in methods for name in list(one.models(one.init(x)))[1:]}
    scores = [*_SCORES, *(f"{score}/{model}" for model in models for score in _SCORES)]
    held_out = [f"{VALIDATION}{score}" for score in scores if experiment.data.validation]
    probes = _probes(experiment)
    read = (getattr(part.until, "probe", None) for part in parts)
    probes += [probe for probe in read if probe is not None]
    reported = [name for probe in probes for name in probe.names(layout) or (_LAYERS,)]
    numbers = [name for name in RUN_COLUMNS if name not in _NO_NUMBERS]
    return {*scores, *held_out, *reported, *numbers}


def _probes(experiment: Experiment) -> list[Probe]:
    """Return the probes of an experiment: those always on, and those that it names."""
    from fedkeel.experiments.expression import parse_probe  # noqa: PLC0415
    from fedkeel.probes import DEFAULT  # noqa: PLC0415  heavy

    return [*DEFAULT, *(parse_probe(text) for text in experiment.probes or ())]
