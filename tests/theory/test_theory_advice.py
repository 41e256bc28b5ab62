"""Advice: limits that are limits, steps that keep the conditions, sentences that carry the run's numbers."""

import dataclasses
import math

import pytest
from hypothesis import given as sampled
from hypothesis import strategies as st

from fedkeel.theory import advice, fedinit
from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory.advice import AdviceInputs
from fedkeel.theory.catalogue import CATALOGUE, BoundParameters

SEMI = bs.Constants(a=0.0, b=0.5, alpha=0.0, beta=1.0, tau1=0.9, tau2=1.5, sigma2=0.1)
BASE = AdviceInputs(
    L=1.0,
    L_G=2.0,
    sigma_l2=0.1,
    sigma_g2=0.2,
    Phi=1.0,
    D=1.0,
    U=3.0,
    gap_0=1.0,
    semi=SEMI,
    inter=(1.2, 1.5),
    K=5,
    N=10,
    C=50,
    S=40,
    T=100,
    eta_l=0.1,
    beta=0.1,
    epsilon=0.1,
)


def but(**changes) -> AdviceInputs:
    return dataclasses.replace(BASE, **changes)


def limit(limits, who: str) -> float:
    return next(one.limit for one in limits if one.who.startswith(who))


@sampled(st.floats(0, 0.99), st.integers(1, 50), st.booleans(), st.integers(1, 20))
def test_the_largest_step_of_theorem_1_keeps_every_condition(share, N, everyone, K):
    C = N if everyone else 50
    g = but(beta=share * fedinit.beta_limit(N, C), N=N, C=C, K=K)
    beta = g.beta
    step = limit(advice.local_limits(g), f"FedInit, Theorem 1, β = {beta:g}")
    for factor, holds in ((0.999, True), (1.01, False)):
        run = dataclasses.replace(g.relaxed_run(), eta=factor * step)
        within = run.eta <= fedinit.step_limit(run) and fedinit.lam(run) > 0
        assert within == holds


def test_the_largest_beta_at_given_steps_leaves_lambda_at_zero():
    g = but(eta_l=1e-3, beta=0.05)
    beta = limit(advice.beta_limits(g), "Theorem 1 at these steps")
    assert 0 < beta < fedinit.beta_limit(10, 50) < fedinit.BETA_LIMIT
    assert fedinit.lam(g.relaxed_run(beta)) == pytest.approx(0, abs=1e-9)
    assert limit(advice.beta_limits(but(eta_l=1.0)), "Theorem 1 at these steps") == 0


def test_the_best_steps_reach_the_target_by_their_own_bound():
    prospect = advice.best_steps(BASE)
    assert prospect.reachable
    bound = bs.theorem_4_7(SEMI, prospect.steps, gap_0=1.0, r=math.ceil(prospect.rounds))
    assert bound.holds
    assert bound.value <= BASE.epsilon * (1 + 1e-9)
    assert 2 * prospect.floor <= BASE.epsilon


@pytest.mark.slow
def test_a_smaller_target_takes_more_rounds_and_no_noise_fewer():
    rounds = advice.best_steps(BASE).rounds
    assert advice.best_steps(but(epsilon=0.01)).rounds > rounds
    quiet = but(semi=dataclasses.replace(SEMI, sigma2=0.0), sigma_l2=0.0)
    assert advice.best_steps(quiet).rounds < rounds
    assert advice.best_steps(quiet).floor == 0
    assert any("σ_l² = 0" in text for text in advice.caveats(quiet))
    assert any(verdict.theorem == "Section 5.2" for verdict in advice.theorem_checks(quiet))


def test_a_target_below_the_floor_is_told_with_the_floor():
    noisy = but(semi=dataclasses.replace(SEMI, a=0.05), epsilon=1e-4)
    prospect = advice.best_steps(noisy)
    assert not prospect.reachable
    assert prospect.steps is None
    assert math.isfinite(prospect.floor)
    assert f"give ε ≥ {2 * prospect.floor:.3g}" in prospect.reason


