"""Beyond smoothness: numbers worked out by hand, then the laws the paper states."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkeel.theory import beyond_smoothness as bs


def upto(largest: float) -> st.SearchStrategy[float]:
    """Zero, or a number the checks accept."""
    return st.just(0.0) | st.floats(1e-9, largest)


C = bs.Constants(a=0.1, b=0.5, alpha=0.2, beta=1.0, tau1=0.5, tau2=2.0, sigma2=4.0)
S = bs.Steps(K=2, eta_l=0.001, eta_g=50.0)  # η̃ = 2 · 0.001 · 50 = 0.1
# by hand: half = bη̃ + a/2 = 0.05 + 0.05; 2β² + α² = 2.04; drift = 2.04 · 0.6 · 1e-6 = 1.224e-6
GAMMA1 = 0.05 * (1 - 0.2 - 0.2)  # 0.03
A1 = 0.1 * (1.224e-6 * 40 + 0.1)
A2 = 0.1 * 1.224e-6 * (20 * 4 + 40 * 4 * 4)  # α > 0: 20K²
A3 = 0.1 * (0.04 / 4 + 0.04 * 0.1 + 0.05)  # 0.0064
LAMBDA = 0.03 * 0.25 - 8.8128e-5 - 0.0064


def test_the_pieces_of_one_round():
    step = bs.one_round(C, S)
    assert step.gamma1 == pytest.approx(GAMMA1)
    assert pytest.approx(A1) == step.A1
    assert pytest.approx(A2) == step.A2
    assert pytest.approx(A3) == step.A3
    assert step.contraction == pytest.approx(LAMBDA) == pytest.approx(0.001011872)


def test_printed_lambdas():
    # λ1 = (0.1/4)(1 − 0.2 − 0.2)·0.25; λ2 = (1 + 0.1 + 0.05)·0.01·4
    assert bs.lambda_1(C, S) == pytest.approx(0.025 * 0.6 * 0.25) == pytest.approx(0.00375)
    assert bs.lambda_2(C, S) == pytest.approx(0.046)
    assert bs.rate(C, S, "as_printed") == pytest.approx(0.00375)
    assert bs.floor(C, S, "as_printed") == pytest.approx(0.092)
    assert bs.floor(C, S) == pytest.approx(A1 * 4 / LAMBDA)


def test_theorem_4_7_in_both_forms():
    printed = bs.theorem_4_7(C, S, gap_0=3.0, r=10, form="as_printed")
    assert printed.value == pytest.approx(3 * 0.99625**10 + 0.092)
    assert {c.name for c in printed.violated} == {"a ≤ τ1²/10", "α ≤ τ1²/10", "η_g ≤ τ1²/(20Kbη_l)"}
    repaired = bs.theorem_4_7(C, S, gap_0=3.0, r=10)
    assert repaired.value == pytest.approx(3 * (1 - LAMBDA) ** 10 + A1 * 4 / LAMBDA)
    assert repaired.holds
    assert repaired.constants["Lambda"] == pytest.approx(LAMBDA)


def test_corollary_4_8_counts_rounds_in_both_forms():
    printed = bs.corollary_4_8(C, S, gap_0=3.0, epsilon=0.2, form="as_printed")
    assert printed.value == pytest.approx(math.log(6 / 0.2) / 0.00375)
    quiet = replace(C, sigma2=1e-3)  # floor A1·σ²/Λ = 0.0098, twice is below 0.2
    assert bs.corollary_4_8(quiet, S, gap_0=3.0, epsilon=0.2).value == pytest.approx(math.log(30) / LAMBDA)


def test_corollary_4_8_global_step_in_both_forms():
    # τ1²/(20Kbη_l) = 0.25/(20·2·0.5·0.001) = 12.5; 2ε/(σ²(1 + a + 0.25/40)) = 0.4/(4·1.10625)
    assert bs.corollary_4_8_global_step(C, 2, 0.001, 0.2, "as_printed") == pytest.approx(0.4 / 4.425)
    assert bs.corollary_4_8_global_step(C, 2, 0.1, 0.2) == pytest.approx(min(0.125, 0.4 / 4.425 / 0.2))
    assert bs.corollary_4_8_global_step(C, 2, 0.001, 1e-3) == pytest.approx(0.002 / 4.425 / 0.002)
    assert bs.corollary_4_8_global_step(replace(C, sigma2=0.0), 2, 0.001, 0.2) == pytest.approx(12.5)


def test_largest_steps_in_both_forms():
    # printed: 1/(0.04·2) = 12.5; 1/(100·2·2·1.2) = 1/480; 1/(100·√2·1.2) = 1/169.7
    assert bs.largest_local_step(C, 2, "as_printed") == pytest.approx(1 / 480)
    # repaired: margin ½·0.8·0.25 − 0.01 − 0.002 − 0.05 = 0.038; slope 2.04·0.55·(80 + 640)
    eta_l = math.sqrt(0.038 / (2.04 * 0.55 * 720))
    assert bs.largest_local_step(C, 2) == pytest.approx(eta_l)
    assert bs.largest_global_step(C, 2, 0.001, "as_printed") == pytest.approx(12.5)
    # repaired: drift 2.04·720e-6; p = 0.038 − drift·0.55; q = 0.5(0.5 + drift + 0.04); η_g = p/q/(0.002)
    drift = 2.04 * 720e-6
    p, q = 0.038 - drift * 0.55, 0.5 * (0.5 + drift + 0.04)
    assert bs.largest_global_step(C, 2, 0.001) == pytest.approx(p / q / 0.002)
    assert bs.fastest_global_step(C, 2, 0.001) == pytest.approx(p / q / 0.004)


def test_without_noise_terms_the_steps_are_only_those_of_lemma_6_3():
    smooth = bs.Constants(a=0, b=0, alpha=0, beta=0, tau1=0.5, tau2=1)
    assert bs.largest_local_step(smooth, 3) == 1
    assert bs.largest_local_step(smooth, 3, "as_printed") == math.inf
    assert bs.largest_global_step(smooth, 3, 0.1) == math.inf


def test_the_repaired_rate_vanishes_at_the_largest_global_step_and_peaks_at_half():
    top = bs.largest_global_step(C, 2, 0.001)
    at = {f: bs.rate(C, replace(S, eta_g=f * top)) for f in (0.25, 0.45, 0.5, 0.55, 1.0)}
    assert at[1.0] == pytest.approx(0, abs=1e-12)
    assert at[0.5] == max(at.values()) > 0


def test_drift_in_both_forms():
    # 50·1e-6·(1 + 16L + 8) at L = 3: K²τ2² = 16, Kσ² = 8
    printed = bs.drift(C, S, loss=3.0, form="as_printed")
    assert printed.value == pytest.approx(50e-6 * (1 + 48 + 8))
    assert bs.drift(C, S, loss=3.0).value == pytest.approx((80 + 640) * 1e-6 * 3 + 40e-6 * 4)
    smooth = replace(C, alpha=0.0)  # without α step (14) is not needed
    assert bs.drift(smooth, S, loss=3.0).value == pytest.approx((20 + 640) * 1e-6 * 3 + 40e-6 * 4)
    assert printed.holds


def test_the_deterministic_section():
    c = bs.Constants(a=0.01, b=0.5, alpha=0.2, beta=1.0, tau1=0.5, tau2=2.0)
    s = bs.Steps(K=2, eta_l=0.004, eta_g=0.9)  # η̃ = 0.0072 ≤ 0.25/32 = 0.0078; η_l ≤ 0.5/(16·2.2) = 0.0142
    for form in ("as_printed", "repaired"):
        bound = bs.deterministic(c, s, gap_0=2.0, r=7, form=form)
        assert bound.value == pytest.approx(2 * (1 - 0.25 * 0.0072 / 8) ** 7)
        assert bound.holds
    assert not bs.deterministic(replace(c, sigma2=1.0), s, gap_0=2.0, r=7).holds
    missed = bs.deterministic(replace(c, alpha=1.0), s, gap_0=2.0, r=7).violated
    assert [(m.name, m.factor) for m in missed] == [("α ≤ τ1/2", 4.0)]


def test_gradient_descent():
    c = bs.Constants(a=0.05, b=0.5, alpha=0, beta=0, tau1=0.5, tau2=2.0)
    bound = bs.gradient_descent(
        c, eta=0.01, gap_0=4.0, t=3
    )  # limit 0.25/(10·0.5·4) = 0.0125; aτ2 = 0.1 ≤ 0.125
    assert bound.value == pytest.approx(4 * (1 - 0.1 * 0.01 * 0.25) ** 3)
    assert bound.holds
    assert bs.gradient_descent(c, eta=0.05, gap_0=4.0, t=3).violated[0].factor == pytest.approx(4)


def test_the_bound_really_covers_a_quadratic():
    """f(x) = x²/2, one client: a = α = 0, b = 1/2, β = 1, τ1² = τ2² = 2; τ1 > 1 is outside Definition 4.3."""
    c = bs.Constants(a=0, b=0.5, alpha=0, beta=1, tau1=math.sqrt(2), tau2=math.sqrt(2))
    eta_l = bs.largest_local_step(c, 3) / 2
    s = bs.Steps(K=3, eta_l=eta_l, eta_g=bs.fastest_global_step(c, 3, eta_l))
    x = 1.0
    for r in range(1, 30):
        x += s.eta_g * (x * (1 - eta_l) ** 3 - x)
        bound = bs.theorem_4_7(c, s, gap_0=0.5, r=r)
        assert x * x / 2 <= bound.value < 0.5


def test_rounds_of_a_plain_linear_rate():
    assert bs.rounds(8.0, 1.0, 0.5) == pytest.approx(math.log(8) / 0.5)
    assert bs.rounds(0.5, 1.0, 0.5) == 0
    assert bs.rounds(0.0, 1.0, 0.5) == 0
    with pytest.raises(ValueError, match="gap_0, epsilon, shrink are"):
        bs.rounds(1.0, 1.0, 0.0)


def test_an_epsilon_below_the_floor_is_answered_with_a_reason():
    bound = bs.corollary_4_8(C, S, gap_0=3.0, epsilon=1e-6)
    assert bound.value == math.inf
    reason = next(c for c in bound.violated if c.name == "2·floor ≤ ε")
    assert reason.factor == pytest.approx(2 * bs.floor(C, S) / 1e-6)
    printed = bs.corollary_4_8(C, S, gap_0=3.0, epsilon=1e-6, form="as_printed")
    assert printed.guaranteed == math.inf
    assert "η_g within Corollary 4.8" in {c.name for c in printed.violated}


def test_corollary_4_8_as_printed_is_a_number_where_its_printed_conditions_are_met():
    """η̃ = 20·0.1·0.09 = 0.18 and σ² = 1: 2·(2λ2) = 0.072 > ε, which the paper does not ask about."""
    c = bs.Constants(a=0.0, b=0.01, alpha=0.0, beta=1e-4, tau1=0.5, tau2=0.5, sigma2=1.0)
    s = bs.Steps(K=20, eta_l=0.1, eta_g=0.09)
    bound = bs.corollary_4_8(c, s, gap_0=1.0, epsilon=0.05, form="as_printed")
    assert bound.holds
    assert 2 * bs.floor(c, s, "as_printed") > 0.05
    assert bound.value == pytest.approx(math.log(40) / bs.lambda_1(c, s)) == bound.guaranteed


@pytest.mark.parametrize("form", ["as_printed", "repaired"])
def test_no_variance_means_no_floor(form):
    quiet = replace(C, sigma2=0.0)
    assert bs.floor(quiet, S, form) == 0
    assert bs.corollary_4_8(quiet, S, gap_0=3.0, epsilon=1e-9, form=form).value < math.inf


@pytest.mark.parametrize("form", ["as_printed", "repaired"])
def test_a_loss_that_stays_above_zero_promises_nothing(form):
    bound = bs.theorem_4_7(replace(C, tau1=0.0), S, gap_0=3.0, r=5, form=form)
    assert bound.value == math.inf
    assert "τ1 > 0" in {c.name for c in bound.violated}
    assert bs.largest_local_step(replace(C, tau1=0.0), 2) == 0
    assert bs.largest_global_step(replace(C, tau1=0.0), 2, 0.001) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": -1}, "a is -1: give"),
        ({"sigma2": math.nan}, "sigma2 is nan"),
        ({"tau2": 0.1}, "tau2 is 0.1, below tau1 = 0.5: give tau2 >= tau1"),
    ],
)
def test_bad_constants_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(C, **change)


def test_bad_steps_are_refused():
    with pytest.raises(ValueError, match="K is 0"):
        bs.Steps(K=0, eta_l=0.1)
    with pytest.raises(ValueError, match="epsilon is 0"):
        bs.corollary_4_8(C, S, gap_0=1.0, epsilon=0.0)


sizes = upto(10)
constants = st.builds(
    lambda a, b, alpha, beta, tau1, more, sigma2: bs.Constants(
        a=a, b=b, alpha=alpha, beta=beta, tau1=tau1, tau2=tau1 + more, sigma2=sigma2
    ),
    upto(1), sizes, sizes, sizes, upto(1), st.floats(1e-6, 5), sizes,
)  # fmt: skip
steps = st.builds(
    lambda K, eta_l, eta_g: bs.Steps(K=K, eta_l=eta_l, eta_g=eta_g),
    st.integers(1, 50), st.floats(1e-8, 1), st.floats(1e-6, 100),
)  # fmt: skip
forms = st.sampled_from(["as_printed", "repaired"])


@given(constants, steps, forms, st.integers(0, 1000))
def test_every_answer_is_a_number_and_an_infinite_one_has_a_reason(c, s, form, r):
    for bound in (
        bs.theorem_4_7(c, s, gap_0=1.0, r=r, form=form),
        bs.corollary_4_8(c, s, gap_0=1.0, epsilon=0.1, form=form),
        bs.deterministic(c, s, gap_0=1.0, r=r, form=form),
        bs.gradient_descent(c, eta=s.eta_l, gap_0=1.0, t=r, form=form),
        bs.drift(c, s, loss=1.0, form=form),
    ):
        assert not math.isnan(bound.value)
        assert math.isfinite(bound.value) or not bound.holds
    assert bs.largest_local_step(c, s.K, form) >= 0
    assert bs.largest_global_step(c, s.K, s.eta_l, form) >= 0


@given(constants, steps, forms, st.integers(0, 200), st.integers(1, 200))
def test_more_rounds_never_loosen_the_bound(c, s, form, r, more):
    early = bs.theorem_4_7(c, s, gap_0=1.0, r=r, form=form).value
    assert bs.theorem_4_7(c, s, gap_0=1.0, r=r + more, form=form).value <= early * (1 + 1e-12)


@given(constants, st.integers(1, 50), st.floats(1e-8, 1))
def test_safe_steps_are_safe(c, K, share):
    eta_l = share * bs.largest_local_step(c, K) * 0.999
    if eta_l < 1e-9:
        return
    top = bs.largest_global_step(c, K, eta_l)
    if not 1e-9 < top < 1e6:
        return
    assert bs.rate(c, bs.Steps(K=K, eta_l=eta_l, eta_g=top / 2)) > 0


@pytest.mark.parametrize("form", ["as_printed", "repaired"])
def test_few_and_many_local_steps_both_need_more_rounds(form):
    """The remark after Corollary 4.8."""
    c = bs.Constants(a=0, b=0.5, alpha=0, beta=1, tau1=0.5, tau2=1)
    by_K = [
        bs.corollary_4_8(c, bs.Steps(K=K, eta_l=1e-3, eta_g=10), gap_0=1.0, epsilon=0.1, form=form).value
        for K in (1, 20, 45)
    ]
    assert by_K[0] > by_K[1] < by_K[2]


def test_every_printed_condition_has_its_factor():
    by_name = {c.name: c.factor for c in bs.theorem_4_7_conditions(C, S, "as_printed")}
    assert by_name["a ≤ τ1²/10"] == pytest.approx(0.1 / 0.025)
    assert by_name["α ≤ τ1²/10"] == pytest.approx(0.2 / 0.025)
    assert by_name["τ1 < 1"] == pytest.approx(0.5)
    assert by_name["λ1 ≤ 1"] == pytest.approx(0.00375)
    assert by_name["η_g ≤ τ1²/(20Kbη_l)"] == pytest.approx(4)
    assert by_name["η_l within Theorem 4.7"] == pytest.approx(0.48)
    # Lemma 6.3: 1/(α²K) = 12.5, 1/(2βK) = ¼
    lemma = {c.name: c.factor for c in bs.drift_conditions(C, bs.Steps(K=2, eta_l=0.5))}
    assert lemma == pytest.approx({"η_l ≤ 1/(α²K)": 0.04, "η_l ≤ 1/(2βK)": 2, "η_l ≤ 1": 0.5})


def test_every_condition_without_noise_has_its_factor():
    c = replace(C, a=0.04, sigma2=3.0)
    s = bs.Steps(K=2, eta_l=0.02, eta_g=0.5)  # η̃ = 0.02
    by_name = {x.name: x.factor for x in bs.deterministic(c, s, gap_0=1.0, r=1).conditions}
    assert by_name == pytest.approx(
        {
            "α ≤ τ1/2": 0.8,
            "aτ2 ≤ τ1²/10": 0.08 / 0.025,
            "η_l ≤ τ1/(4Kτ2(2β+α))": 0.02 * 16 * 2.2 / 0.5,
            "η̃ ≤ τ1²/(16bτ2²)": 0.02 * 32 / 0.25,
            "τ1²η̃/8 > 0": 0,
            "τ1²η̃/8 ≤ 1": 0.25 * 0.02 / 8,
            "η_l ≤ τ1²/(10bτ2²)": 0.02 * 20 / 0.25,
            "σ² = 0": math.inf,
        }
    )
    descent = {x.name: x.factor for x in bs.gradient_descent(c, eta=0.05, gap_0=1.0, t=1).conditions}
    assert descent["aτ2 ≤ τ1²/2"] == pytest.approx(0.08 / 0.125)
    assert descent["0.1ητ1² ≤ 1"] == pytest.approx(0.1 * 0.05 * 0.25)


def test_many_steps_and_a_small_tau2_leave_the_third_printed_limit():
    # 1/(100·4·0.5·1.2) = 1/240 against 1/(100·2·1.2) = 1/240: equal at τ2 = ½; below it the third is smaller
    assert bs.largest_local_step(replace(C, tau1=0.1, tau2=0.1), 4, "as_printed") == pytest.approx(1 / 240)


def test_constants_that_promise_more_than_the_whole_gap_are_refused_an_answer():
    c = bs.Constants(a=0, b=0, alpha=0, beta=0, tau1=0.5, tau2=1)
    s = bs.Steps(K=1, eta_l=1.0, eta_g=24.0)  # λ1 = 24/4·0.25 = 1.5; Λ = 12·0.25 = 3; τ1²η̃/8 = 0.75
    for form in ("as_printed", "repaired"):
        assert bs.theorem_4_7(c, s, gap_0=1.0, r=1, form=form).value == math.inf
        bound = bs.corollary_4_8(c, s, gap_0=1.0, epsilon=0.1, form=form)
        assert bound.value == math.inf
        assert {"λ1 ≤ 1", "Λ ≤ 1"} & {x.name for x in bound.violated}
    assert bs.deterministic(c, replace(s, eta_g=48.0), gap_0=1.0, r=1).value == math.inf
    assert bs.gradient_descent(c, eta=60.0, gap_0=1.0, t=1).value == math.inf


def test_step_14_of_lemma_6_3_needs_k_squared():
    """2Kη²(β²u² + α²uv) ≤ (2/K)u² + κη²v², u = ‖W−U‖, v = √L: κ = 1/K as printed fails, κ = K holds."""
    rng = random.Random(0)
    worst = 0.0
    for _ in range(2000):
        K, alpha, beta = rng.randint(2, 40), rng.uniform(0.01, 2), rng.uniform(0.01, 5)
        eta = rng.uniform(0.01, 1) * min(1, 1 / (alpha**2 * K), 1 / (2 * beta * K))
        u, v = rng.expovariate(1), rng.expovariate(1) * 10 ** rng.uniform(-2, 4)
        left = 2 * K * eta**2 * (beta**2 * u**2 + alpha**2 * u * v)
        assert left <= (2 / K * u**2 + K * eta**2 * v**2) * (1 + 1e-12)
        worst = max(worst, left / (2 / K * u**2 + eta**2 * v**2 / K))
        if eta <= 1 / (alpha**2 * K**2):  # the other way out
            assert left <= (2 / K * u**2 + eta**2 * v**2 / K) * (1 + 1e-12)
    assert worst > 2


def test_the_largest_local_step_of_the_issues_example():
    c = bs.Constants(a=0.0, b=0.5, alpha=0.05, beta=0.5, tau1=0.5, tau2=0.6)
    assert bs.largest_local_step(c, 20) == pytest.approx(0.0060, abs=5e-6)
    assert bs.largest_local_step(replace(c, alpha=0.0), 20) == pytest.approx(0.00930, abs=5e-5)


def test_lemma_6_4_with_a_free_eta():
    """At η = η̃/2, h = bη̃ + a = 0.15 and 2aη̃/η = 0.4; at η = η̃ it is the round of the proof."""
    step = bs.one_round(C, S, eta=0.05)
    assert step.gamma1 == pytest.approx(0.05 * (1 - 0.2 - 0.4))
    assert pytest.approx(0.1 * (2.04 * 0.65e-6 * 40 + 0.15)) == step.A1
    assert pytest.approx(0.1 * 2.04 * 0.65e-6 * 720) == step.A2
    assert pytest.approx(0.1 * (0.01 + 0.04 * 0.15) + 0.1 * 0.025) == step.A3
    assert bs.one_round(C, S, eta=S.effective) == bs.one_round(C, S)


def test_lemma_6_1_bounds_sums_of_random_vectors():
    """n equal draws reach n²σ²; independent ones have nσ², below twice that."""
    assert bs.lemma_6_1(3.0, 4, 2.0, martingale=False) == 3 + 32
    assert bs.lemma_6_1(3.0, 4, 2.0, martingale=True) == 6 + 16
    rng = random.Random(1)
    draws = [sum(rng.gauss(0.5, 1) for _ in range(4)) ** 2 for _ in range(4000)]
    assert sum(draws) / 4000 <= bs.lemma_6_1(4.0, 4, 1.0, martingale=True)


def test_the_a_of_equation_10():
    c = bs.Constants(a=0.01, b=0.5, alpha=0.2, beta=1.0, tau1=0.5, tau2=2.0)
    s = bs.Steps(K=2, eta_l=0.004, eta_g=0.9)  # η̃ = 0.0072
    by_hand = 0.0072 * ((0.5 - 0.04) / 4 - 0.02 - 2.04 * 4 * 4 * 16e-6 - 0.5 * 4 * 0.0072)
    assert bs.contraction(c, s) == pytest.approx(by_hand)
    assert bs.deterministic(c, s, gap_0=1.0, r=1).holds
    assert bs.contraction(c, s) >= 0.25 * 0.0072 / 8
