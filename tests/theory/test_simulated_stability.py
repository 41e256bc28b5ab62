"""No run parts further than Table 1 allows, and the formulas that were wrong are caught."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_stability import METHODS, PER_METHOD, all_cases, counter_example
from tightness import on_the_page, stability, summary

from fedkeel.theory import fedsagd as fs
from fedkeel.theory.bound import assemble
from fedkeel.theory.numeric import geometric

pytestmark = pytest.mark.slow(24)


def exceeded(cases) -> list:
    """The cases whose bound is called guaranteed and is not."""
    return [case for case in cases if case.measured > case.bound().guaranteed * (1 + 1e-9) + 1e-12]


@pytest.mark.parametrize("method", METHODS)
def test_no_run_exceeds_its_row(method):
    cases = [case for case in all_cases() if case.method == method]
    assert len(cases) >= PER_METHOD
    assert {case.full for case in cases} == {True, False}
    assert all(np.isfinite(case.bound().guaranteed) for case in cases)
    assert any(case.measured > 0.01 * case.bound().value for case in cases)
    assert exceeded(cases) == []


@pytest.mark.parametrize("method", ["FedDyn", "FedLNAG"])
def test_the_counter_examples_stay_within_the_repaired_rows(method):
    case = counter_example(method)
    assert case.bound("as_printed").value < case.measured <= case.bound().guaranteed


def old_feddyn(run, *, lam, form="repaired"):
    """Without the server's −h/α."""
    return assemble("FedDyn", {"stability": 4 * run.theta * geometric(lam, run.eta_l, run.K) * run.T})


def old_fedlnag(run, *, beta, form="repaired"):
    """For momentum in its (1−β) form."""
    return assemble("FedLNAG", {"stability": 2 * run.walk * run.T})


@pytest.mark.parametrize(("name", "old"), [("feddyn", old_feddyn), ("fedlnag", old_fedlnag)])
def test_an_old_formula_put_back_is_caught(monkeypatch, name, old):
    assert exceeded(all_cases()) == []
    monkeypatch.setattr(fs, name, old)
    assert exceeded(all_cases())
    assert {case.method.lower() for case in exceeded(all_cases())} == {name}


def test_the_rows_of_the_docs_are_what_comes_out():
    found = summary(stability())
    assert on_the_page("Table 1, ") == {name: pytest.approx(row, rel=0.06) for name, row in found.items()}
    assert max(worst for _, _, worst in found.values()) <= 1
