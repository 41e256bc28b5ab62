"""FedInit: every theorem by hand in both forms, then its laws.

The β below are chosen so that κ_β, γ_β or C_β is 2.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkeel.theory import fedinit as fi
from fedkeel.theory import table


def upto(largest: float) -> st.SearchStrategy[float]:
    """Zero, or a number the checks accept."""
    return st.just(0.0) | st.floats(1e-9, largest)


KAPPA_2 = math.sqrt(1 / 282)  # 141β² = ½, κ_β = 2
GAMMA_2 = math.sqrt(1 / 78)  # 39β² = ½, γ_β = 2
C_2 = math.sqrt(1 / 378)  # 189β² = ½, C_β = 2, κ_β = 1/(1 − 141/378) = 378/237
RUN = fi.RelaxedRun(beta=KAPPA_2, eta=0.001, K=5, N=10, C=10, T=100, L=2.0, D=3.0)  # ηKL = 0.01
NOISE = {"sigma_l2": 1.0, "sigma_g2": 0.5}  # σ = 1 + 6·5·0.5 = 16
FORMS = ["as_printed", "repaired"]


def test_the_ranges_of_beta():
    assert pytest.approx(0.0842, abs=5e-5) == fi.BETA_LIMIT
    assert pytest.approx(0.0727, abs=5e-5) == fi.BETA_LIMIT_DIVERGENCE
    assert pytest.approx(0.160, abs=5e-4) == fi.BETA_LIMIT_INTERPOLATION


def test_constants_of_beta():
    assert fi.kappa_beta(KAPPA_2) == pytest.approx(2)
    assert fi.gamma_beta(GAMMA_2) == pytest.approx(2)
    assert fi.c_beta(C_2) == pytest.approx(2)
    k = fi.kappa_beta(C_2)
    assert fi.c_beta(C_2) == pytest.approx(k / (1 - 48 / 378 * k))  # the definition of Theorem 17
    assert (fi.kappa_beta(0), fi.gamma_beta(0), fi.c_beta(0)) == (1, 1, 1)
    assert fi.kappa_beta(0.1) == fi.c_beta(0.08) == fi.gamma_beta(0.17) == math.inf
    assert fi.sigma(5, 1.0, 0.5) == 16


def test_kappa_in_both_forms():
    assert fi.kappa(RUN, "as_printed") == pytest.approx(8 + 78 / 282 * 4)
    assert fi.kappa(RUN) == pytest.approx(8 + 1287 / 282 * 2)
    plain = replace(RUN, beta=0.0)
    assert fi.kappa(plain, "as_printed") == fi.kappa(plain) == 8


def lam(c: float, beta2: float, kb: float) -> float:
    """½ − 38·0.01/10 − c·β²κ_β·0.01/10 − 9·1e-4."""
    return 0.5 - 0.038 - c * beta2 * kb * 0.001 - 0.0009


def test_lambda_in_both_forms():
    assert fi.lam(RUN, "as_printed") == pytest.approx(lam(728, 1 / 282, 2))
    assert fi.lam(RUN) == pytest.approx(lam(7488, 1 / 282, 2))


def test_zeta_in_both_forms():
    run = replace(RUN, beta=GAMMA_2)  # a²b² = (1.5·2)² = 9, ηK = 0.005
    base = 0.5 - 54 * 0.01 - 54 * 1e-4
    assert fi.zeta(run, 1.5, 2.0, "as_printed") == pytest.approx(base - 114 * 2 * 9 * 0.005)
    # the repaired one has 2β²L(1 + ηKL)Δ, of V2 and V1: a factor 1.01 here
    assert fi.zeta(run, 1.5, 2.0) == pytest.approx(base - 228 / 78 * 2 * 2 * 9 * 0.005 * 1.01)


def test_theorem_1_in_both_forms():
    printed = fi.theorem_1(RUN, **NOISE, delta_T=0.7, form="as_printed")
    p = lam(728, 1 / 282, 2)
    # D/(ληKT) = 3/(λ·0.5); ηκLσ/(λN) = 0.001·κ·2·16/(10λ); 13β²κ_βL²Δ/(ληNKT) = 13·(1/141)·4·0.7/(λ·5)
    assert printed.terms["initial"] == pytest.approx(3 / (0.5 * p))
    assert printed.terms["noise"] == pytest.approx(0.0032 * (8 + 78 / 282 * 4) / p)
    assert printed.terms["divergence"] == pytest.approx(-13 / 141 * 4 * 0.7 / (5 * p))
    assert printed.value == pytest.approx(sum(printed.terms.values()))
    repaired = fi.theorem_1(RUN, **NOISE, delta_T=0.7)
    r = lam(7488, 1 / 282, 2)
    by_hand = 3 / (0.5 * r) + 0.0032 * (8 + 1287 / 282 * 2) / r - 13 / 141 * 2 * 0.7 / (5 * r)
    assert repaired.value == pytest.approx(by_hand)


def theorem_17_by_hand(c: float, first: float, kappa: float) -> float:
    """804ηC_βKD/(λT) + η²J_βKσ at C_β = 2: 804·0.001·2·5·3/(100λ) + 1e-6·2(first + 80.4κ/λ)·5·16."""
    value = lam(c, 1 / 378, 378 / 237)
    return 804 * 0.001 * 2 * 5 * 3 / (100 * value) + 1e-6 * 2 * (first + 80.4 * kappa / value) * 80


def test_theorem_17_in_both_forms():
    run = replace(RUN, beta=C_2)
    kb = 378 / 237
    printed = fi.theorem_17(run, **NOISE, form="as_printed")
    assert printed.value == pytest.approx(theorem_17_by_hand(728, 132, 8 + 78 / 378 * kb**2))
    repaired = fi.theorem_17(run, **NOISE)
    assert repaired.value == pytest.approx(theorem_17_by_hand(7488, 135, 8 + 1287 / 378 * kb))


def test_theorem_4_in_both_forms():
    run = replace(RUN, beta=C_2)
    kb, p, r = 378 / 237, lam(728, 1 / 378, 378 / 237), lam(7488, 1 / 378, 378 / 237)
    # e^{−λμηKT}D with μηKT = 0.4·0.5; ηκLσ/(λμN) = 0.0032κ/(0.4λ)
    printed = fi.theorem_4(run, mu=0.4, **NOISE, form="as_printed")
    assert printed.value == pytest.approx(
        3 * math.exp(-0.2 * p) + 0.0032 * (8 + 78 / 378 * kb**2) / (0.4 * p)
    )
    repaired = fi.theorem_4(run, mu=0.4, **NOISE)
    kappa = 8 + 1287 / 378 * kb
    rest = 13 / 378 * kb * 2 / 10 * (0.2 * r) * theorem_17_by_hand(7488, 135, kappa)
    assert repaired.terms["divergence"] == pytest.approx(rest)
    assert repaired.value == pytest.approx(3 * math.exp(-0.2 * r) + 0.0032 * kappa / (0.4 * r) + rest)


def small(beta: float) -> fi.RelaxedRun:
    """A run with ηKL = 0.001 and ηK = 0.0005, so that ζ > 0 in both forms."""
    return replace(RUN, beta=beta, eta=0.0001)


def zeta(form: str) -> float:
    """At γ_β = 2, a²b² = 9, L = 2."""
    middle = 114 * 2 * 9 * 0.0005 if form == "as_printed" else 228 / 78 * 2 * 2 * 9 * 0.0005 * 1.001
    return 0.5 - 54 * 0.001 - middle - 54e-6


@pytest.mark.parametrize("form", FORMS)
def test_theorem_6_and_19(form):
    if form == "as_printed":  # 114·2·9·0.0005 = 1.026 leaves nothing of ½: the printed ζ is not scale-free
        bound = fi.theorem_6(small(GAMMA_2), a=1.5, b=2.0, form=form)
        assert bound.value == math.inf
        assert bound.violated[0].name == "ζ > 0"
        return
    z = zeta(form)
    # D/(ζηKT) = 3/(0.05ζ); 2(1+ηKL)γ_ββ²LΔ/(ζηKT) = 2·1.001·2/78·2·0.7/(0.05ζ)
    bound = fi.theorem_6(small(GAMMA_2), a=1.5, b=2.0, delta_T=0.7, form=form)
    assert bound.value == pytest.approx(3 / (0.05 * z) - 1.001 * 8 / 78 * 0.7 / (0.05 * z))
    # 114γ_βa²b²ηKD/(ζT) = 114·2·9·0.0005·3/(100ζ)
    assert fi.theorem_19(small(GAMMA_2), a=1.5, b=2.0, form=form).value == pytest.approx(
        114 * 18 * 0.0005 * 3 / (100 * z)
    )


def test_theorem_6_9_and_19_as_printed_where_zeta_is_positive():
    run = replace(RUN, beta=GAMMA_2, eta=0.00001)  # ηK = 5e-5, ηKL = 1e-4, ηKT = 5e-3; a = b = 1
    z = 0.5 - 6e-4 - 114 * 2 * 5e-5 - 6e-8
    six = fi.theorem_6(run, a=1, b=1, delta_T=0.7, form="as_printed")
    assert six.value == pytest.approx((3 - 8 / 78 * 0.7) / (5e-3 * z))
    nine = fi.theorem_9(run, mu=0.4, a=1, b=1, form="as_printed")
    # R_β = 228μγ_ββ² = 228·0.4·2/78; times η²K²LD = 25e-10·6
    assert nine.value == pytest.approx(3 * math.exp(-0.4 * 5e-3 * z) + 228 * 0.4 * 2 / 78 * 25e-10 * 6)
    nineteen = fi.theorem_19(run, a=1, b=1, form="as_printed")
    assert nineteen.value == pytest.approx(114 * 2 * 5e-5 * 3 / (100 * z))
    # the same through R_β, as the paper writes it
    assert nineteen.value == pytest.approx(
        1e-5 * fi.r_beta(run, 1, 1, 0.4, "as_printed") * 5 * 3 / (2 * 0.4 / 78 * z * 100)
    )


def test_theorem_9_repaired():
    z = zeta("repaired")
    bound = fi.theorem_9(small(GAMMA_2), mu=0.4, a=1.5, b=2.0)
    # R_β = 228·0.4·γ_β²·9/78·(1 + ηKL) with γ_β² = 4; η²K²LD = 25e-8·6
    r = 228 * 0.4 * 4 * 9 / 78 * 1.001
    assert bound.value == pytest.approx(3 * math.exp(-0.4 * 0.05 * z) + r * 25e-8 * 6)


SAMPLING = fi.Sampling(N=2, C=10, S=5, K=2, T=16, c=0.25, L_G=3.0)


def test_theorem_12_in_both_forms():
    # q = cKL = 0.25·2·2 = 1; A = 2·6·3/((1+2β)·2) at β = 0.25: 36/3 = 12; NUK = 2·U·2 = 12 at U = 3
    # t0 = √(12/12)·√16 = 4; each half = √12·√(12·16)/50 = 48/50
    printed = fi.theorem_12(SAMPLING, beta=0.25, L=2.0, U=3.0, sample_spread=6.0, form="as_printed")
    assert printed.constants["t0"] == pytest.approx(4)
    assert printed.value == pytest.approx(2 * 48 / 50)
    # whole rounds: at t0 = 5 the growth is e^{H_15 − H_3}, H_15 = 3.318229, H_3 = 11/6
    repaired = fi.theorem_12(SAMPLING, beta=0.25, L=2.0, U=3.0, sample_spread=6.0)
    assert repaired.constants["t0"] == 5
    assert repaired.value == pytest.approx((12 * 5 + 12 * math.exp(3.3182289932 - 11 / 6)) / 50)
    # without noise A = 0 and t0 = 0 is no round: repaired takes t0 = 1, 12·1/50
    assert fi.theorem_12(SAMPLING, beta=0.25, L=2.0, U=3.0, sample_spread=0.0, form="as_printed").value == 0
    quiet = fi.theorem_12(SAMPLING, beta=0.25, L=2.0, U=3.0, sample_spread=0.0)
    assert quiet.value == pytest.approx(12 / 50)


def test_theorem_12_sums_from_the_round_before_t0():
    """t0 = 2, T = 100, q = 1: Σ_{τ=1}^{99} 1/τ = 5.177 and e^5.177 = 177, where T/t0 is 50."""
    # A = 2·6·3/2 = 18, NUK = 4000: t0 = 2 is best
    s = replace(SAMPLING, T=100)
    H_99 = math.fsum(1 / k for k in range(1, 100))
    assert math.exp(H_99) == pytest.approx(177, abs=0.5)
    bound = fi.theorem_12(s, beta=0.0, L=2.0, U=1000.0, sample_spread=6.0)
    assert bound.constants["t0"] == 2
    assert bound.terms["after t0"] == pytest.approx(18 * math.exp(H_99) / 50)
    # t0 = 1: the first round has the rate c, so one more 1 in the sum
    early = fi.theorem_12(s, beta=0.0, L=2.0, U=3000.0, sample_spread=6.0)
    assert early.constants["t0"] == 1
    assert early.terms["after t0"] == pytest.approx(18 * math.exp(1 + H_99) / 50)


def test_minibatches_meet_a_sample_more_often():
    args = {"beta": 0.0, "L": 2.0, "U": 3.0, "sample_spread": 0.0}
    one, four = (fi.theorem_12(replace(SAMPLING, B=B), **args).value for B in (1, 4))
    assert four == pytest.approx(4 * one)


def test_theorem_12_needs_a_beta_that_shrinks():
    # φ(t) = (1 + 0.5/t)²: φ(1)/φ(2) = (1.5/1.25)² = 1.44, so β ≤ 0.22 in round 2
    assert fi.beta_limit_at(2, SAMPLING, 2.0) == pytest.approx(0.22)
    assert fi.beta_limit_at(1, SAMPLING, 2.0) == math.inf
    bound = fi.theorem_12(SAMPLING, beta=0.1, L=2.0, U=3.0, sample_spread=6.0)
    limit = ((1 + 0.5 / 15) ** 2 / (1 + 0.5 / 16) ** 2 - 1) / 2
    assert bound.violated[0].factor == pytest.approx(0.1 / limit)
    negative = fi.theorem_12(SAMPLING, beta=-0.5, L=2.0, U=3.0, sample_spread=6.0)
    assert negative.value == math.inf
    assert [c.name for c in negative.violated] == ["β ≥ 0"]


def test_theorem_15_in_both_forms():
    s = replace(SAMPLING, T=3)
    betas = [0.1, 0.1, 0.05, 0.1 / 3]
    # abcL_G²K/(2β⁰CS) = 1.5·2·0.25·9·2/(0.2·50)
    printed = fi.theorem_15(s, betas=betas, a=1.5, b=2.0, L=2.0, form="as_printed")
    assert printed.value == pytest.approx(math.exp(2 * (0.15 + 0.1 / 3)) * 13.5 / 10)
    assert printed.holds
    # repaired: φ(t) = (1 + 0.5/t)², source 2abL_G/(CSL) = 2·9/100; δ ← φ(1+2β)δ + (φ−1)·source
    delta = 1.25 * 0.18
    for t, beta in ((1, 0.1), (2, 0.05), (3, 0.1 / 3)):
        phi = (1 + 0.5 / t) ** 2
        delta = phi * (1 + 2 * beta) * delta + (phi - 1) * 0.18
    assert fi.stability_distance(s, betas=betas, L=2.0, spread=9.0) == pytest.approx(delta)
    repaired = fi.theorem_15(s, betas=betas, a=1.5, b=2.0, L=2.0)
    assert repaired.value == pytest.approx(3 * delta)
    assert repaired.holds
    # FedAvg, β = 0, where the printed form divides by zero
    assert fi.theorem_15(s, betas=[0.0] * 4, a=1.5, b=2.0, L=2.0).value < repaired.value
    late = fi.theorem_15(replace(s, c=500.0, K=500, T=1), betas=[0.1] * 2, a=1.5, b=2.0, L=2e4)
    assert (late.value, late.violated[0].name) == (math.inf, "growth < ∞")


def test_the_repaired_theorem_15_covers_a_loss_that_reaches_its_lemmas():
    """f(w, z) = z·w − Lw²/2 on one client of one sample: each step adds η(z − z̃) and grows by 1 + ηL."""
    s = fi.Sampling(N=1, C=1, S=1, K=3, T=20, c=0.1, L_G=1.0)
    w = other = 0.0
    for t in range(21):
        for _ in range(3):
            rate = 0.1 / max(t, 1)
            w, other = w - rate * (1.0 - 2.0 * w), other - rate * (-1.0 - 2.0 * other)
    distance = fi.stability_distance(s, betas=[0.0] * 21, L=2.0, spread=1.0)
    assert abs(w - other) == pytest.approx(distance)
    printed = fi.theorem_15(s, betas=[1e-9] * 21, a=1.0, b=1.0, L=2.0, form="as_printed")
    assert printed.terms["stability"] * 2e-9 < distance  # its K·c/(CS) alone


def test_theorem_15_names_a_bad_schedule():
    s = replace(SAMPLING, T=3)
    given = {"a": 1, "b": 1, "L": 2.0, "form": "as_printed"}
    fast = fi.theorem_15(s, betas=[0.1, 0.1, 0.025, 0.00625], **given)
    assert [(c.name, round(c.factor, 6)) for c in fast.violated] == [("η_t/β^t does not grow", 2.666667)]
    rising = fi.theorem_15(s, betas=[0.1, 0.1, 0.1, 0.2], **given)
    assert rising.violated[0].name == "β^t decays"
    none = fi.theorem_15(s, betas=[0.0] * 4, **given)
    assert none.value == math.inf
    assert none.violated[0].name == "β^0 > 0"
    with pytest.raises(ValueError, match="betas has 2 entries: give T"):
        fi.theorem_15(s, betas=[0.1, 0.1], **given)


def test_excess_risk_adds_up():
    g = fi.theorem_12(SAMPLING, beta=0.0, L=2.0, U=3.0, sample_spread=6.0)
    o = fi.theorem_4(replace(RUN, beta=0.0), mu=0.4, **NOISE)
    assert fi.excess_risk(g, o).value == pytest.approx(g.value + o.value)
    void = fi.theorem_4(replace(RUN, beta=0.1), mu=0.4, **NOISE)
    assert fi.excess_risk(g, void).value == math.inf


def test_rates_and_steps():
    assert fi.step_theorem_1(4, 2, 8, "as_printed") == pytest.approx(0.5)
    assert fi.step_theorem_1(4, 2, 8) == pytest.approx(math.sqrt(0.5) / 2)
    assert fi.rate_theorem_1(4, 2, 8, "as_printed") == 1 / 8
    assert fi.rate_theorem_1(4, 2, 8) == pytest.approx(1 / math.sqrt(32))
    assert fi.step_theorem_4(4, 2, 8, lam=0.25, mu=2.0) == pytest.approx(math.log(64) / 8)
    assert fi.rate_theorem_4(4, 2, 8, "as_printed") == 1 / 64
    assert fi.rate_theorem_4(4, 2, 8) == 1 / 32
    assert fi.step_theorem_6(4) == 0.25
    assert fi.rate_theorem_6(4, 2, 8, "as_printed") == 1 / 64
    assert fi.rate_theorem_6(4, 2, 8) == 1 / 4
    assert fi.step_theorem_9(2, 8, zeta=0.25, mu=2.0) == pytest.approx(2 * math.log(16) / 8)
    assert fi.rate_theorem_9(8) == 1 / 64
    assert fi.rate_theorem_17(4, 2, 8, "as_printed") == 1 / 8
    assert fi.rate_theorem_17(4, 2, 8) == 1 / 2
    assert fi.rate_theorem_17(4, 2, 8, step="as_printed") == 1
    assert fi.rate_theorem_17_pl(8) == 1 / 64
    assert fi.rate_theorem_19(0.5, 8) == 1 / 16
    assert [(r.theorem, r.rate) for r in fi.TABLE_2] == [
        (1, "1/√(NKT)"), (4, "1/(NKT)"), (6, "1/(NKT)"), (9, "1/T²")
    ]  # fmt: skip


def test_the_repaired_rate_of_theorem_6_is_what_its_step_gives():
    def value(N: int, K: int, T: int) -> float:
        run = fi.RelaxedRun(beta=0, eta=1e-4 * fi.step_theorem_6(N), K=K, N=N, C=500, T=T, L=1e-3, D=1.0)
        return fi.theorem_6(run, a=1, b=1).value

    for N, K, T in ((10, 2, 100), (100, 4, 300)):
        expected = value(1, 1, 1) * fi.rate_theorem_6(N, K, T)
        assert value(N, K, T) == pytest.approx(expected, rel=1e-3)


def test_table_3():
    # cL = 1: SGD T^½; q = cKL/(1+cKL) = 3/4 at K = 3
    both = fi.table_3(N=16, C=10, S=5, K=3, T=27, c=0.5, L=2.0)
    assert both["SGD"].samples == 1 / 50
    assert both["SGD"].iterations == pytest.approx(math.sqrt(27))
    assert both["FedAvg"].samples == pytest.approx(8 / 50)
    assert both["FedAvg"].iterations == pytest.approx(27.0)  # 81^¾
    assert both["FedAvg"].error == pytest.approx(27 * 8 / 50)
    alone = fi.table_3(N=1, C=10, S=5, K=1, T=27, c=0.5, L=2.0)
    assert alone["SGD"] == alone["FedAvg"]


def test_the_usual_beta_lies_outside_theorems_1_and_17():
    usual = replace(RUN, beta=0.1)
    one = fi.theorem_1(usual, **NOISE)
    assert one.value == math.inf
    assert one.violated[0].name == "|β| < 0.0842"
    assert one.violated[0].factor == pytest.approx(0.1 * math.sqrt(141))
    seventeen = fi.theorem_17(usual, **NOISE)
    assert seventeen.value == math.inf
    assert seventeen.violated[0].verdict == "violated by a factor 1.37"
    six = fi.theorem_6(replace(usual, eta=1e-4), a=1.0, b=1.0)
    assert six.value < math.inf


def test_between_the_two_ranges_only_theorem_17_and_the_repaired_theorem_4_are_void():
    run = replace(RUN, beta=0.075)
    assert fi.theorem_1(run, **NOISE).value < math.inf
    assert fi.theorem_17(run, **NOISE).value == math.inf
    assert fi.theorem_4(run, mu=0.4, **NOISE, form="as_printed").value < math.inf
    four = fi.theorem_4(run, mu=0.4, **NOISE)
    assert four.value == math.inf
    assert "|β| < 0.0727" in {c.name for c in four.violated}


def test_learning_rate_conditions():
    run = replace(RUN, eta=0.02)  # 1/(NKL) = 0.01
    by_name = {c.name: c for c in fi.variance_conditions(run)}
    assert by_name["η ≤ 1/(NKL)"].factor == pytest.approx(2)
    # 1/(2KL(1 + 78·(1/141)·25/10)) with β²κ_β = 1/141
    limit = 1 / (20 * (1 + 78 / 141 * 2.5))
    assert by_name["η ≤ 1/(2KL(1+78β²κ_βK²/N))"].factor == pytest.approx(0.02 / limit)
    assert by_name["η ≤ 1/(L√(6(K−1)(2K−1)))"].factor == pytest.approx(0.02 * 2 * math.sqrt(6 * 4 * 9))
    assert fi.step_limit(RUN) == pytest.approx(0.01)
    assert fi.step_limit(replace(RUN, K=1, N=1, C=1)) == pytest.approx(1 / (4 * (1 + 78 / 141)))
    assert fi.step_limit(replace(RUN, beta=0.1)) == 0
    inter = {c.name: c for c in fi.interpolation_conditions(replace(RUN, eta=0.2), 1.5, 2.0)}
    assert inter["η ≤ 1/(aKL)"].factor == pytest.approx(0.2 * 15)
    assert inter["η ≤ 1/(KL)"].factor == pytest.approx(2)
    assert inter["η ≤ 1/(2aL√((2K−1)(K−1)))"].factor == pytest.approx(0.2 * 3 * 2 * 6)


def test_printed_participation():
    names = {c.name for c in fi.variance_conditions(replace(RUN, K=1), "as_printed") if not c.holds}
    assert {"K > 1", "N < C"} <= names
    assert fi.participation(RUN) == ()


def test_the_dropped_product_is_a_condition_with_its_size():
    some = replace(RUN, C=100)
    assert not fi.dropped_product(some).holds
    assert fi.dropped_product(RUN).holds
    assert fi.dropped_product(replace(some, beta=0.0)).holds
    measured = fi.theorem_1(some, **NOISE, dropped=0.25).violated[-1]
    assert "measured 0.25" in measured.text
    assert fi.dropped_product(some, -0.1).holds


def test_lambda_at_the_largest_step_needs_ten_clients():
    for N in (9, 10):
        run = fi.RelaxedRun(beta=0, eta=1 / (N * 4 * 2.0), K=4, N=N, C=100, T=10, L=2.0, D=1.0)
        assert (fi.lam(run) > 0) == (N >= 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eta": 0.0}, "eta is 0.0: give a finite number above 0"),
        ({"beta": math.nan}, "beta is nan"),
        ({"N": 11}, "N is 11 of C = 10 clients: give N <= C"),
        ({"T": 0}, "T is 0"),
        ({"D": -1.0}, "D is -1.0"),
    ],
)
def test_bad_runs_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        replace(RUN, **change)


def test_bad_constants_are_refused():
    with pytest.raises(ValueError, match="sigma_l2 is -1"):
        fi.theorem_1(RUN, sigma_l2=-1, sigma_g2=0)
    with pytest.raises(ValueError, match="mu is 0"):
        fi.theorem_4(RUN, mu=0, **NOISE)
    with pytest.raises(ValueError, match="a is -1"):
        fi.theorem_6(RUN, a=-1, b=1)
    with pytest.raises(ValueError, match="form is 'fixed'"):
        fi.theorem_1(RUN, **NOISE, form="fixed")
    with pytest.raises(ValueError, match="N is 11 of C = 10"):
        replace(SAMPLING, N=11)


def test_zero_variance_is_a_plain_answer():
    bound = fi.theorem_1(RUN, sigma_l2=0.0, sigma_g2=0.0)
    assert bound.terms["noise"] == 0
    assert bound.value == bound.terms["initial"]


runs = st.builds(
    lambda beta, eta, K, N, more, T, L, D: fi.RelaxedRun(
        beta=beta, eta=eta, K=K, N=N, C=N + more, T=T, L=L, D=D
    ),
    st.floats(-0.3, 0.3), st.floats(1e-8, 1), st.integers(1, 50), st.integers(1, 100), st.integers(0, 100),
    st.integers(1, 10_000), st.floats(1e-3, 100), upto(100),
)  # fmt: skip
safe = st.builds(
    lambda beta, share, K, N, T: fi.RelaxedRun(
        beta=beta, eta=share / (N * K * 2.0), K=K, N=N, C=200, T=T, L=2.0, D=1.0
    ),
    upto(0.02), st.floats(0.01, 0.9), st.integers(2, 20), st.integers(20, 100), st.integers(1, 1000),
)  # fmt: skip
forms = st.sampled_from(FORMS)


def everything(run, form):
    return (
        fi.theorem_1(run, **NOISE, delta_T=1.0, form=form),
        fi.theorem_4(run, mu=0.5, **NOISE, form=form),
        fi.theorem_6(run, a=1.2, b=1.5, delta_T=1.0, form=form),
        fi.theorem_9(run, mu=0.5, a=1.2, b=1.5, form=form),
        fi.theorem_17(run, **NOISE, form=form),
        fi.theorem_19(run, a=1.2, b=1.5, form=form),
    )


@given(runs, forms)
def test_every_answer_is_a_number_and_an_infinite_one_has_a_reason(run, form):
    for bound in everything(run, form):
        assert not math.isnan(bound.value)
        assert math.isfinite(bound.value) or not bound.holds
        assert not any(math.isnan(v) for v in bound.constants.values())


@given(safe)
def test_beta_zero_is_fedavg_in_theorem_1_and_4_and_17(run):
    """FedAvg: λ = ½ − 38ηKL/N − 9η²K²L², κ = 8, no divergence term, whatever Δ_T is."""
    plain = replace(run, beta=0.0)
    x = run.eta * run.K * 2.0
    strength = 0.5 - 38 * x / run.N - 9 * x**2
    sigma = 1 + 3 * run.K
    fedavg = 1 / (strength * run.eta * run.K * run.T) + run.eta * 8 * 2 * sigma / (strength * run.N)
    for form in FORMS:
        assert fi.theorem_1(plain, **NOISE, delta_T=5.0, form=form).value == pytest.approx(fedavg)
    four = [fi.theorem_4(plain, mu=0.5, **NOISE, form=form).value for form in FORMS]
    assert four[0] == pytest.approx(four[1])
    assert fi.theorem_9(plain, mu=0.5, a=1, b=1).terms["relaxation"] == 0
    assert fi.dropped_product(plain).holds


@given(safe, forms, st.integers(1, 1000))
def test_more_rounds_never_loosen_a_bound(run, form, more):
    later = replace(run, T=run.T + more)
    for first, second in zip(everything(run, form), everything(later, form), strict=True):
        if first.name.startswith("Theorem 4 (repaired)") or math.isinf(first.value):
            continue  # its explicit remainder grows with T at a fixed step
        with_delta = "divergence" in first.terms and first.value < 0
        assert with_delta or second.value <= first.value * (1 + 1e-12)


@given(safe, forms, st.integers(1, 100))
def test_more_clients_a_round_never_loosen_theorem_1(run, form, more):
    wider = replace(run, N=run.N + more)
    first = fi.theorem_1(run, **NOISE, form=form).value
    assert fi.theorem_1(wider, **NOISE, form=form).value <= first * (1 + 1e-12)


@given(safe, st.floats(0.021, 0.07))
def test_a_larger_beta_only_costs_when_no_divergence_is_measured(run, beta):
    plain, relaxed = fi.theorem_1(run, **NOISE), fi.theorem_1(replace(run, beta=beta), **NOISE)
    assert relaxed.value >= plain.value


@given(safe, st.floats(0.01, 10))
def test_measured_divergence_tightens_theorem_1(run, delta):
    with_delta = fi.theorem_1(run, **NOISE, delta_T=delta).value
    assert with_delta <= fi.theorem_1(run, **NOISE).value


samplings = st.builds(
    lambda N, more, S, K, T, c, L_G: fi.Sampling(N=N, C=N + more, S=S, K=K, T=T, c=c, L_G=L_G),
    st.integers(1, 50), st.integers(0, 50), st.integers(1, 1000), st.integers(1, 50), st.integers(1, 1000),
    st.floats(1e-6, 10), upto(100),
)  # fmt: skip


@given(samplings, st.floats(-0.6, 1), st.floats(1e-3, 100), upto(10), forms)
def test_generalisation_is_never_nan_and_beta_zero_is_the_worst(s, beta, L, sigma_l, form):
    bound = fi.theorem_12(s, beta=beta, L=L, U=1.0, sample_spread=sigma_l, form=form)
    assert not math.isnan(bound.value)
    plain = fi.theorem_12(s, beta=0.0, L=L, U=1.0, sample_spread=sigma_l, form=form)
    if beta >= 0 and form == "as_printed":
        assert bound.value <= plain.value * (1 + 1e-9)
        gain = (1 + 2 * beta) ** (-1 / (1 + s.c * s.K * L))  # Remark 14
        assert bound.value == pytest.approx(plain.value * gain, rel=1e-6) or plain.value in (0, math.inf)


@given(samplings, st.floats(1e-3, 1), forms)
def test_theorem_15_is_never_nan(s, beta, form):
    betas = [beta / max(t, 1) for t in range(s.T + 1)]
    bound = fi.theorem_15(s, betas=betas, a=1.0, b=1.0, L=1.0, form=form)
    assert not math.isnan(bound.value)
    assert bound.holds == math.isfinite(bound.value) or form == "as_printed"
    assert bound.constants["sum_beta"] >= beta * math.log(s.T + 1)  # no schedule that fits has a bounded sum


def test_a_bound_tabulates_against_any_parameter():
    rows = table(lambda beta: fi.theorem_1(replace(RUN, beta=beta), **NOISE), "β", [0.0, 0.05, 0.1])
    assert [row.bound.value < math.inf for row in rows] == [True, True, False]
    assert rows[2].record["violated"].startswith("|β| < 0.0842")


@given(samplings, st.integers(1, 100), st.floats(1e-2, 10))
def test_more_clients_a_round_and_more_rounds_loosen_theorem_12(s, more, L):
    def value(s: fi.Sampling) -> float:
        return fi.theorem_12(s, beta=0.0, L=L, U=1.0, sample_spread=1.0, form="as_printed").value

    assert value(replace(s, T=s.T + more)) >= value(s) * (1 - 1e-9)
    assert value(replace(s, N=s.N + more, C=s.C + more)) * (s.C + more) >= value(s) * s.C * (1 - 1e-9)


def test_the_gain_of_beta_fades_as_k_grows():
    """Remark 14."""

    def gain(K: int) -> float:
        s = replace(SAMPLING, K=K)
        at = [
            fi.theorem_12(s, beta=b, L=2.0, U=3.0, sample_spread=6.0, form="as_printed").value
            for b in (0.0, 0.1)
        ]
        return at[1] / at[0]

    assert gain(1) < gain(10) < gain(1000) < 1


def factor(conditions, name: str) -> float:
    return next(c.factor for c in conditions if c.name == name)


def test_edges_of_the_conditions():
    few = fi.variance_conditions(replace(RUN, K=2, N=2, C=3), "as_printed")
    assert [c.holds for c in few if c.name in ("K > 1", "N > 1", "N < C")] == [True] * 3
    one = fi.variance_conditions(replace(RUN, K=1, N=1, C=1), "as_printed")
    assert [c.holds for c in one if c.name in ("K > 1", "N > 1", "N < C")] == [False] * 3
    # λμηK = 2 at μ = 2/(λ·0.005), ζμηK likewise
    plain = replace(RUN, beta=0.0)
    steep = fi.theorem_4(plain, mu=2 / (lam(0, 0, 0) * 0.005), **NOISE)
    assert factor(steep.conditions, "λμηK ≤ 1") == pytest.approx(2)
    z = 0.5 - 6 * 0.01 - 6e-4
    assert factor(fi.theorem_9(plain, mu=2 / (z * 0.005), a=1, b=1).conditions, "ζμηK ≤ 1") == pytest.approx(
        2
    )


def test_theorem_12_as_printed_says_when_t0_is_no_round():
    # t0 = √(A/(NUK))·√T = 4√(σ_l/6) at U = 3, β = 0.25 (above): σ_l = 6/64 gives ½, 6·64 gives 32 > T = 16
    args = {"beta": 0.25, "L": 2.0, "U": 3.0, "form": "as_printed"}
    early = fi.theorem_12(SAMPLING, sample_spread=6 / 64, **args)
    assert factor(early.conditions, "t0 ≥ 1") == pytest.approx(2)
    late = fi.theorem_12(SAMPLING, sample_spread=6 * 64, **args)
    assert factor(late.conditions, "t0 ≤ T") == pytest.approx(2)
    # repaired stays at t0 = T: NUK·16/50 + A·e^{1/15}/50 with A = 12·64
    stays = fi.theorem_12(SAMPLING, sample_spread=6 * 64, **args | {"form": "repaired"})
    assert stays.value == pytest.approx((12 * 16 + 12 * 64 * math.exp(1 / 15)) / 50)


def test_theorem_15_divides_by_the_first_beta_only():
    ends = fi.theorem_15(replace(SAMPLING, T=1), betas=[0.1, 0.0], a=1, b=1, L=1.0, form="as_printed")
    assert ends.value == pytest.approx(0.25 * 9 * 2 / (0.2 * 50))
    assert [c.name for c in ends.violated] == ["η_t/β^t does not grow"]


def test_table_2_names_its_assumptions():
    assert {r.theorem: r.assumptions for r in fi.TABLE_2} == {
        1: (1, 3, 5), 4: (1, 2, 3, 5), 6: (1, 4, 6), 9: (1, 2, 4, 6)
    }  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_meets_every_condition(form):
    full = replace(RUN, beta=0.003, N=99, C=100, eta=1e-5)
    bounds = everything(full, form)
    assert {c.name for b in bounds for c in b.violated} == {"β⟨∇f, x − mean w_i⟩ = 0"}
    met = fi.theorem_1(full, **NOISE, dropped=-0.1, form=form)
    assert met.holds
    assert met.guaranteed == met.value
    assert all(c.factor < 1 for c in met.conditions)


def test_the_worst_participation_of_remark_13():
    # cKL = 3, q = ¾: C^q/C·(TK)^q/S = 16^{−¼}·81^¾/5; printed 16^{−¾}/5
    args = {"C": 16, "S": 5, "K": 3, "T": 27, "c": 0.5, "L": 2.0}
    assert fi.worst_participation(**args) == pytest.approx(27 / 2 / 5)
    assert fi.worst_participation(**args, form="as_printed") == pytest.approx(1 / 8 / 5)
    fewer = fi.table_3(N=4, **args)["FedAvg"].error
    assert fewer < fi.worst_participation(**args)


@pytest.mark.parametrize("table_8", fi.TABLE_8)
def test_the_speed_ratios_of_table_8_follow_from_its_rounds_and_seconds(table_8):
    first = table_8[0]
    for row in table_8:
        assert fi.speed_ratio(first.rounds, row.rounds) == pytest.approx(row.rounds_ratio, abs=0.012)
        assert fi.speed_ratio(first.seconds, row.seconds) == pytest.approx(row.seconds_ratio, abs=0.012)
