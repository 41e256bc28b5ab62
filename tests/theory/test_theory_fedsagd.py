"""FedSAGD: Table 1 by hand in both forms, Theorem 4.1's conditions, and the laws of both."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import Problem, run

import fedkeel as fk
from fedkeel.theory import fedsagd as fs


def upto(largest: float) -> st.SearchStrategy[float]:
    """Zero, or a number the checks accept."""
    return st.just(0.0) | st.floats(1e-9, largest)


RUN = fs.StabilityRun(theta=3.0, eta_l=0.1, K=2, T=10)  # ηKΘ = 0.6
FORMS = ["as_printed", "repaired"]


def test_theta():
    assert fs.theta(1.0, 2.0, 2.0) == 3.0  # √(1 + 4 + 4)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_printed_right(form):
    assert fs.fedavg(RUN, form=form).value == pytest.approx(12)  # 2·0.6·10
    assert fs.mimelite(RUN, form=form).value == pytest.approx(12)
    assert fs.scaffold(RUN, form=form).value == pytest.approx(36)
    # 1 − (1 − 0.1·5)² = ¾; (2/5)·3·¾·10
    assert fs.fedprox(RUN, lam=5.0, form=form).value == pytest.approx(9)
    assert fs.fedanag(RUN, beta=0.75, form=form).value == pytest.approx(48)  # 12/(1 − ¾)
    assert fs.fedacg(RUN, lam=0.5, form=form).value == pytest.approx(3 / 0.5 * 6)


def test_a_server_step_scales_the_rows_that_have_one():
    for row in (fs.fedavg, fs.scaffold, fs.mimelite):
        assert row(RUN, eta_g=0.5).value == pytest.approx(row(RUN).value / 2)
    assert fs.fedanag(RUN, beta=0.75, eta_g=0.5).value == pytest.approx(24)


def test_fedlnag_in_both_forms():
    assert fs.fedlnag(RUN, beta=0.75, form="as_printed").value == pytest.approx(12)
    assert fs.fedlnag(RUN, beta=0.75).value == pytest.approx(48)  # b ← βb + dir: 12/(1 − ¾)
    assert fs.fedlnag(RUN, beta=0.0).value == pytest.approx(12)


def test_feddyn_in_both_forms():
    # λ = 5: 1 − (1 − 0.1·5)² = ¾, G = 0.15. Printed (4/5)·3·¾·10
    assert fs.feddyn(RUN, lam=5.0, form="as_printed").value == pytest.approx(18)
    # repaired, all clients, two rounds: (2·3/5)·[(1 − 1/16) + (¾ + 15/16)]
    assert fs.feddyn(TWO, lam=5.0).value == pytest.approx(1.2 * (15 / 16 + 3 / 4 + 15 / 16))
    # half the clients: π = 3/8, 1 − (5/8)² = 39/64
    half = fs.feddyn(replace(TWO, participation=0.5), lam=5.0)
    assert half.value == pytest.approx(1.2 * (2 * 39 / 64 + 3 / 8 + 39 / 64))
    # one round from h = 0: D and the server's share of it, 2GΘ(1 + p)
    assert fs.feddyn(replace(RUN, T=1), lam=5.0).value == pytest.approx(2 * 0.15 * 3 * 2)
    void = fs.feddyn(RUN, lam=0.0)
    assert (void.value, void.violated[0].name) == (math.inf, "λ > 0")


def test_a_share_of_clients_must_be_one():
    with pytest.raises(ValueError, match=r"participation is 1\.5: give a share above 0 and at most 1"):
        replace(RUN, participation=1.5)


def test_fedadam_in_both_forms():
    assert fs.fedadam(RUN, tau=0.01, eta_g=0.1, form="as_printed").value == pytest.approx(1200)
    assert fs.fedadam(RUN, tau=0.01, eta_g=0.1).value == pytest.approx(120)


def test_fedcm_in_both_forms():
    assert fs.fedcm(RUN, eta_g=0.5, form="as_printed").value == pytest.approx(60)  # 2·3·10
    assert fs.fedcm(RUN, eta_g=0.5).value == pytest.approx(6)  # 2·0.1·2·0.5·3·10


# FedSAGD at β = ½, λ = 4, μ = 1: λ+μ = 5, 1 − (1 − ½)² = ¾, Γ = ¾/5 = 0.15; two rounds: 1 − 0.85² = 0.2775
SAGD = {"beta": 0.5, "lam": 4.0, "mu": 1.0}
TWO = replace(RUN, T=2)


def test_gamma():
    assert fs.gamma(RUN, lam=4.0, mu=1.0) == pytest.approx(0.15)
    # the paper's own form: 1 − [λ/(λ+μ) + μ/(λ+μ)·(1 − η(λ+μ))^K]
    assert fs.gamma(RUN, lam=4.0, mu=1.0) == pytest.approx(1 - (0.8 + 0.2 * 0.25))
    assert fs.gamma(RUN, lam=0.0, mu=0.0) == 0


def test_fedsagd_in_its_three_readings():
    printed = fs.fedsagd(TWO, **SAGD, form="as_printed")
    assert printed.value == pytest.approx(3 * 3 / (5 * 0.15) * 0.2775)
    assert fs.theorem_c_12(TWO, **SAGD).value == pytest.approx(3 * 3 / 1.0 * 0.2775)
    repaired = fs.fedsagd(TWO, **SAGD)
    # G = 0.15, Γ = 0.15, s = 0.75: r_0 = G; δv after the first round is s/(1+β) = ½ of the gradient's, so
    # |r_1| = (1 − Γ)G + Gβ·½ = 0.15·(0.85 + 0.25)
    assert repaired.value == pytest.approx(2 * 3 * 0.15 * (1 + 0.85 + 0.25))
    assert repaired.constants["Gamma"] == pytest.approx(0.15)
    assert repaired.holds


def worst_case(beta, lam, mu, eta_l, K, T, eta_g=1.0):
    """Σ|r_j| by playing FedSAGD's recursion for a single unit gradient in the first round."""
    decay = lam + mu
    reach = sum(eta_l * (1 - eta_l * decay) ** k for k in range(K))
    share, x, v, total = reach / (eta_l * K), 0.0, 0.0, 0.0
    for j in range(T):
        g = 1.0 if j == 0 else 0.0
        move = -mu * reach * x - reach * (beta * v + g)
        v = beta / (1 + beta) * v - move / ((1 + beta) * eta_l * K)
        x += eta_g * move
        total += abs(x)
    assert 0 <= share <= 1 + 1e-12
    return total


