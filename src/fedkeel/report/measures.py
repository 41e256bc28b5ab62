"""What a run scores: the last accuracy or other metric, means of some rounds, the top or a smoothed top."""

from __future__ import annotations

import re
import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace

from fedkeel.common.columns import DECLARED, KnownColumns
from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import frozen

AccuracyCurve = Sequence[tuple[int, float]]  # (rounds done, accuracy), of the rounds with an evaluation


class Measure(ABC):
    """A rule that makes one score of a run's accuracies; `str` gives the text that `parse_measure` reads."""

    @property
    def metric(self) -> str:
        """The column that it is of."""
        return "accuracy"

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return 1

    @property
    def known(self) -> KnownColumns:
        """What is declared of the runs' columns."""
        return DECLARED

    @property
    def is_diagnostic(self) -> bool:
        """Whether it is of a column of the run itself or of a probe, and no score of a model."""
        return self.known.is_diagnostic(self.metric)

    @property
    def percent(self) -> bool:
        """Whether it is written in per cent."""
        return self.known.describe(self.metric).percent

    @abstractmethod
    def score(self, curve: AccuracyCurve) -> float:
        """Return the score of a run with at least one evaluation."""

    def covers(self, curve: AccuracyCurve) -> bool:
        """Tell whether a run has an evaluation that counts."""
        return len(curve) > 0

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is called in a table."""

    def shown(self, value: float, spread: float | None = None) -> str:
        """Return a score as text, with its standard deviation where there is one."""
        return f"{100 * value:.1f}{'' if spread is None else f' ± {100 * spread:.1f}'} %"

    def shown_lead(self, gap: float) -> str:
        """Return by how much a score is better than another, which is named after these words."""
        return f"{100 * gap:.1f} points above"

    def shown_gap(self, gap: float) -> str:
        """Return a difference of two scores."""
        return f"{100 * gap:.1f} points"

    def shown_bound(self, gap: float) -> str:
        """Return an end of an interval of differences, finer near zero, where its sign decides."""
        points = 100 * gap
        return f"{points:.{1 if abs(points) >= 0.1 else 2}f}".replace("-", "−")


@frozen
class FinalAccuracy(Measure):
    """The accuracy after the last round."""

    def score(self, curve: AccuracyCurve) -> float:
        """Return the last accuracy."""
        return curve[-1][1]

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return "final accuracy"

    def __str__(self) -> str:
        return "final"


@frozen
class TopAccuracy(Measure):
    """The highest accuracy of the run (FedSAGD, Tables 2 and 11); chosen on the test set, so it flatters."""

    def score(self, curve: AccuracyCurve) -> float:
        """Return the highest accuracy."""
        return max(accuracy for _, accuracy in curve)

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return "top accuracy"

    def __str__(self) -> str:
        return "top"


@frozen
class MeanOfLast(Measure):
    """The mean accuracy over the last rounds, of those with an evaluation."""

    rounds: int

    def score(self, curve: AccuracyCurve) -> float:
        """Return the mean of what was evaluated in the last rounds."""
        return statistics.fmean(accuracy for _, accuracy in _last(curve, self.rounds))

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return f"mean accuracy of the last {self.rounds} rounds"

    def __str__(self) -> str:
        return f"last:{self.rounds}"


@frozen
class SmoothedTop(Measure):
    """FedInit's rule (its section 5.1): smooth the accuracies, then take the highest of the last 50 rounds.

    The paper says "smoothed by the convolution filter" and gives no width. Here it is the plain mean of
    `width` evaluations in succession, which counts for the round of its last one.
    """

    rounds: int = 50
    width: int = 5

    def score(self, curve: AccuracyCurve) -> float:
        """Return the highest of the means that end in the last rounds."""
        width = min(self.width, len(curve))
        means = [
            (curve[end - 1][0], statistics.fmean(accuracy for _, accuracy in curve[end - width : end]))
            for end in range(width, len(curve) + 1)
        ]
        return max(mean for _, mean in _last(means, self.rounds))

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return f"smoothed top accuracy of the last {self.rounds} rounds"

    def __str__(self) -> str:
        return f"smoothed:{self.rounds}" + (f":{self.width}" if self.width != SmoothedTop.width else "")


@frozen
class MeanOfShare(Measure):
    """The mean accuracy over a part of the run: of the evaluated rounds r with start·T < r ≤ end·T."""

    start: float
    end: float

    def score(self, curve: AccuracyCurve) -> float:
        """Return the mean of what was evaluated in that part."""
        if not self.covers(curve):
            raise ConfigError(
                f"measure {self}: no round of that part was evaluated: take a longer one, or eval_every = 1"
            )
        return statistics.fmean(self._inside(curve))

    def covers(self, curve: AccuracyCurve) -> bool:
        """Tell whether a round of that part was evaluated."""
        return bool(self._inside(curve))

    def _inside(self, curve: AccuracyCurve) -> list[float]:
        # the last round is always evaluated; 0.29 · 100 is 28.999999999999996 and means 29
        after, until = (round(share * curve[-1][0], 6) if curve else 0 for share in (self.start, self.end))
        return [accuracy for done, accuracy in curve if after < done <= until]

    @property
    def label(self) -> str:
        """What it is called in a table."""
        if self.start == 0:
            part = "all rounds" if self.end == 1 else f"the first {_percent(self.end)} of rounds"
            return f"mean accuracy of {part}"
        if self.end == 1:
            return f"mean accuracy after the first {_percent(self.start)} of rounds"
        return f"mean accuracy between {_percent(self.start)} and {_percent(self.end)} of the rounds"

    def __str__(self) -> str:
        return f"mean:{_plain(self.start)}:{_plain(self.end)}"


@frozen
class MetricMeasure(Measure):
    """A measure of another metric than the accuracy; `mode` is "max" where more is better, else "min".

    `declared` is what is known of the runs' columns.
    """

    inner: Measure
    column: str
    mode: str
    declared: KnownColumns = field(default=DECLARED, compare=False, repr=False)

    def by(self, rule: Measure) -> MetricMeasure:
        """Return the measure of the same column by another rule."""
        return replace(self, inner=rule)

    @property
    def known(self) -> KnownColumns:
        """What is declared of the runs' columns."""
        return self.declared

    @property
    def metric(self) -> str:
        """The column that it is of."""
        return self.column

    @property
    def sign(self) -> int:
        """1 where more is better, else -1."""
        return 1 if self.mode == "max" else -1

    def score(self, curve: AccuracyCurve) -> float:
        """Return the score; the top of what is better where it is less is the lowest."""
        return self.sign * self.inner.score([(round, self.sign * value) for round, value in curve])

    def covers(self, curve: AccuracyCurve) -> bool:
        """Tell whether a run has a value that counts."""
        return self.inner.covers(curve)

    @property
    def label(self) -> str:
        """What it is called in a table."""
        words = self.inner.label if self.mode == "max" else self.inner.label.replace("top", "lowest")
        return words.replace("accuracy", self.column)

    def shown(self, value: float, spread: float | None = None) -> str:
        """Return a score as text, with its standard deviation where there is one."""
        if self.percent:
            return super().shown(value, spread)
        return f"{value:.4g}{'' if spread is None else f' ± {spread:.2g}'}"

    def shown_lead(self, gap: float) -> str:
        """Return by how much a score is better than another."""
        return super().shown_lead(gap) if self.percent else f"{gap:.3g} better than"

    def shown_gap(self, gap: float) -> str:
        """Return a difference of two scores."""
        return super().shown_gap(gap) if self.percent else f"{gap:.3g}"

    def shown_bound(self, gap: float) -> str:
        """Return an end of an interval of differences."""
        return super().shown_bound(gap) if self.percent else f"{gap:.3g}".replace("-", "−")

    def __str__(self) -> str:
        return f"{self.inner} of {self.column} ({self.mode})"


