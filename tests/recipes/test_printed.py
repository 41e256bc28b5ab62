"""Numbers are read as papers print them."""

from __future__ import annotations

import pytest

from fedkeel.papers.recipes.printed import read_number, read_rows


@pytest.mark.parametrize(
    ("text", "value", "spread", "beyond"),
    [
        ("78.77±.11", 78.77, 0.11, False),
        ("2000+", 2000.0, None, True),
        ("1.19×", 1.19, None, False),
        ("84", 84.0, None, False),
        ("x", None, None, True),
    ],
)
def test_a_printed_number(text, value, spread, beyond):
    found = read_number(text)
    assert (found.value, found.spread, found.beyond) == (value, spread, beyond)


def test_a_dash_is_no_number():
    assert read_number("-") is None


@pytest.mark.parametrize("text", ["", "seven", "78,77", "78.77 %", "±.11"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="is no printed number"):
        read_number(text)


def test_rows_of_a_table():
    found = read_rows("A | 1 2+\n\n  B c | - 4", ["one", "two"])
    assert list(found) == ["A", "B c"]
    assert found["A"]["two"].beyond
    assert list(found["B c"]) == ["two"]


@pytest.mark.parametrize("text", ["A | 1", "A 1 2", "A | 1 2 3", "A | 1 2\nA | 3 4"])
def test_a_line_that_does_not_fit_its_columns_is_refused(text):
    with pytest.raises(ValueError, match="A"):
        read_rows(text, ["one", "two"])
