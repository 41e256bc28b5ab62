"""Which cases of a parametrized test are part of `make check`, and of `make test`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*cases: Any) -> list[Any]:
    """Return cases that `make check` leaves out."""
    return [_case(case, pytest.mark.slow) for case in cases]


def one_in(number: int, cases: Iterable[Any], mark: pytest.MarkDecorator = pytest.mark.slow) -> list[Any]:
    """Return all cases, of which `make check` runs one in so many: together they take long.

    Marked `thorough` it is `make test` that leaves the others out, and `make thorough` runs them.
    """
    return [_case(case) if index % number == 0 else _case(case, mark) for index, case in enumerate(cases)]


def _case(case: Any, *marks: Any) -> Any:
    """Return a case for `pytest.mark.parametrize`; a tuple has one value for each argument."""
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=marks)
