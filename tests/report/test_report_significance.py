"""At most 5 % of comparisons of equal methods make any claim, whatever their spreads; and power is left."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import t as student
from selecting import slow

from fedkeel.report.significance import (
    DRAWS,
    adjusted_p,
    compare_pairs,
    critical_value,
    largest_statistics,
    mean_interval,
    pair_statistics,
    pair_variances,
)

COMPARISONS = 6_000
METHODS, SEEDS = (2, 3, 4, 5, 8, 12), (3, 4, 6, 10)
Floats = NDArray[np.float64]


def spreads(methods: int) -> dict[str, Floats]:
    """Standard deviations of the methods: equal, and unequal at one to five."""
    index = np.arange(methods)
    return {
        "equal": np.ones(methods),
        "one wide": np.where(index < 1, 5.0, 1.0),
        "half wide": np.where(index < methods // 2, 5.0, 1.0),
        "one narrow": np.where(index < 1, 1.0, 5.0),
        "growing": np.geomspace(1.0, 5.0, methods),
    }


def equal_methods(methods: int, seeds: int, spread: Floats, effect: float) -> Floats:
    """Return comparisons (comparisons, methods, seeds) without a difference; `effect`: of the shared seed."""
    stream = np.random.default_rng([methods, seeds, int(10 * spread.sum()), int(effect)])
    shared = effect * stream.standard_normal((COMPARISONS, 1, seeds))
    return 0.8 + 0.01 * (shared + spread[:, None] * stream.standard_normal((COMPARISONS, methods, seeds)))


def paired_t(scores: Floats) -> Floats:
    """Return Student's t of every pair's differences: what the verdict used, each pair for itself."""
    apart = scores[..., :, None, :] - scores[..., None, :, :]
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(apart.mean(-1)) / (apart.std(-1, ddof=1) / math.sqrt(scores.shape[-1])))


def claims_of_the_winner(scores: Floats, statistics: Floats, critical: float) -> float:
    """Return the share of comparisons in which the best method is said to be above some other."""
    winner = scores.mean(-1).argmax(-1)
    return float((statistics[np.arange(len(scores)), winner].max(-1) > critical).mean())


@pytest.mark.slow(12)
@pytest.mark.parametrize("effect", [0.0, 8.0], ids=["independent", "shared seeds"])
@pytest.mark.parametrize("pattern", spreads(3))
def test_equal_methods_are_told_apart_in_at_most_five_per_cent(pattern: str, effect: float) -> None:
    rates = {}
    for methods in METHODS:
        for seeds in SEEDS:
            scores = equal_methods(methods, seeds, spreads(methods)[pattern], effect)
            rates[methods, seeds] = (largest_statistics(scores) > critical_value(methods, seeds)).mean()
    # chance of this simulation and of the one that gave the critical value
    error = math.sqrt(0.05 * 0.95 * (1 / COMPARISONS + 1 / DRAWS))
    assert max(rates.values()) < 0.05 + 3.5 * error, rates
    assert np.mean(list(rates.values())) < 0.05 + 2 * error / math.sqrt(len(rates)), rates


@pytest.mark.slow
def test_the_same_check_refuses_a_test_of_each_pair_for_itself() -> None:
    for methods, low, high in ((3, 0.10, 0.13), (5, 0.22, 0.26), (10, 0.48, 0.58)):
        scores = equal_methods(methods, 3, np.ones(methods), 8.0)[:3_000]
        rate = claims_of_the_winner(scores, paired_t(scores), student.ppf(0.975, 2))
        assert low < rate < high
        ours = claims_of_the_winner(scores, pair_statistics(scores), critical_value(methods, 3))
        assert ours < 0.06


@pytest.mark.parametrize(
    ("methods", "seeds", "lead", "found"), [*slow((12, 3, 5, 0.65), (5, 5, 3, 0.8)), (3, 10, 2, 0.9)]
)
def test_a_lead_is_found(methods: int, seeds: int, lead: float, found: float) -> None:
    scores = equal_methods(methods, seeds, np.ones(methods), 8.0)
    scores[:, 0] += 0.01 * lead
    power = (pair_statistics(scores)[:, 0, 1:] > critical_value(methods, seeds)).mean()
    bonferroni = student.ppf(1 - 0.025 / math.comb(methods, 2), seeds - 1)
    assert power > found
    assert power > (paired_t(scores[:1_000])[:, 0, 1:] > bonferroni).mean()


def test_two_methods_are_compared_by_students_paired_t() -> None:
    scores = np.array([[0.82, 0.88, 0.94, 0.9], [0.80, 0.85, 0.90, 0.93]])
    apart = scores[0] - scores[1]
    error = apart.std(ddof=1) / 2
    assert pair_statistics(scores)[0, 1] == pytest.approx(abs(apart.mean()) / error)
    assert critical_value(2, 4, 0.9) == pytest.approx(student.ppf(0.95, 3))
    assert compare_pairs(scores).p[0, 1] == pytest.approx(2 * student.sf(abs(apart.mean()) / error, 3))


def test_a_pairs_variance_is_the_mean_of_its_own_of_both_methods_and_of_all() -> None:
    stream = np.random.default_rng(1)
    spread = np.array([1.0, 2.0, 3.0, 4.0])
    scores = stream.standard_normal((4, 200_000)) * spread[:, None] + 9 * stream.standard_normal(200_000)
    together = spread[:, None] ** 2 + spread**2
    everyone = np.mean([together[i, j] for i in range(4) for j in range(i)])
    expected = (2 * together + everyone) / 3  # own and summed agree where errors are independent
    off = ~np.eye(4, dtype=bool)
    assert pair_variances(scores)[off] == pytest.approx(expected[off], rel=0.02)


def test_claims_do_not_depend_on_what_all_methods_share_nor_on_the_scale() -> None:
    scores = np.random.default_rng(2).standard_normal((5, 4))
    moved = 3 * scores + np.array([5.0, -2.0, 7.0, 0.0])
    assert pair_statistics(moved) == pytest.approx(pair_statistics(scores))


def test_p_falls_to_five_per_cent_at_the_critical_value() -> None:
    critical = critical_value(4, 3)
    below, above = adjusted_p(np.array([critical, critical + 1e-9]), 4, 3)
    assert below > 0.05 >= above
    assert adjusted_p(np.array([0.0, math.inf]), 4, 3) == pytest.approx([1.0, 2 / DRAWS], rel=1e-3)


@pytest.mark.slow
def test_more_methods_ask_for_more_and_more_seeds_for_less() -> None:
    table = [[critical_value(methods, seeds) for seeds in (3, 5, 10)] for methods in (2, 4, 8, 12)]
    assert (np.diff(table, axis=0) > 0).all()
    assert (np.diff(table, axis=1) < 0).all()


def test_the_interval_of_a_mean_is_students_and_stays_between_0_and_1():
    scores = [0.50, 0.55, 0.63, 0.58]
    expected = stats.t.interval(0.95, 3, loc=np.mean(scores), scale=stats.sem(scores))
    assert mean_interval(scores) == pytest.approx(expected)
    assert mean_interval([0.01, 0.99]) == (0.0, 1.0)
    assert mean_interval([0.5]) is None
