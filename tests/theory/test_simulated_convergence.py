"""No run exceeds a bound that is called guaranteed, and the formulas that were wrong are caught."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from simulated_convergence import all_cases
from simulated_fedinit import fedinit_cases, stale_copies
from tightness import convergence, on_the_page, summary

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi


def exceeded(cases) -> list:
    """The cases whose bound is called guaranteed and is not."""
    return [case for case in cases if case.measured > case.bound().guaranteed * (1 + 1e-9) + 1e-15]


@pytest.mark.slow(24)
def test_no_run_exceeds_a_guaranteed_bound():
    cases = all_cases()
    assert exceeded(cases) == []
    for theorem in {case.theorem for case in cases}:
        of_it = [case for case in cases if case.theorem == theorem]
        sure = [case for case in of_it if math.isfinite(case.bound().guaranteed)]
        assert len(sure) > 0.8 * len(of_it), theorem
        assert {case.full for case in sure} == ({True} if "Beyond" in theorem else {True, False}), theorem


@pytest.mark.slow(5)
@pytest.mark.parametrize("name", ["theorem_17", "theorem_19"])
def test_pretending_that_all_clients_took_part_is_caught(monkeypatch, name):
    """The old formulas had the constants of N = C whatever C was."""
    repaired = getattr(fi, name)
    monkeypatch.setattr(fi, name, lambda run, **rest: repaired(replace(run, C=run.N), **rest))
    caught = exceeded(fedinit_cases())
    assert {case.theorem for case in caught} == {f"FedInit {name[-2:]}"}
    assert not any(case.full for case in caught)


@pytest.mark.slow(5)
def test_the_issues_counter_example_has_its_size():
    """2 of 200 clients: Δ is larger than the old value of Theorem 17, and than that of Theorem 19."""
    case = stale_copies()
    quiet = {"sigma_l2": 0.0, "sigma_g2": 0.0}
    pretended = replace(case.run, C=2)
    assert (
        fi.theorem_17(pretended, **quiet).guaranteed
        < case.delta
        < fi.theorem_17(case.run, **quiet).guaranteed
    )
    assert (
        fi.theorem_19(pretended, a=1, b=1).guaranteed
        < case.delta
        < fi.theorem_19(case.run, a=1, b=1).guaranteed
    )


def test_the_rounds_of_corollary_4_8_reach_epsilon_by_theorem_4_7():
    c = bs.Constants(a=0.01, b=0.5, alpha=0.05, beta=1.0, tau1=0.6, tau2=1.5, sigma2=1e-4)
    eta_l = bs.largest_local_step(c, 3) / 2
    steps = bs.Steps(K=3, eta_l=eta_l, eta_g=bs.fastest_global_step(c, 3, eta_l) / 4)
    epsilon = 4 * bs.floor(c, steps)
    bound = bs.corollary_4_8(c, steps, gap_0=1.0, epsilon=epsilon)
    assert bound.holds
    assert bs.theorem_4_7(c, steps, gap_0=1.0, r=math.ceil(bound.value)).guaranteed <= epsilon


@pytest.mark.slow(9)
def test_the_rows_of_the_docs_are_what_comes_out():
    found = summary(convergence())
    shown = on_the_page("(?!FedInit Lemma |Table 1, )")
    assert shown == {name: pytest.approx(row, rel=0.06) for name, row in found.items()}
    assert max(worst for _, _, worst in found.values()) <= 1