FINAL = FinalAccuracy()


def parse_measure(text: str, known: KnownColumns = DECLARED) -> Measure:
    """Read a measure: `final`, `top`, `last:K`, `smoothed:K` or `smoothed:K:WIDTH`, `mean:A:B`.

    Of another column of the history than the accuracy it is written as `final of loss (min)`; without (min)
    or (max) the column's declaration, in `known`, says what is better.

    >>> parse_measure("last:20")
    MeanOfLast(rounds=20)
    """
    rule, column, mode = split_measure(text)
    if column is not None:
        inner = parse_measure(rule)
        return MetricMeasure(inner, column, mode or _declared_mode(text, column, known), known)
    name, *numbers = text.strip().split(":")
    if name == "mean":
        return _mean_of_share(text, numbers)
    whole = [int(number) for number in numbers if number.isdecimal() and int(number) > 0]
    if len(whole) == len(numbers):
        match name, whole:
            case "final", []:
                return FINAL
            case "top", []:
                return TopAccuracy()
            case "last", [rounds]:
                return MeanOfLast(rounds)
            case "smoothed", [] | [_] | [_, _]:
                return SmoothedTop(*whole)
    raise ConfigError(
        f"measure {text!r}: choose final, top, last:K or smoothed:K with a number of rounds, as last:20, or "
        "mean:A:B with shares of the run, as mean:0.5:1; of another column, as in 'final of loss (min)'"
    )


def split_measure(text: str) -> tuple[str, str | None, str | None]:
    """Return a measure's rule, its column and its mode, None where none is named."""
    found = re.fullmatch(r"(\S+) of (.+?)(?: \((max|min)\))?", text.strip())
    return (text, None, None) if found is None else (found[1], found[2], found[3])


def plain_measure(text: str) -> str:
    """Return a measure as it is written; it may leave open what is better of a column that only runs know.

    A user's own probe declares that, so it is said where the run's probes are known.
    """
    rule, column, mode = split_measure(text)
    if column is None or mode is not None or DECLARED.find(column) is not None:
        return str(parse_measure(text))
    return f"{parse_measure(rule)} of {column}"


def _declared_mode(text: str, column: str, known: KnownColumns) -> str:
    better = known.describe(column).better
    if better is None:
        raise ConfigError(
            f"measure {text!r}: say whether more or less of {column!r} is better, as in '{text} (max)' or "
            f"'{text} (min)'"
        )
    return "max" if better == "more" else "min"


def rule_of(measure: Measure) -> Measure:
    """Return a measure's rule, whatever column it is of."""
    return measure.inner if isinstance(measure, MetricMeasure) else measure


def _mean_of_share(text: str, numbers: Sequence[str]) -> Measure:
    shares = [float(number) for number in numbers if re.fullmatch(r"\d+(\.\d*)?|\.\d+", number)]
    if len(shares) == len(numbers) == 2 and 0 <= shares[0] < shares[1] <= 1:
        return MeanOfShare(*shares)
    raise ConfigError(
        f"measure {text!r}: give where the mean begins and ends as rising shares of the run between 0 and 1, "
        "as mean:0.5:1"
    )


def _last(curve: AccuracyCurve, rounds: int) -> AccuracyCurve:
    return [point for point in curve if point[0] > curve[-1][0] - rounds]


def _plain(share: float) -> str:
    """Return a number as short as it can be read back."""
    return f"{share:g}" if float(f"{share:g}") == share else repr(share)


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
