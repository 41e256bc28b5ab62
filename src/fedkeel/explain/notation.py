"""How symbolic expressions are printed: in the manner of the papers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def render(given: Any) -> str:
    """Return a `symbolic.Symbol` as text."""
    if given.kind == "name":
        return str(given.name)
    if given.kind == "number":
        return digits(given.scale)
    shape: Callable[[Any], str] = {"sum": _sum, "product": _product, "power": _power, "call": _call}[
        given.kind
    ]
    return shape(given)


def _sum(given: Any) -> str:
    terms = list(given.parts)
    first = next((index for index, (factor, _) in enumerate(terms) if factor > 0), 0)
    terms.insert(0, terms.pop(first))
    text = ""
    for factor, term in terms:
        sign = "−" if factor < 0 else "+"
        size = abs(factor)
        if term.kind == "number":
            shown = digits(size * term.scale)
        else:
            shown = str(term) if size == 1 else f"{digits(size)}·{_factor(term)}"
        text += f" {sign} {shown}" if text else shown if sign == "+" else f"−{shown}"
    return text


def _product(given: Any) -> str:
    sign = "−" if given.scale < 0 else ""
    size = abs(given.scale)
    over = [digits(size)] if size != 1 or not given.parts else []
    text = sign + "·".join([*over, *map(_factor, sorted(given.parts, key=_weight))])
    if not given.under:
        return text
    below = "·".join(map(_factor, given.under))
    return f"{text}/({below})" if len(given.under) > 1 else f"{text}/{below}"


def _weight(factor: Any) -> int:
    """Order factors as one writes them: settings, names, functions, sums."""
    if factor.number is not None:
        return -1
    return {"name": 0, "number": 0, "power": 1, "call": 1}.get(factor.kind, 2)


def digits(number: float) -> str:
    """Return a number, short."""
    return re.sub(r"e([-+])0*", r"e\1", f"{number:g}").replace("e+", "e")


def _factor(given: Any) -> str:
    return (
        f"({given})" if given.kind == "sum" or (given.kind == "product" and given.scale < 0) else str(given)
    )


def _power(given: Any) -> str:
    base, exponent = given.parts
    shown = f"({base})" if base.kind in ("sum", "product", "power") else str(base)
    if exponent.kind == "number" and exponent.scale == int(exponent.scale):
        return shown + f"{exponent.scale:g}".translate(_SUPERSCRIPTS)
    return f"{shown}^{exponent}" if exponent.kind == "name" else f"{shown}^({exponent})"


def _call(given: Any) -> str:
    args = [str(arg) for arg in given.parts]
    if given.name == "‖‖":
        return f"‖{args[0]}‖"
    if given.name == "√":
        return f"√{args[0]}" if given.parts[0].kind == "name" else f"√({args[0]})"
    if given.name == "if":
        return f"({args[1]} if {args[0].strip('[]')} else {args[2]})"
    if given.name.startswith("["):
        return f"[{args[0]} {given.name[1:-1]} {args[1]}]"
    return f"{given.name}({', '.join(args)})"
