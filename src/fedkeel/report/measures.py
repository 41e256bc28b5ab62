"""What a run scores: the last accuracy, a mean of the last rounds, the top or a smoothed top."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedkeel.errors import ConfigError

AccuracyCurve = Sequence[tuple[int, float]]  # (rounds done, accuracy), of the rounds with an evaluation


class Measure(Protocol):
    """A rule that makes one score of a run's accuracies; `str` gives the text that `parse_measure` reads."""

    def score(self, curve: AccuracyCurve) -> float:
        """Return the score of a run with at least one evaluation."""

    @property
    def label(self) -> str:
        """What it is called in a table."""


@dataclass(frozen=True)
class FinalAccuracy:
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


@dataclass(frozen=True)
class TopAccuracy:
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


@dataclass(frozen=True)
class MeanOfLast:
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


@dataclass(frozen=True)
class SmoothedTop:
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


FINAL = FinalAccuracy()


def parse_measure(text: str) -> Measure:
    """Read a measure: `final`, `top`, `last:K`, `smoothed:K` or `smoothed:K:WIDTH`.

    >>> parse_measure("last:20")
    MeanOfLast(rounds=20)
    """
    name, *numbers = text.strip().split(":")
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
        f"measure {text!r}: choose final, top, last:K or smoothed:K with a number of rounds, as last:20"
    )


def _last(curve: AccuracyCurve, rounds: int) -> AccuracyCurve:
    return [point for point in curve if point[0] > curve[-1][0] - rounds]
