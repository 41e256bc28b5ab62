"""Measures: the papers' rules, by hand."""

from __future__ import annotations

import pytest

import fedkeel as fk
from fedkeel.report.measures import (
    FINAL,
    FinalAccuracy,
    MeanOfLast,
    Measure,
    SmoothedTop,
    TopAccuracy,
    parse_measure,
)

CURVE = [(1, 0.1), (2, 0.9), (3, 0.4), (4, 0.6), (5, 0.5)]


@pytest.mark.parametrize(
    ("measure", "score"),
    [
        (FINAL, 0.5),
        (TopAccuracy(), 0.9),
        (MeanOfLast(1), 0.5),
        (MeanOfLast(3), 0.5),
        (MeanOfLast(99), 0.5),
        (SmoothedTop(2, width=2), 0.55),  # means of two: 0.5, 0.65, 0.5, 0.55; those of rounds 4 and 5 count
        (SmoothedTop(4, width=2), 0.65),
        (SmoothedTop(5, width=1), 0.9),
        (SmoothedTop(50, width=9), 0.5),
    ],
)
def test_scores(measure: Measure, score: float) -> None:
    assert measure.score(CURVE) == pytest.approx(score)


def test_rounds_are_counted_and_not_evaluations() -> None:
    sparse = [(10, 0.2), (20, 0.4), (30, 0.8)]
    assert MeanOfLast(10).score(sparse) == pytest.approx(0.8)
    assert MeanOfLast(11).score(sparse) == pytest.approx(0.6)
    assert SmoothedTop(10, width=2).score(sparse) == pytest.approx(0.6)


def test_one_evaluation_is_enough_for_every_measure() -> None:
    for measure in (FINAL, TopAccuracy(), MeanOfLast(5), SmoothedTop()):
        assert measure.score([(3, 0.7)]) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("final", FinalAccuracy()),
        ("top", TopAccuracy()),
        ("last:20", MeanOfLast(20)),
        ("smoothed:50", SmoothedTop(50)),
        ("smoothed:50:9", SmoothedTop(50, 9)),
    ],
)
def test_measures_are_read_and_written(text: str, measure: Measure) -> None:
    assert parse_measure(text) == measure
    assert str(measure) == text


@pytest.mark.parametrize(
    "text", ["", "finale", "last", "last:0", "last:x", "top:3", "smoothed:5:2:1", "last:-1"]
)
def test_other_texts_are_refused_with_the_choice(text: str) -> None:
    with pytest.raises(fk.ConfigError, match=r"choose final, top, last:K or smoothed:K"):
        parse_measure(text)