def test_where_tau1_is_zero_no_step_is_safe():
    prospect = advice.best_steps(but(semi=dataclasses.replace(SEMI, tau1=0.0)))
    assert prospect.reason == "no step is safe: τ1 is zero"
    assert math.isinf(prospect.rounds)


@pytest.mark.slow
def test_theory_and_practice_part_where_the_issue_says():
    text = "\n".join(advice.caveats(BASE))
    assert f"the usual β = 0.1 lies outside Theorem 1's range |β| < {fedinit.beta_limit(10, 50):.3g}" in text
    assert "Theorem 1's range |β| < 0.0842" in "\n".join(advice.caveats(but(N=50)))
    assert "β·C/N = 0.1·50/10 = 0.5" not in text
    assert "α > 26.9·L = 26.9" in text
    assert "Theorem 4.7 has all clients active; here 10 of 50 are" in text
    assert "β·C/N = 0.3·50/10 = 1.5 > 1" in "\n".join(advice.caveats(but(beta=0.3)))
    assert "averages 0.25 here" in "\n".join(advice.caveats(but(dropped=0.25)))


def test_with_mu_the_adviser_has_theorems_4_and_9():
    names = [check.theorem for check in advice.theorem_checks(but(mu=0.5))]
    assert {"Theorem 4", "Theorem 9"} <= set(names)
    assert not {"Theorem 4", "Theorem 9"} & {check.theorem for check in advice.theorem_checks(BASE)}


def test_theorem_12_takes_the_spread_of_single_samples():
    g = but(sample_spread=2.0, sample_gradient=5.0, B=4)
    assert (g.sampling.L_G, g.sampling.B, BASE.sampling.L_G) == (5.0, 4, 2.0)
    found = {check.theorem: check.value for check in advice.theorem_checks(g)}["Theorem 12"]
    assert found == fedinit.theorem_12(g.sampling, beta=g.beta, L=g.L, U=g.U, sample_spread=2.0).value


def test_without_the_spread_of_single_samples_there_is_no_theorem_12_and_the_caveats_ask_for_it():
    assert "Theorem 12" not in {check.theorem for check in advice.theorem_checks(BASE)}
    assert any("sample_spread" in text for text in advice.caveats(BASE))
    assert not any("sample_spread" in text for text in advice.caveats(but(sample_spread=2.0)))


def test_the_catalogue_flags_a_largest_distance_below_the_average_one():
    bound = CATALOGUE["fedinit-12"].bound(BoundParameters(sample_spread=0.5, sigma_l2=4.0), "repaired")
    assert [c.name for c in bound.violated] == ["sample_spread ≥ σ_l"]


def test_every_verdict_says_holds_or_by_how_much_not():
    for verdict in advice.theorem_checks(BASE):
        assert not math.isnan(verdict.value)
        assert all(c.verdict == "holds" or c.verdict.startswith("violated") for c in verdict.conditions)
        assert verdict.holds == all(c.holds for c in verdict.conditions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 1.0}, "beta is 1.0: give a number between -1 and 1"),
        ({"beta": math.nan}, "beta is nan"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"L": 0.0}, "L is 0.0"),
        ({"N": 51}, "N is 51 of C = 50 clients"),
        ({"inter": (math.inf, 1.0)}, "inter is"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        but(**changes)


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("form", ["as_printed", "repaired"])
def test_the_catalogue_answers_and_names_what_it_depends_on(name, form):
    entry, parameters = CATALOGUE[name], BoundParameters(beta=0.005)
    value = entry.bound(parameters, form).value
    assert math.isfinite(value)
    other = {"T": 500, "K": 7, "N": 15, "beta": 0.03}
    for parameter, changed in other.items():
        moved = entry.bound(dataclasses.replace(parameters, **{parameter: changed}), form).value != value
        printed_without = {("stability-fedcm", "K"), ("stability-feddyn", "N")}
        printed_without |= {(f"fedinit-{n}", "N") for n in (6, 9, 19)}
        if form == "repaired" or (name, parameter) not in printed_without:
            assert moved == (parameter in entry.depends), parameter