@given(
    upto(0.99), upto(20), upto(20), st.floats(1e-4, 0.05), st.integers(1, 20), st.integers(1, 60),
    st.floats(0.1, 1),
)  # fmt: skip
def test_fedsagds_row_is_the_worst_case_of_what_the_method_does(beta, lam, mu, eta_l, K, T, eta_g):
    run = fs.StabilityRun(theta=0.5, eta_l=eta_l, K=K, T=T)
    if eta_l * (lam + mu) > 1:
        return
    bound = fs.fedsagd(run, beta=beta, lam=lam, mu=mu, eta_g=eta_g).value
    assert bound == pytest.approx(worst_case(beta, lam, mu, eta_l, K, T, eta_g), rel=1e-6)


def test_the_row_that_bounded_the_momentum_by_theta_was_exceeded():
    """The old repaired row, 2Θ/((1−β)μ)·(1−(1−Γ)^T), misses what decay adds to the recovered momentum."""
    run = fs.StabilityRun(theta=1.0, eta_l=0.05, K=1, T=50)
    old = 2 / (0.7 * 20) * (1 - 0.0**50)  # λ = 0, μ = 20: Γ = 1
    assert fs.fedsagd(run, beta=0.3, lam=0.0, mu=20.0).value > 1.06 * old


def test_many_rounds_cost_no_time():
    long = fs.StabilityRun(theta=1.0, eta_l=0.01, K=5, T=10**12)
    assert fs.fedsagd(long, beta=0.9, lam=0.01, mu=0.001).value == pytest.approx(2 / 0.001, rel=1e-2)


@pytest.mark.parametrize("form", FORMS)
def test_fedsagd_local_update(form):
    assert fs.fedsagd_local_update(RUN, **SAGD, form=form).value == pytest.approx(3 * 3 * 0.75 / 5)


def test_fedsagd_without_decay_grows_with_t_and_without_pull_too():
    no_decay = fs.fedsagd(RUN, beta=0.5, lam=5.0, mu=0.0)
    assert no_decay.value == pytest.approx(2 * 3 * worst_case(0.5, 5.0, 0.0, 0.1, 2, 10))
    assert fs.fedsagd(replace(RUN, T=20), beta=0.5, lam=5.0, mu=0.0).value > 1.9 * no_decay.value
    assert fs.fedsagd(RUN, beta=0.0, lam=0.0, mu=0.0).value == pytest.approx(fs.fedavg(RUN).value)
    printed = fs.fedsagd(RUN, beta=0.0, lam=0.0, mu=0.0, form="as_printed")
    assert (printed.value, printed.violated[0].name) == (math.inf, "λ+μ > 0")


