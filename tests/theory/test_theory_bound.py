"""The records every calculator answers with, and the arithmetic under them."""

import ast
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedkeel.theory
from fedkeel.theory import Bound, table
from fedkeel.theory.bound import assemble, choose, printed, vacuous
from fedkeel.theory.checks import count, finite, nonnegative, positive
from fedkeel.theory.conditions import Condition, above, at_least, at_most, below
from fedkeel.theory.numeric import decay, exp, expm1, geometric, harmonic, power, ratio


def test_a_condition_says_by_how_much_it_is_missed():
    missed = at_most("η ≤ 1/L", 0.3, 0.1)
    assert not missed.holds
    assert missed.factor == pytest.approx(3)
    assert missed.verdict == "violated by a factor 3"
    assert str(at_most("η ≤ 1/L", 0.1, 0.3, "why")).startswith("η ≤ 1/L: holds (0.1 against 0.3; why)")


def test_a_near_miss_is_not_a_factor_of_one():
    assert str(below("N < C", 10, 10)) == "N < C: violated, equal is not enough (10 against 10)"
    assert at_most("", 1.0004, 1).verdict == "violated by 0.04 %"
    assert at_most("", 1.02, 1).verdict == "violated by a factor 1.02"
    assert above("", -1, 0).verdict == "violated"


@pytest.mark.parametrize(
    ("condition", "holds", "factor"),
    [
        (at_most("", 1, 1), True, 1),
        (below("", 1, 1), False, 1),
        (at_least("", 2, 8), False, 4),
        (at_least("", 8, 2), True, 0.25),
        (above("", -1, 0), False, math.inf),
        (above("", 1, 0), True, 0),
        (at_most("", 1, 0), False, math.inf),
        (at_most("", 0, 0), True, 1),
        (at_most("", -2, -1), True, 0),
        (at_most("", 5, math.inf), True, 0),
        (at_most("", math.inf, math.inf), True, 1),
        (at_most("", math.inf, 2), False, math.inf),
        (above("", -math.inf, 0), False, math.inf),
        (at_most("", -1, 2), True, 0),
    ],
)
def test_factors_at_the_edges(condition, holds, factor):
    assert (condition.holds, condition.factor) == (holds, factor)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_factor_is_never_nan_and_agrees_with_the_verdict(value, limit):
    for condition in (at_most("", value, limit), above("", value, limit)):
        assert not math.isnan(condition.factor)
        assert condition.factor <= 1 if condition.holds else condition.factor >= 1


def test_a_violated_bound_keeps_its_number_and_guarantees_nothing():
    bound = assemble("b", {"x": 1.0, "y": 2.0}, [at_most("c", 2, 1)], {"k": 1.0})
    assert (bound.value, bound.guaranteed, bound.holds) == (3.0, math.inf, False)
    assert [c.name for c in bound.violated] == ["c"]
    assert assemble("b", {"x": 1.0}).guaranteed == 1.0


def test_a_broken_term_makes_the_bound_infinite_and_never_nan():
    assert assemble("b", {"x": math.inf, "y": -math.inf}).value == math.inf
    assert assemble("b", {"x": math.nan}).value == math.inf
    with pytest.raises(AssertionError):
        Bound(math.nan, {})
    with pytest.raises(AssertionError, match="needs its reason"):
        vacuous("b", (), {})


def test_a_table_has_a_row_for_each_value():
    def bound(T: int) -> Bound:
        return assemble("b", {"decay": 1 / T}, [at_most("T ≤ 2", T, 2)])

    rows = table(bound, "T", [1, 4])
    assert [row.at for row in rows] == [1, 4]
    assert rows[0].record == {"T": 1, "value": 1.0, "guaranteed": 1.0, "term/decay": 1.0, "violated": ""}
    assert rows[1].record["violated"] == "T ≤ 2"
    assert rows[1].record["guaranteed"] == math.inf


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="form is 'fixed': pass 'as_printed' or 'repaired'"):
        choose("fixed", 1, 2)  # type: ignore[arg-type]
    assert printed("as_printed")
    assert choose("repaired", 1, 2) == 2


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (positive, 0.0),
        (positive, -1.0),
        (positive, math.nan),
        (positive, math.inf),
        (nonnegative, -1e-9),
        (nonnegative, math.nan),
        (finite, math.nan),
        (finite, math.inf),
        (count, 0),
        (count, 1.5),
        (count, math.nan),
    ],
)
def test_bad_input_names_the_thing_the_value_and_the_fix(check, bad):
    with pytest.raises(ValueError, match=f"sigma is {bad}: give a"):
        check("sigma", bad)


@given(
    rate=st.floats(0, 10),
    step=st.floats(1e-6, 10),
    steps=st.integers(1, 30),
)
def test_geometric_is_the_sum_it_stands_for(rate, step, steps):
    if step * rate > 1:
        return
    by_hand = sum(step * (1 - step * rate) ** k for k in range(steps))
    assert geometric(rate, step, steps) == pytest.approx(by_hand, rel=1e-9)


def test_arithmetic_overflows_to_infinity():
    assert exp(1e4) == expm1(1e4) == power(10.0, 400) == power(0.0, -1) == ratio(1, 0) == math.inf
    assert (exp(0), expm1(0), power(2, 3), ratio(1, 4)) == (1, 0, 8, 0.25)
    assert (decay(1, 3), decay(1, 0), decay(0.5, 2)) == (0, 1, pytest.approx(0.25))
    assert geometric(1e-320, 1e-3, 5) == pytest.approx(5e-3)
    assert geometric(2.0, 0.5, 3) == 0.5


def test_harmonic_numbers():
    assert (harmonic(0), harmonic(1), harmonic(4)) == (0, 1, pytest.approx(25 / 12))
    assert harmonic(1000) == pytest.approx(math.fsum(1 / k for k in range(1, 1001)), rel=1e-14)


def test_theory_imports_nothing_but_the_standard_library_itself_and_its_papers():
    allowed = {"__future__", "math", "cmath", "dataclasses", "typing", "collections"}
    for path in Path(fedkeel.theory.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in allowed or name.startswith(
                    ("fedkeel.theory", "fedkeel.common.references")
                ), (path, name)


def test_all_is_the_public_face():
    for module in (
        fedkeel.theory,
        fedkeel.theory.fedinit,
        fedkeel.theory.fedsagd,
        fedkeel.theory.beyond_smoothness,
    ):
        assert all(hasattr(module, name) for name in module.__all__)
        assert len(set(module.__all__)) == len(module.__all__)
    assert Condition is fedkeel.theory.Condition
