"""The FedInit poster's bounds and costs, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import one_hessian, run

import fedkeel as fk
from fedkeel.theory.fedinit import RelaxedRun, Sampling, poster


def upto(largest: float) -> st.SearchStrategy[float]:
    """Zero, or a number the checks accept."""
    return st.just(0.0) | st.floats(1e-9, largest)


RUN = RelaxedRun(beta=0.05, eta=0.01, K=5, N=10, C=100, T=100, L=2.0, D=3.0)
H = poster.Heterogeneity(lam=0.25, kappa_1=2.0, kappa_2=3.0, G2=0.5, sigma_l2=4.0)
FORMS = ["as_printed", "repaired"]


@pytest.mark.parametrize("form", FORMS)
def test_gradient_norm(form):
    # 2·3/(0.25·5) + 3·0.01·2·4/2.5 + 3·2·0.01·5·2·0.5/2.5
    assert poster.gradient_norm(RUN, H, form).value == pytest.approx(4.8 + 0.096 + 0.12)


@pytest.mark.parametrize("form", FORMS)
def test_suboptimality(form):
    # e^{−0.25·0.4·5}·3 + η·L/(2μλN)·(3κ_1KG² + κ_2σ_l²), ηL/(2μλN) = 0.02/2
    bound = poster.suboptimality(RUN, H, mu=0.4, form=form)
    assert bound.value == pytest.approx(3 * math.exp(-0.5) + 0.01 * (15 + 12))


S = Sampling(N=2, C=10, S=5, K=2, T=8, c=0.5, L_G=3.0)


@pytest.mark.parametrize("form", FORMS)
def test_stability(form):
    # cL = 1: (1/5)·√(UTK/L) = √(4·8·2/2)/5 = √32/5; (1+β)^{1/β} = 1.5² at β = ½;
    # ULTK = 4·2·16 = 128 over 2(9 + 5·3·σ_l) = 48 at σ_l = 1; √C_Δ/T = 3/8
    bound = poster.stability(S, beta=0.5, L=2.0, U=4.0, sigma_l=1.0, C_delta=9.0, form=form)
    assert bound.value == pytest.approx(math.sqrt(32) / 5 + 2.25 * math.sqrt(128 / 48) * 3 / 8)


def test_stability_has_a_limit_at_beta_zero():
    args = {"L": 2.0, "U": 4.0, "sigma_l": 1.0, "C_delta": 9.0}
    at_zero = poster.stability(S, beta=0.0, **args)
    assert at_zero.terms["divergence"] == pytest.approx(math.e * math.sqrt(128 / 48) * 3 / 8)
    assert poster.stability(S, beta=1e-9, **args).value == pytest.approx(at_zero.value)


def test_stability_says_why_it_is_infinite():
    args = {"L": 2.0, "U": 4.0, "sigma_l": 1.0, "C_delta": 9.0}
    flat = poster.stability(replace(S, L_G=0.0), beta=0.1, **args)
    assert (flat.value, flat.violated[-1].name) == (math.inf, "L_G > 0")
    far = poster.stability(S, beta=-1.0, **args)
    assert (far.value, far.violated[-1].name) == (math.inf, "β > −1")


def test_stability_rate_in_both_forms():
    # cL = 1, q = ½: printed 1/5 + (2/8)^½; repaired √16/5 + √2/√8
    assert poster.stability_rate(S=5, K=2, T=8, c=0.5, L=2.0, form="as_printed") == pytest.approx(0.7)
    assert poster.stability_rate(S=5, K=2, T=8, c=0.5, L=2.0) == pytest.approx(0.8 + 0.5)


def test_bounds_with_undefined_constants_are_not_called_guaranteed():
    assert (
        poster.gradient_norm(RUN, H).guaranteed == poster.suboptimality(RUN, H, mu=0.4).guaranteed == math.inf
    )


def test_costs():
    by_name = {c.method: c for c in poster.COSTS}
    assert by_name["FedSAM"].totals(N=2, C=10, K=3, d=7) == {
        "communication": 14, "gradients": 84, "storage": 140
    }  # fmt: skip
    assert by_name["SCAFFOLD"].totals(N=2, C=10, K=3, d=7)["communication"] == 28
    assert by_name["FedCM"].storage_ratio("as_printed") == 3
    assert by_name["FedCM"].storage_ratio() == 2
    assert all(c.storage_ratio("as_printed") == c.storage for c in poster.COSTS if c.method != "FedCM")
    assert by_name["FedInit"].storage_ratio() == by_name["FedAvg"].storage_ratio()


@given(st.floats(-0.99, 5), st.floats(1e-3, 100), upto(10), upto(100), st.integers(1, 10**6))
def test_stability_is_never_nan(beta, L, sigma_l, C_delta, T):
    bound = poster.stability(replace(S, T=T), beta=beta, L=L, U=4.0, sigma_l=sigma_l, C_delta=C_delta)
    assert not math.isnan(bound.value)


def test_bad_constants_are_refused():
    with pytest.raises(ValueError, match="lam is 0"):
        replace(H, lam=0.0)
    with pytest.raises(ValueError, match="G2 is -1"):
        replace(H, G2=-1.0)


def test_the_cost_table_is_the_posters():
    rows = {c.method: (c.communication, c.gradients, c.storage) for c in poster.COSTS}
    assert rows == {
        "FedAvg": (1, 1, 1), "FedAdam": (1, 1, 1), "FedSAM": (1, 2, 2), "SCAFFOLD": (2, 1, 3),
        "FedDyn": (1, 1, 3), "FedCM": (2, 1, 2), "FedInit": (1, 1, 1),
    }  # fmt: skip


def test_the_posters_unbiased_start():
    """(1/N)Σ w_{i,0} = w holds when all take part; a cohort of stale copies starts up to |β|√Δ away."""
    some = replace(RUN, N=1, C=2)
    assert poster.start_bias(some, delta=4.0).value == pytest.approx(0.05 * 2)
    claimed = poster.start_bias(some, delta=4.0, form="as_printed")
    assert (claimed.value, claimed.guaranteed) == (0, math.inf)
    assert poster.start_bias(replace(RUN, N=100), delta=4.0).guaranteed == 0
    assert poster.start_bias(replace(some, beta=0.0), delta=4.0, form="as_printed").guaranteed == 0


def test_the_mean_start_of_a_run_is_biased_under_partial_participation():
    rng = np.random.default_rng(0)
    problem = one_hessian(rng, C=4, d=2)
    work, beta = fk.Work(steps=2, lr=0.1), 0.3
    for cohort in (4, 2):
        trace = run(problem, fk.FedInit(beta), rounds=6, cohort=cohort, work=work)
        for t in range(1, 6):
            last = np.array([last_end(trace, t, i, problem.start) for i in range(4)])
            x = trace.models[t]
            starts = beta * (x - last)
            bias = float(np.linalg.norm(starts.mean(axis=0)))
            delta = float(((last - x) ** 2).sum(axis=1).mean())
            state = replace(RUN, beta=beta, N=cohort, C=4)
            assert bias <= poster.start_bias(state, delta=delta).guaranteed + 1e-12
        assert (bias > 1e-3) == (cohort < 4)


def last_end(trace, t, i, start):
    memory = trace.memories[t - 1].get(i)
    return start if memory is None else memory.last.numpy()
