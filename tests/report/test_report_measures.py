"""Measures: the papers' rules, by hand."""

from __future__ import annotations

import pytest

import fedkeel as fk
from fedkeel.report.measures import (
    FINAL,
    FinalAccuracy,
    MeanOfLast,
    MeanOfShare,
    Measure,
    MetricMeasure,
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
        (MeanOfShare(0, 1), 0.5),
        (MeanOfShare(0.2, 0.6), 0.65),  # rounds 2 and 3 of 5
        (MeanOfShare(0.5, 1), 0.5),
    ],
)
def test_scores(measure: Measure, score: float) -> None:
    assert measure.score(CURVE) == pytest.approx(score)


def test_rounds_are_counted_and_not_evaluations() -> None:
    sparse = [(10, 0.2), (20, 0.4), (30, 0.8)]
    assert MeanOfLast(10).score(sparse) == pytest.approx(0.8)
    assert MeanOfLast(11).score(sparse) == pytest.approx(0.6)
    assert SmoothedTop(10, width=2).score(sparse) == pytest.approx(0.6)


def test_a_part_of_the_run_ends_at_the_round_that_is_meant() -> None:
    curve = [(done, float(done)) for done in range(1, 101)]
    for end in range(1, 101):  # 0.29 · 100 is below 29 in floating point
        assert MeanOfShare(0, end / 100).score(curve) == pytest.approx((1 + end) / 2)
        assert MeanOfShare((end - 1) / 100, end / 100).score(curve) == end


def test_a_part_without_an_evaluation_is_said() -> None:
    sparse = [(50, 0.2), (100, 0.4)]
    assert not MeanOfShare(0, 0.4).covers(sparse)
    assert MeanOfShare(0, 0.5).covers(sparse)
    assert not parse_measure("mean:0:0.4 of drift (min)").covers(sparse)
    with pytest.raises(fk.ConfigError, match=r"measure mean:0:0.4: no round of that part was evaluated"):
        MeanOfShare(0, 0.4).score(sparse)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("mean:0:1", "mean accuracy of all rounds"),
        ("mean:0:0.1", "mean accuracy of the first 10 % of rounds"),
        ("mean:0.05:1 of diversity (min)", "mean diversity after the first 5 % of rounds"),
        ("mean:0.25:0.75 of drift (max)", "mean drift between 25 % and 75 % of the rounds"),
    ],
)
def test_a_mean_is_called_by_its_part(text: str, label: str) -> None:
    assert parse_measure(text).label == label


@pytest.mark.parametrize(
    "text", ["mean", "mean:0.5", "mean:1:0.5", "mean:0:2", "mean:-1:1", "mean:a:b", "mean:.:1"]
)
def test_other_parts_are_refused(text: str) -> None:
    with pytest.raises(fk.ConfigError, match=r"rising shares of the run between 0 and 1, as mean:0.5:1"):
        parse_measure(text)


def test_every_column_of_a_history_has_measures() -> None:
    """Probes' columns, with a `/` too, and those of further models; an accuracy is written in percent."""
    for column in (
        "diversity",
        "cosine/round-3",
        "switching/C",
        "layers/0.weight",
        "train_loss",
        "accuracy/gamma",
    ):
        for mode, top in (("max", 0.9), ("min", 0.1)):
            measure = parse_measure(f"top of {column} ({mode})")
            assert measure.metric == column
            assert measure.score(CURVE) == top
            assert str(parse_measure(str(measure))) == str(measure)
            assert measure.shown(0.5).endswith(" %") == (column == "accuracy/gamma")


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
        ("mean:0:1", MeanOfShare(0, 1)),
        ("mean:0.05:0.123456789", MeanOfShare(0.05, 0.123456789)),
        ("mean:0.5:1 of cosine/round-3 (min)", MetricMeasure(MeanOfShare(0.5, 1), "cosine/round-3", "min")),
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
