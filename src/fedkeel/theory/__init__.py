"""Theory as a tool: the bounds, conditions and rates of four papers as pure functions of floats.

A module per paper: ``beyond_smoothness``, ``fedinit``, ``fedsagd``, ``rethinking``. Every theorem takes
``form="as_printed"`` or ``form="repaired"`` (the default) and answers with a ``Bound`` that carries its
terms, its constants and each condition checked; nothing here ever answers NaN.
"""

from fedkeel.common.references import add_references
from fedkeel.theory import beyond_smoothness, fedinit, fedsagd, rethinking
from fedkeel.theory.bound import Bound, BoundRow, Form, table
from fedkeel.theory.conditions import Condition

__all__ = [
    "Bound",
    "BoundRow",
    "Condition",
    "Form",
    "beyond_smoothness",
    "fedinit",
    "fedsagd",
    "rethinking",
    "table",
]

add_references("theory", beyond_smoothness, fedinit, fedsagd, rethinking)
