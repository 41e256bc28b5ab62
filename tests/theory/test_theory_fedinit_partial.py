"""FedInit with N of C clients per round: the constants of stale copies by hand, and the ranges of β."""

import math
from dataclasses import replace

import pytest

from fedkeel.theory import fedinit as fi

RUN = fi.RelaxedRun(beta=math.sqrt(1 / 282), eta=0.001, K=5, N=10, C=10, T=100, L=2.0, D=3.0)
NOISE = {"sigma_l2": 1.0, "sigma_g2": 0.5}  # σ = 1 + 6·5·0.5 = 16
# Partial participation by hand: N = 1 of C = 2, p = ½: r = ½·1.5/2 = 3/8, A = 1 + 4 − 1 = 4, a = 2·0/1 = 0
HALF = replace(RUN, N=1, C=2, beta=0.05, eta=1e-4)  # ηKL = 0.001


def test_the_recursion_of_stale_copies_by_hand():
    one = fi.recursion(1, 2)
    assert (one.forgotten, one.relaxed) == pytest.approx((3 / 8, 37.5 + 4 * 20))
    assert (one.noise, one.gradient, one.total) == pytest.approx((52 + 30, 304 + 171, 0))
    # N = 2 of C = 4: the same p and A, a = 4·1/(2·3) = ⅔
    two = fi.recursion(2, 4)
    assert (two.relaxed, two.total) == pytest.approx((37.5 + 4 * (10 + 4 / 3), 16 / 3))
    assert fi.interpolation_recursion(1, 2) == fi.DivergenceRecursion(3 / 8, 13.5 + 16, 0, 48 + 39, 0)
    assert fi.interpolation_recursion(7, 7) == fi.DivergenceRecursion(1, 39, 0, 114, 0)
    assert fi.recursion(7, 7) == fi.DivergenceRecursion(1, 141, 99, 576, 6)
    assert fi.recursion(1, 2, "as_printed") == fi.DivergenceRecursion(1, 141, 96, 576, 6)


def test_lemma_22_keeps_its_factor_c():
    """At N = 100 of C = 1000 the term is 2β²·C(N−1)/(N(C−1))·Δ: the paper prints 2β²Δ/N, a hundredth."""
    run = replace(RUN, N=100, C=1000, eta=1e-9)
    state = fi.RoundState(delta=1.0, gradient2=0.0)
    b2 = RUN.beta**2
    assert fi.lemma_22(run, state, form="as_printed").value == pytest.approx(0.22 * b2)
    assert fi.lemma_22(run, state).value == pytest.approx((0.2 + 2 * 99000 / 99900) * b2)
    # all copies lie on the same side of x: every cohort moves by β(x − w), so V2 = β²Δ
    assert 0.22 * b2 < b2 < fi.lemma_22(run, state).value
    assert fi.lemma_22(replace(run, N=1000), state).value == pytest.approx(0.02 * b2)  # their mean is x


def test_kappa_and_lambda_under_partial_participation_by_hand():
    # κ_β = 1/(3/8 − 117.5·0.0025) = 1/0.08125; weight 12 + 1; κ = 8 + 13·0.0025κ_β·82
    kb = 1 / 0.08125
    assert fi.kappa_beta(0.05, 1, 2) == pytest.approx(kb)
    assert fi.kappa(HALF) == pytest.approx(8 + 13 * 0.0025 * kb * 82)
    assert fi.lam(HALF) == pytest.approx(0.5 - 0.038 - 13 * 0.0025 * kb * 475 * 0.001 - 9e-6)
    assert fi.descent_weight(10, 20) == pytest.approx(2.2)
    assert fi.descent_weight(10, 10) == fi.descent_weight(10, 20, "as_printed") == 1.3


def test_theorems_17_and_19_under_partial_participation_by_hand():
    run = replace(HALF, beta=0.0)  # C_β = γ_β = 8/3
    strength = 0.5 - 0.038 - 9e-6
    noise = 82 + 475 * 8 / strength
    value = 1e-4 * 475 * 8 / 3 * 5 * 3 / (100 * strength) + 1e-8 * 8 / 3 * noise * 5 * 16
    assert fi.theorem_17(run, **NOISE).value == pytest.approx(value)
    z = 0.5 - 6e-3 - 6e-6
    assert fi.theorem_19(run, a=1, b=1).value == pytest.approx(87 * 8 / 3 * 1e-4 * 5 * 3 / (100 * z))


def test_fewer_clients_per_round_narrow_the_range_of_beta():
    for limit, full in (
        (fi.beta_limit, fi.BETA_LIMIT),
        (fi.beta_limit_divergence, fi.BETA_LIMIT_DIVERGENCE),
        (fi.beta_limit_interpolation, fi.BETA_LIMIT_INTERPOLATION),
    ):
        assert limit(100, 100) == pytest.approx(full)
        assert limit(10, 100) > limit(5, 100) > limit(1, 100)
        assert limit(10, 100, "as_printed") == pytest.approx(full)
    # about proportional to N/C when few take part
    assert fi.beta_limit(10, 10_000) == pytest.approx(fi.beta_limit(10, 1000) / 10, rel=0.1)


def test_a_small_share_of_clients_cannot_be_called_guaranteed_at_the_papers_value():
    """N = 2 of C = 200: the copies are 100 rounds old, and the bound grows by about (C/N)²."""
    run = fi.RelaxedRun(beta=0, eta=1e-3, K=2, N=2, C=200, T=1000, L=1.0, D=1.0)
    pretended = replace(run, C=2)
    quiet = {"sigma_l2": 0.0, "sigma_g2": 0.0}
    assert fi.theorem_17(run, **quiet).value > 1000 * fi.theorem_17(pretended, **quiet).value
    assert fi.theorem_19(run, a=1, b=1).value > 1000 * fi.theorem_19(pretended, a=1, b=1).value


def test_one_step_asks_lemma_25_for_a_smaller_rate():
    state = fi.RoundState(delta=1.0, gradient2=1.0)
    run = replace(RUN, K=1, eta=0.25)  # aηL = 0.5
    missed = fi.lemma_25(run, state, a=1.0, b=1.0).violated
    assert [(c.name, round(c.factor, 3)) for c in missed] == [("η ≤ 0.48/(aL)", 1.042)]
    assert fi.lemma_25(run, state, a=1.0, b=1.0, form="as_printed").holds
