"""Remarks 3 and 5 of FedInit: the rates that Theorems 1 and 4 give at the steps named there."""

import math

import pytest

from fedkeel.theory import fedinit as fi
from fedkeel.theory.catalogue import CATALOGUE, BoundParameters
from fedkeel.theory.fedinit import poster

N, T = 10, 10**10
STEPS = (1, 10, 100, 1000)


def run(K: int, eta: float, rounds: int = T, clients: int = N) -> fi.RelaxedRun:
    return fi.RelaxedRun(beta=0.0, eta=eta, K=K, N=clients, C=clients, T=rounds, L=1.0, D=1.0)


def first(K: int, eta: float, sigma_g2: float = 1.0) -> float:
    bound = fi.theorem_1(run(K, eta), sigma_l2=1.0, sigma_g2=sigma_g2)
    assert bound.holds
    return bound.value


def test_at_remark_3s_step_the_bound_of_theorem_1_grows_with_the_root_of_k():
    values = [first(K, fi.step_theorem_1(N, K, T, "as_printed")) for K in STEPS]
    assert values[0] == pytest.approx(3.6e-4, rel=0.02)
    assert values[-1] == pytest.approx(9.7e-3, rel=0.02)
    assert values[3] / values[2] == pytest.approx(math.sqrt(10), rel=0.02)
    rates = [fi.rate_theorem_1(N, K, T, "as_printed") for K in STEPS]
    assert rates == sorted(rates, reverse=True)  # the remark says that it falls


def test_at_the_repaired_step_theorem_1_has_the_repaired_rate_in_t_and_n_and_none_in_k():
    values = [first(K, fi.step_theorem_1(N, K, T)) for K in STEPS]
    assert max(values) / min(values) < 1.3
    far = fi.theorem_1(run(10, fi.step_theorem_1(N, 10, 4 * T), 4 * T), sigma_l2=1, sigma_g2=1).value
    assert values[1] / far == pytest.approx(2, rel=0.01)
    more = fi.theorem_1(run(10, fi.step_theorem_1(4 * N, 10, T), clients=4 * N), sigma_l2=1, sigma_g2=1).value
    assert values[1] / more == pytest.approx(2, rel=0.05)


def test_where_all_clients_are_alike_local_steps_speed_theorem_1_up_as_printed():
    values = [first(K, fi.step_theorem_1(N, K, T, "as_printed"), sigma_g2=0.0) for K in (1, 100)]
    assert values[0] / values[1] == pytest.approx(10, rel=0.05)


def test_no_step_gives_theorem_1_the_printed_speed_up():
    def best(K: int) -> float:
        return min(
            first(K, 10 ** (-exponent / 8)) for exponent in range(40, 80) if 10 ** (-exponent / 8) * K < 0.01
        )

    assert best(1000) > 0.5 * best(1)  # the printed rate would have it fall by √1000


def test_remark_5s_step_leaves_theorem_4_without_a_speed_up_in_k():
    def fourth(K: int) -> float:
        eta = fi.step_theorem_4(N, K, T, lam=0.5, mu=0.5)
        bound = fi.theorem_4(run(K, eta), mu=0.5, sigma_l2=1.0, sigma_g2=1.0)
        assert bound.holds
        return bound.value

    assert fourth(1000) > 0.8 * fourth(1)
    assert fi.rate_theorem_4(N, 1000, T) == fi.rate_theorem_4(N, 1, T)


@pytest.mark.parametrize("step", ["as_printed", "repaired"])
def test_remark_18s_repaired_rates_are_theorem_17s_at_theorem_1s_two_steps(step):
    def measured(clients: int, K: int, rounds: int) -> float:
        eta = fi.step_theorem_1(clients, K, rounds, step)
        bound = fi.theorem_17(run(K, eta, rounds, clients), sigma_l2=0.0, sigma_g2=1.0)
        assert bound.holds
        return bound.value / fi.rate_theorem_17(clients, K, rounds, step=step)

    many, long = 2_000, 10**13  # J_β has a term in 1/N, which is to be small here
    base = measured(many, 10, long)
    for clients, K, rounds in ((4 * many, 10, long), (many, 1000, long), (many, 10, 100 * long)):
        assert measured(clients, K, rounds) == pytest.approx(base, rel=0.05)


def test_the_posters_first_row_grows_with_k_in_the_same_way():
    h = poster.Heterogeneity(lam=0.5, kappa_1=1.0, kappa_2=1.0, G2=1.0, sigma_l2=1.0)
    values = [
        poster.gradient_norm(run(K, fi.step_theorem_1(N, K, T, "as_printed")), h).value for K in (100, 1000)
    ]
    assert values[1] / values[0] == pytest.approx(math.sqrt(10), rel=0.05)


def test_fedsagds_bound_takes_its_own_momentum_and_shows_what_that_violates():
    bound = CATALOGUE["fedsagd-4.1"].bound(BoundParameters(), "repaired")
    (missed,) = [c for c in bound.violated if c.name.startswith("η·η_l")]
    assert missed.factor == pytest.approx(6.9, rel=0.01)
    without = CATALOGUE["fedsagd-4.1"].bound(BoundParameters(momentum=0.0, beta=0.05), "repaired")
    assert all(not c.name.startswith("η·η_l") for c in without.violated)  # RI's β is no part of it
