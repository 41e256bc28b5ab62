"""Symbols: sums and products that print what they compute."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkeel.explain.rewriting import replaced
from fedkeel.explain.symbolic import Untraceable, name, symbol

KNOBS = {"a": 0.5, "b": -1.25, "c": 3.0}
leaf = st.sampled_from([name(key, number=value) for key, value in KNOBS.items()]) | st.sampled_from(
    [symbol(1.0), symbol(-2.0), symbol(0.0)]
)
expressions = st.recursive(
    leaf,
    lambda inner: st.tuples(inner, st.sampled_from("+-*n2"), inner).map(
        lambda parts: {
            "+": lambda x, y: x + y,
            "-": lambda x, y: x - y,
            "*": lambda x, y: x * y,
            "n": lambda x, y: -x / (y * y + 1),
            "2": lambda x, y: (x - y) ** 2,
        }[parts[1]](parts[0], parts[2])
    ),
    max_leaves=8,
)


def read(text: str) -> float:
    return float(eval(text.replace("·", "*").replace("−", "-").replace("²", "**2"), {}, dict(KNOBS)))


@settings(deadline=None)
@given(expressions)
def test_the_printed_text_has_the_value_of_the_expression(expression):
    value = expression.number
    assert value is not None
    assert math.isclose(read(str(expression)), value, rel_tol=1e-5, abs_tol=1e-5)


def test_like_terms_are_collected_and_common_factors_cancelled():
    x, c = name("x"), name("c")
    assert str(x + c - x) == "c"
    assert str(x * c / c) == "x"
    assert str(2 * x + x) == "3·x"
    assert str(-(x - c)) == "c − x"
    assert str(x - x) == "0"


def test_knobs_of_equal_value_stay_different():
    a, b = name("a", number=1.0), name("b", number=1.0)
    assert str(a / b) == "a/b"
    assert str(a - b) == "a − b"


def test_torch_functions_are_followed():
    x = name("x")
    assert str(torch.sqrt(x)) == "√x"
    assert str(torch.linalg.vector_norm(x - 1, dim=-1, keepdim=True)) == "‖x − 1‖"
    assert str(torch.clamp(x, max=1.0)) == "min(x, 1)"
    assert str(torch.zeros_like(x) + x.clone()) == "x"
    with pytest.raises(Untraceable, match="erfinv"):
        torch.erfinv(x)


def test_a_branch_is_possible_on_a_knob_only():
    assert name("beta", number=0.9)
    assert name("beta", number=0.9) > 0.5
    with pytest.raises(Untraceable, match="branch on x"):
        bool(name("x"))


def test_a_sum_is_found_inside_a_sum_and_its_opposite_too():
    x, d, h, new = name("x"), name("d"), name("h"), name("n")
    assert str(replaced(x + d - h, x + d, new)) == "n − h"
    assert str(replaced(h - x - d, x + d, new)) == "h − n"
    assert str(replaced((x + d) / h, x + d, new)) == "n/h"