def test_table_1_has_every_row():
    rows = fs.table_1(RUN)
    names = "FedAvg FedProx SCAFFOLD FedDyn FedLNAG FedAdam FedCM MimeLite FedANAG FedACG FedSAGD"
    assert [r.method for r in rows] == names.split()
    for row in rows[:-1]:
        if row.method != "FedDyn":  # its server's correction grows at first, and no walk contains it
            assert row.local_update.value * 10 == pytest.approx(row.over_rounds.value)
    assert rows[3].local_update.value == pytest.approx(4 * 3 * (0.1 + 0.099))
    by_name = {r.method: r for r in rows}
    ratios = {name: by_name[name].communication(9) for name in ("FedAvg", "SCAFFOLD", "FedSAGD", "FedACG")}
    assert ratios == pytest.approx({"FedAvg": 1, "SCAFFOLD": 2, "FedSAGD": 11 / 10, "FedACG": 1})
    assert by_name["FedSAGD"].communication(9, "unicast") == 1.5
    assert by_name["FedCM"].communication(1) == 1.5
    assert fs.table_1(RUN, fs.Hyperparameters(adam_eta_g=1.0))[5].over_rounds.value == pytest.approx(12_000)


def test_theorem_3_5_scales_the_discrepancy():
    gap = fs.generalisation_gap(fs.fedavg(RUN), lipschitz=0.5)
    assert gap.value == pytest.approx(6)
    void = fs.generalisation_gap(fs.fedanag(RUN, beta=1.0), lipschitz=0.0)
    assert void.value == math.inf


@pytest.mark.parametrize(
    ("bound", "name", "factor"),
    [
        (fs.fedprox(RUN, lam=20.0), "η_l·(λ) ≤ 1", 2),
        (fs.feddyn(RUN, lam=20.0, form="as_printed"), "η_l·(λ) ≤ 1", 2),
        (fs.fedsagd(RUN, beta=0.9, lam=20.0, mu=10.0), "η_l·(λ+μ) ≤ 1", 3),
        (fs.theorem_c_12(RUN, beta=0.9, lam=20.0, mu=10.0), "η_l·(λ+μ) ≤ 1", 3),
        (fs.fedsagd(RUN, beta=1.5, lam=0.1, mu=0.1), "β < 1", 1.5),
        (fs.fedanag(RUN, beta=1.0), "β < 1", 1),
        (fs.fedacg(RUN, lam=2.0), "λ < 1", 2),
    ],
)
def test_out_of_range_is_infinite_with_the_reason(bound, name, factor):
    assert bound.value == math.inf
    assert [(c.name, c.factor) for c in bound.violated] == [(name, pytest.approx(factor))]


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="theta is nan"):
        replace(RUN, theta=math.nan)
    with pytest.raises(ValueError, match="lam is -1"):
        fs.fedprox(RUN, lam=-1.0)
    with pytest.raises(ValueError, match="mu is -1"):
        fs.fedsagd(RUN, beta=0.5, lam=2.0, mu=-1.0)
    with pytest.raises(ValueError, match="tau is 0"):
        fs.fedadam(RUN, tau=0.0)
    with pytest.raises(ValueError, match="s is 9 of m = 5 clients: give s <= m"):
        replace(STEPS, s=9, m=5)


# Theorem 4.1 at λ = 0: α = K = 4, α' = 1, 1 − α'β = ½
STEPS = fs.AcceleratedSteps(K=4, eta_l=0.001, eta=2.0, s=3, m=9, beta=0.5, lam=0.0, L=2.0)


def test_product_limit_by_hand():
    share = 9 * 2 / (3 * 8)  # m(s−1)/(s(m−1)) = ¾
    first = 0.25 * 2 / (4 * 4 * 0.5 * 2 * math.sqrt(12))
    second = 0.5 * 2 / (6 * 0.5 * 2 * math.sqrt(8))
    third = 0.5 / (2 * 4 * 2)
    assert first < third < second
    assert fs.product_limit(STEPS) == pytest.approx(share * first)
    assert fs.product_limit(STEPS, constant=10) == pytest.approx(share * first * 0.4)
    assert fs.product_limit(replace(STEPS, beta=0.0)) == pytest.approx(share / (2 * 4 * 2))
    assert fs.product_limit(replace(STEPS, eta=0.01)) == pytest.approx(share * second * 0.005)
    assert fs.product_limit(replace(STEPS, s=1)) == 0
    assert fs.product_limit(replace(STEPS, s=1, m=1)) == pytest.approx(first)
    assert fs.product_limit(replace(STEPS, beta=1.0)) == 0


