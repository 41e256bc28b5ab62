"""Curves that keep few points: of all lengths, with every peak, at rounds that runs have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedkeel.web.thinning import ThinnedCurve


def curve_of(values: list[float], most: int) -> ThinnedCurve:
    curve = ThinnedCurve(most)
    for round, value in enumerate(values, start=1):
        curve.add([round], [value])
    return curve


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), min_size=1, max_size=5),
    st.integers(2, 40),
    st.integers(1, 10),
)
def test_points_added_together_leave_the_buckets_of_points_added_one_by_one(
    parts: list[list[float]], most: int, every: int
) -> None:
    together, one_by_one = ThinnedCurve(most), ThinnedCurve(most)
    done = 0
    for part in parts:
        rounds = [1 + every * (done + index) for index in range(len(part))]
        together.add(rounds, part)
        for round, value in zip(rounds, part, strict=True):
            one_by_one.add([round], [value])
        done += len(part)
    assert together.width == one_by_one.width
    assert together.points() == one_by_one.points()


def test_points_ahead_are_drawn_until_what_lies_there_is_read() -> None:
    curve = ThinnedCurve(10)
    curve.ahead = [(3, 3.0), (6, 6.0)]
    assert curve.points() == [(3, 3.0), (6, 6.0)]
    curve.add([1, 2, 3], [9.0, 8.0, 7.0])
    assert curve.points() == [(1, 9.0), (2, 8.0), (3, 7.0), (6, 6.0)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(2, 40))
def test_a_thinned_curve_has_few_points_and_the_first_last_lowest_and_highest(
    values: list[float], most: int
) -> None:
    points = curve_of(values, most).points()
    assert len(points) <= 3 * most + 1
    assert points == sorted(points)
    assert set(points) <= set(enumerate(values, start=1))
    assert points[0] == (1, values[0])
    assert points[-1] == (len(values), values[-1])
    assert {min(values), max(values)} <= {value for _, value in points}


def test_a_short_curve_is_whole() -> None:
    assert [value for _, value in curve_of([3.0, 1.0, 2.0], 10).points()] == [3.0, 1.0, 2.0]


def test_a_peak_of_one_round_among_ten_thousand_stays() -> None:
    values = [1.0] * 10_000
    values[7_777] = 50.0
    assert (7_778, 50.0) in curve_of(values, 50).points()


def test_runs_of_one_length_keep_points_at_the_same_rounds() -> None:
    a, b = (
        curve_of([float(i % 7) for i in range(1000)], 50),
        curve_of([float(-i % 11) for i in range(1000)], 50),
    )
    assert [bucket.first[0] for bucket in a.buckets] == [bucket.first[0] for bucket in b.buckets]


def test_limits_hold_afterwards() -> None:
    curve = curve_of([float(i) for i in range(300)], 100)
    curve.limit(10)
    assert len(curve.points()) <= 31
    assert curve.last == (300, 299.0)
