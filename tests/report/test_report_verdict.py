"""Verdicts: numbers by hand."""

from __future__ import annotations

import math

import pytest

from fedkeel.report import Trial, find_verdict
from fedkeel.report.verdict import paired_interval, student_quantile

# Student's t, two-sided 95 %, from printed tables.
QUANTILES = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 10: 2.2281, 29: 2.0452, 100: 1.9840}


def trial(method: str, seed: int, accuracy: float, problem: str | None = None) -> Trial:
    row = {"round": 0, "accuracy": accuracy, "bytes_down": 1, "bytes_up": 1, "seconds": 1.0}
    return Trial(method, seed, [row], problem)


def trials(**methods: list[float]) -> list[Trial]:
    return [trial(name, seed, a) for name, ends in methods.items() for seed, a in enumerate(ends)]


@pytest.mark.parametrize("freedom", QUANTILES)
def test_quantiles_are_those_of_the_tables(freedom):
    assert student_quantile(0.975, freedom) == pytest.approx(QUANTILES[freedom], abs=5e-5)


def test_the_interval_is_students_on_paired_differences():
    # differences 2, 3, 4 points: mean 3, standard deviation 1, half-width 4.3027·1/√3 = 2.4841
    low, high = paired_interval([0.02, 0.03, 0.04])
    assert low == pytest.approx(0.03 - 0.024841, abs=1e-6)
    assert high == pytest.approx(0.03 + 0.024841, abs=1e-6)
    assert paired_interval([0.02]) is None


def test_a_clear_winner_is_named_with_its_margin_and_interval():
    found = find_verdict(trials(FedAvg=[0.80, 0.85, 0.90], SCAFFOLD=[0.82, 0.88, 0.94]))
    assert found.winner == "SCAFFOLD"
    assert found.sentence == (
        "SCAFFOLD won with 88.0 %: 3.0 points above FedAvg (95 % interval 0.5 to 5.5, 3 seeds)."
    )
    (difference,) = found.differences
    assert difference.resolved
    assert difference.mean == pytest.approx(0.03)


def test_seeds_are_paired_so_a_hard_seed_does_not_blur_the_difference():
    wild = find_verdict(trials(A=[0.50, 0.70, 0.90], B=[0.49, 0.69, 0.89]))
    assert wild.differences[0].resolved
    assert wild.differences[0].low == pytest.approx(0.01)


def test_an_interval_with_zero_resolves_nothing():
    found = find_verdict(trials(A=[0.80, 0.90], B=[0.83, 0.85]))
    assert "No difference resolved between A, first with 85.0 %, and B" in found.sentence
    assert not found.differences[0].resolved
    half = 12.7062 * math.sqrt(2) * 0.04 / math.sqrt(2)  # differences −3 and 5: mean 1, deviation 4·√2
    assert found.differences[0].low == pytest.approx(0.01 - half, abs=1e-4)


def test_one_seed_gives_no_interval_and_says_so():
    found = find_verdict(trials(A=[0.9], B=[0.8]))
    assert "with one seed no interval can be given" in found.sentence
    assert found.differences[0].low is None


def test_several_methods_are_split_into_resolved_and_not():
    found = find_verdict(trials(A=[0.90, 0.91, 0.92], B=[0.90, 0.90, 0.93], C=[0.50, 0.51, 0.52]))
    assert "No difference resolved between A" in found.sentence
    assert "A is 40.0 points above C" in found.sentence


def test_runs_that_diverged_do_not_win_and_are_named():
    runs = [*trials(A=[0.5, 0.6]), trial("B", 0, 0.99, "diverged"), trial("B", 1, 0.99, "diverged")]
    found = find_verdict(runs)
    assert found.winner == "A"
    assert "B did not finish" in found.sentence
    assert find_verdict([trial("B", 0, 0.9, "diverged")]).winner is None


def test_equal_methods_are_not_resolved():
    found = find_verdict(trials(A=[0.5, 0.6], B=[0.5, 0.6]))
    assert "No difference resolved" in found.sentence
