"""No round exceeds a lemma of FedInit, and the printed lemmas fail."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_lemmas import LEMMAS, cases, compared
from tightness import lemmas, on_the_page, summary


@pytest.mark.parametrize("name", LEMMAS)
def test_no_round_exceeds_a_lemma(name):
    for case in cases(name):
        measured, bound = compared(name, case)
        assert bound < np.inf
        assert measured <= bound * (1 + 1e-9), case


@pytest.mark.parametrize("name", ["23", "26"])
def test_the_printed_lemmas_fail_under_partial_participation(name):
    """The mutant: put the paper's constants back, and some federation exceeds them."""
    broken = [
        case
        for case in cases(name)
        for measured, bound in [compared(name, case, "as_printed")]
        if measured > bound * (1 + 1e-9)
    ]
    assert broken
    assert all(case.run.N < case.run.C for case in broken)


def test_the_rows_of_the_docs_are_what_comes_out():
    found = summary(lemmas())
    assert on_the_page("FedInit Lemma ") == {
        name: pytest.approx(row, rel=0.06) for name, row in found.items()
    }
