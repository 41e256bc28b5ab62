"""Which tests, and which cases of a parametrized test, are part of `make check`, and of `make test`.

`make check` leaves out what is marked `slow`. `slow(seconds)` says how long the tests that share the mark
take, run alone and all cases together. From `THOROUGH` seconds on they are for `make thorough` alone, unless
`thorough=False` keeps them in `make test`, because nothing shorter there protects the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

THOROUGH = 1  # seconds


def is_thorough(mark: pytest.Mark) -> bool:
    """Tell whether a mark `slow` leaves its tests to `make thorough`."""
    return bool(mark.args) and mark.args[0] >= THOROUGH and mark.kwargs.get("thorough", True)


def slow(*cases: Any) -> list[Any]:
    """Return cases that `make check` leaves out."""
    return [_case(case, pytest.mark.slow) for case in cases]


def one_in(number: int, cases: Iterable[Any], mark: pytest.MarkDecorator = pytest.mark.slow) -> list[Any]:
    """Return all cases, of which `make check` runs one in so many: together they take long.

    Where `mark` says that the others take `THOROUGH` seconds, it is `make thorough` that runs them.
    """
    return [_case(case) if index % number == 0 else _case(case, mark) for index, case in enumerate(cases)]


def _case(case: Any, *marks: Any) -> Any:
    """Return a case for `pytest.mark.parametrize`; a tuple has one value for each argument."""
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=marks)
