"""Rethinking, Proposition 1: the derivation checked by numbers, and the rule by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkeel.theory import rethinking as rt


def upto(largest: float) -> st.SearchStrategy[float]:
    """Zero, or a number the checks accept."""
    return st.just(0.0) | st.floats(1e-9, largest)


def test_c_t_is_the_mean_squared_distance():
    assert rt.client_gradient_gap([[1, 2], [0, 0]], [[1, 0], [3, 4]]) == pytest.approx((4 + 25) / 2)
    with pytest.raises(ValueError, match="gradients has 1 clients, at_optimum 2"):
        rt.client_gradient_gap([[1]], [[1], [2]])


def test_eta_and_zeta_by_hand():
    assert rt.eta(2.0, 0.5) == pytest.approx(1 + 2 / 0.5)  # 1/(2·0.5) + 2/(2·0.25)
    # L = 1, α = 50: κ_0 = (2/50)(2500 − 1250 − 50)/(2500 − 25) = 0.04·1200/2475
    assert rt.kappa_0(1.0, 50.0) == pytest.approx(0.04 * 1200 / 2475)
    assert rt.zeta(1.0, 50.0, 3.0) == pytest.approx(1.02 * 3 / (0.04 * 1200 / 2475))
    # κ = 10·(10/2)·51/(50·2475)
    assert rt.kappa(1.0, 50.0, clients=10, cohort=2) == pytest.approx(50 * 51 / (50 * 2475))
    assert rt.phi_0(2.0, 4.0, 0.5) == 4.0
    assert rt.phi_0(2.0, 0.0, math.inf) == 2.0


def test_the_threshold_is_the_root_of_the_numerator():
    # α² − 25α − 50 = 0: α = (25 + √825)/2
    assert rt.alpha_threshold(1.0) == pytest.approx((25 + math.sqrt(825)) / 2)
    assert round(rt.alpha_threshold(1.0), 1) == 26.9
    assert rt.alpha_threshold(2.0, terms=4) == pytest.approx(2 * (10 + math.sqrt(140)))  # 21.8·L
    assert rt.kappa_0(1.0, 26.8) == 0
    assert rt.kappa_0(1.0, 26.9) > 0


@pytest.mark.parametrize("n", [4, 5])
def test_kappa_and_kappa_0_solve_the_three_inequalities(n):
    """ε and C must cancel, and what is left of G is κ_0 (docstring of the module)."""
    L, alpha, p = 0.7, 40.0, 0.2
    k = rt.kappa(L, alpha, clients=10, cohort=2, terms=n)
    q = k * p * alpha**2 / (2 * n)
    of_epsilon = (1 + L / alpha) + k * 2 * L**2 * p - q * (1 - n * L**2 / alpha**2)
    of_C = k * (1 - p) + q * 2 * n / alpha**2 - k
    of_G = -2 / alpha + k * 4 * L * p + q * 2 * n * L / alpha**2
    assert of_epsilon == pytest.approx(0, abs=1e-12)
    assert of_C == pytest.approx(0, abs=1e-12)
    assert -of_G == pytest.approx(rt.kappa_0(L, alpha, n))


def test_d_t_by_hand():
    bound = rt.suboptimality([1.0, 2.0, 3.0, 6.0], L=1.0, alpha=50.0, Phi_0=3.0, residual=0.0)
    zeta, eta = 1.02 * 3 * 2475 / 48, 0.01 + 1 / 5000
    assert bound.value == pytest.approx((zeta + eta * 12) / 4)
    assert bound.holds
    for residual in (None, 1e-3):  # the proof takes exact local minimisers
        rough = rt.suboptimality([1.0], L=1.0, alpha=50.0, Phi_0=3.0, residual=residual)
        assert [c.name for c in rough.violated] == ["clients minimise their regularised loss"]


def test_practical_alphas_violate_the_condition():
    bound = rt.suboptimality([1.0], L=1.0, alpha=0.1, Phi_0=3.0)
    assert bound.value == math.inf
    assert bound.violated[0].name == "α > 26.9·L"
    assert bound.violated[0].factor == pytest.approx((25 + math.sqrt(825)) / 2 / 0.1)
    assert rt.zeta(1.0, 0.1, 3.0) == math.inf


def test_the_switching_round_by_hand():
    # η = 1 at L = 0, α = ½. Gains T·C_T − Σ_{t<T} C_t: 1·3−1 = 2, 2·2−4 = 0, 3·5−6 = 9, 4·9−11 = 25
    C = [1.0, 3.0, 2.0, 5.0, 9.0]
    curve = rt.switch_curve(C, L=0.0, alpha=0.5, zeta_=8.0)
    assert curve.gain == pytest.approx((2, 0, 9, 25))
    assert curve.round == 3
    assert rt.switch_curve(C, L=0.0, alpha=0.5, zeta_=1.0).round == 1
    assert rt.switch_curve(C, L=0.0, alpha=0.5, zeta_=1.0, warm_up=1).round == 3
    assert rt.switch_curve(C, L=0.0, alpha=0.5, zeta_=26.0).round is None
    assert rt.switch_curve(C, L=0.0, alpha=0.5, zeta_=None).round is None


@given(st.lists(upto(100), min_size=2, max_size=30), st.floats(0.01, 50))
def test_the_rule_is_the_first_rise_of_d_t(C, Phi_0):
    """D_T ≤ D_{T+1} exactly where the gain reaches ζ (equation 5)."""
    L, alpha = 1.0, 60.0
    zeta = rt.zeta(L, alpha, Phi_0)
    gain = rt.switch_curve(C, L=L, alpha=alpha, zeta_=zeta).gain
    D = [rt.suboptimality(C[:T], L=L, alpha=alpha, Phi_0=Phi_0).value for T in range(1, len(C) + 1)]
    for T in range(1, len(C)):
        # T(T+1)(D_{T+1} − D_T) = gain − ζ
        assert T * (T + 1) * (D[T] - D[T - 1]) == pytest.approx(gain[T - 1] - zeta, rel=1e-6, abs=1e-6)


@given(upto(1e3), st.floats(1e-3, 1e3), upto(1e3))
def test_constants_are_never_nan(L, alpha, Phi_0):
    k = rt.kappa(L, alpha, clients=10, cohort=3)
    assert k > 0
    assert rt.kappa_0(L, alpha) >= 0
    assert rt.zeta(L, alpha, Phi_0) >= 0
    assert not math.isnan(rt.suboptimality([1.0, 2.0], L=L, alpha=alpha, Phi_0=Phi_0).value)


def test_without_curvature_feddyn_needs_nothing():
    assert rt.kappa_0(0.0, 0.1) == pytest.approx(20)  # 2/α
    assert rt.alpha_condition(0.0, 0.1).holds


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="alpha is 0"):
        rt.eta(1.0, 0.0)
    with pytest.raises(ValueError, match="C has 1 entries: give 2 or more"):
        rt.switch_curve([1.0], L=1, alpha=1, zeta_=1)
    with pytest.raises(ValueError, match=r"C\[1\] is -1"):
        rt.switch_curve([1.0, -1.0], L=1, alpha=1, zeta_=1)
    with pytest.raises(ValueError, match="zeta_ is nan"):
        rt.switch_curve([1.0, 1.0], L=1, alpha=1, zeta_=math.nan)
    with pytest.raises(ValueError, match="Phi_0 is -1"):
        rt.zeta(1, 50, -1)
    with pytest.raises(ValueError, match="cohort is 5 of 3 clients"):
        rt.kappa(1, 50, clients=3, cohort=5)