def test_alpha_with_a_proximal_term():
    steps = replace(STEPS, eta_l=0.5, lam=1.0, K=2)  # Σ (½)^k = 1.5, α' = ¾
    assert steps.alpha == pytest.approx(1.5)
    assert steps.room == pytest.approx(1 - 0.375)


@pytest.mark.parametrize("form", FORMS)
def test_theorem_4_1_conditions(form):
    assert all(c.holds for c in fs.theorem_4_1_conditions(STEPS, form))
    local, _, _, product = fs.theorem_4_1_conditions(replace(STEPS, eta_l=0.1, eta=1.0), form)
    assert local.factor == pytest.approx(0.1 * 15 * 2 * 4)
    assert product.factor == pytest.approx(0.1 / fs.product_limit(replace(STEPS, eta_l=0.1, eta=1.0)))
    assert not fs.theorem_4_1_conditions(replace(STEPS, beta=1.0), form)[2].holds


@pytest.mark.parametrize("form", FORMS)
def test_theorem_4_1_order_by_hand(form):
    # s = 3, K = 4, T = 12: √(sKT) = 12; ω = (6/8)(1/12 + 1/(3·16·12) + 1/12)
    bound = fs.theorem_4_1(STEPS, T=12, D_0=5.0, sigma_l2=2.0, sigma_g2=3.0, form=form)
    omega = 0.75 * (1 / 12 + 1 / 576 + 1 / 12)
    drift = (2 / 4 + 8 + 2 / 12 + 3) / 12
    sampling = (1 / 12 + 4 / 36) * omega * 2 + (4 / 12 + 4) * omega * 3
    assert bound.value == pytest.approx(10 / 12 + 2 / 12 + drift + sampling)
    full = fs.theorem_4_1(replace(STEPS, s=9), T=12, D_0=5.0, sigma_l2=2.0, sigma_g2=3.0)
    assert full.terms["sampling noise"] == full.terms["sampling heterogeneity"] == 0


def test_steps_of_remark_4_2():
    assert fs.local_step_limit(2.0, 4) == 1 / 120
    assert fs.decaying_step(2.0, 4, 9) == pytest.approx(1 / 24)
    assert fs.server_step(4, 9) == 6


def test_a_decaying_step_leaves_root_t():
    def at(T: int) -> float:
        return fs.fedavg(fs.StabilityRun(theta=1.0, eta_l=fs.decaying_step(1.0, 5, T), K=5, T=T)).value

    assert at(400) == pytest.approx(2 * at(100))


runs = st.builds(
    lambda theta, eta_l, K, T: fs.StabilityRun(theta=theta, eta_l=eta_l, K=K, T=T),
    upto(1e3), st.floats(1e-6, 10), st.integers(1, 200), st.integers(1, 10_000),
)  # fmt: skip
hypers = st.builds(
    lambda a, b, c, d, e, f: fs.Hyperparameters(
        prox_lam=a, dyn_lam=b, anag_beta=c, acg_lam=c, sagd_beta=d, sagd_lam=e, sagd_mu=f
    ),
    upto(20), upto(20), upto(1.5), upto(1.5),
    upto(10), upto(10),
)  # fmt: skip
forms = st.sampled_from(FORMS)


@given(runs, hypers, forms)
def test_every_answer_is_a_number_and_an_infinite_one_has_a_reason(run, hyper, form):
    for row in fs.table_1(run, hyper, form):
        for bound in (row.over_rounds, row.local_update):
            assert bound.value >= 0
            assert math.isfinite(bound.value) or not bound.holds


@pytest.mark.slow
@given(runs, hypers, forms, st.integers(1, 1000))
def test_more_rounds_and_more_steps_never_tighten_a_row(run, hyper, form, more):
    rounds, steps = replace(run, T=run.T + more), replace(run, K=run.K + more)
    rows = zip(fs.table_1(run, hyper, form), fs.table_1(rounds, hyper, form), strict=True)
    assert all(a.over_rounds.value <= b.over_rounds.value * (1 + 1e-9) for a, b in rows)
    longer = zip(fs.table_1(run, hyper)[:-1], fs.table_1(steps, hyper)[:-1], strict=True)
    assert all(a.over_rounds.value <= b.over_rounds.value * (1 + 1e-9) for a, b in longer)  # FedSAGD forgets


@given(runs, st.floats(1e-9, 0.09))
def test_a_vanishing_pull_is_fedavg_and_any_pull_is_no_worse(run, lam):
    plain = fs.fedavg(run).value
    assert fs.fedprox(run, lam=0.0).value == pytest.approx(plain)
    assert fs.fedprox(run, lam=lam).value <= plain * (1 + 1e-9)
    printed = fs.feddyn(run, lam=lam, form="as_printed").value
    assert printed == pytest.approx(2 * fs.fedprox(run, lam=lam).value)


@given(runs, upto(0.95), upto(0.04), st.floats(1e-6, 0.04))
def test_fedsagd_stays_below_its_limit_in_t(run, beta, lam, mu):
    bound = fs.fedsagd(run, beta=beta, lam=lam, mu=mu)
    forever = fs.fedsagd(replace(run, T=10**14), beta=beta, lam=lam, mu=mu)
    assert bound.value <= forever.value * (1 + 1e-9)
    assert math.isfinite(forever.value)


@given(st.integers(1, 50), st.floats(1e-6, 1), st.floats(1e-3, 10), st.integers(1, 20), upto(2))
def test_theorem_4_1_is_never_nan(K, eta_l, eta, s, beta):
    steps = fs.AcceleratedSteps(K=K, eta_l=eta_l, eta=eta, s=s, m=20, beta=beta, lam=0.5, L=1.0)
    assert fs.product_limit(steps) >= 0
    assert fs.theorem_4_1(steps, T=10, D_0=1.0, sigma_l2=1.0, sigma_g2=1.0).value >= 0


def test_the_communication_column():
    printed = {"SCAFFOLD": 2, "FedLNAG": 2, "MimeLite": 2, "FedCM": 1.5, "FedANAG": 1.5, "FedSAGD": 1.5}
    for row in fs.table_1(RUN):
        assert row.communication(1) == row.communication(1, "unicast") == printed.get(row.method, 1)
        few, many = row.communication(1), row.communication(10**6)
        assert many == pytest.approx(1 if few == 1.5 else few, abs=1e-5)


def test_two_clients_and_one():
    two = fs.theorem_4_1(replace(STEPS, s=1, m=2), T=4, D_0=0.0, sigma_l2=0.0, sigma_g2=1.0)
    # K = 4, s = 1, T = 4: ω = 1·(1/4 + 1/64 + 1/4)
    assert two.value == pytest.approx(1 / 4 + (1 + 4) * (0.5 + 1 / 64))
    alone = fs.theorem_4_1(replace(STEPS, s=1, m=1), T=4, D_0=0.0, sigma_l2=0.0, sigma_g2=1.0)
    assert alone.value == pytest.approx(1 / 4)


def test_default_coefficients_are_those_of_the_methods():
    """The defaults of `algorithms.md`."""
    assert fs.Hyperparameters() == fs.Hyperparameters(
        prox_lam=0.01, dyn_lam=0.1, lnag_beta=0.9, adam_tau=1e-3, adam_eta_g=0.1, cm_eta_g=1.0,
        anag_beta=0.9, acg_lam=0.85, sagd_beta=0.9, sagd_lam=0.01, sagd_mu=0.001,
    )  # fmt: skip


def test_equations_4_and_5_are_what_fedsagd_does():
    """Linear losses, two clients: moves by (4), and z of (5) moves by −ηη_l/(1−α'β)·Ḡ alone (Lemma D.7)."""
    steps = fs.AcceleratedSteps(K=3, eta_l=0.1, eta=1.0, s=2, m=2, beta=0.6, lam=0.5, L=1.0)
    gradients = np.array([[1.0, -2.0], [0.5, 3.0]])
    clients = tuple((g[None], np.zeros(1)) for g in gradients)
    problem = Problem("linear", clients, np.array([0.3, -0.1]))
    method = fk.FedSAGD(beta=0.6, lam=0.5, mu=0.0)
    trace = run(problem, method, rounds=5, cohort=2, work=fk.Work(steps=3, lr=0.1))
    mean = [gradients.mean(axis=0)] * 3
    G = np.array(fs.weighted_gradient(steps, mean))
    v, x = np.zeros(2), trace.models
    for t in range(5):
        move = np.array(fs.local_move(steps, mean, v))
        assert x[t + 1] - x[t] == pytest.approx(move)
        v = 0.6 / 1.6 * v - move / (1.6 * 0.3)
    z = [x[0], *(np.array(fs.auxiliary_point(steps, x[t], x[t - 1], G)) for t in range(1, 6))]
    for before, after in pairwise(z):
        assert after - before == pytest.approx(-0.1 / steps.room * G)
    with pytest.raises(ValueError, match="gradients has 2 entries: give K = 3"):
        fs.local_move(steps, mean[:2], v)
    with pytest.raises(ValueError, match="z needs a value below 1"):
        fs.auxiliary_point(replace(steps, beta=2.0, lam=0.0), x[1], x[0], G)
