"""Puts a name in the place of an expression, wherever it stands inside another one."""

from __future__ import annotations

from fedkeel.explain.symbolic import Symbol, add, call, multiply, power, symbol


def replaced(whole: Symbol, part: Symbol, by: Symbol) -> Symbol:
    """Return an expression with every place where `part` stands taken by `by`; a sum may hold a sum."""
    if str(whole) == str(part):
        return by
    if whole.kind == "sum":
        return add(_taken_out(whole, part, by))
    if whole.kind == "product":
        over = [symbol(whole.scale), *(replaced(factor, part, by) for factor in whole.parts)]
        return multiply(over, under=[replaced(factor, part, by) for factor in whole.under])
    if whole.kind == "power":
        return power(replaced(whole.parts[0], part, by), replaced(whole.parts[1], part, by))
    if whole.kind == "call":
        return call(whole.name, *(replaced(arg, part, by) for arg in whole.parts))
    return whole


def _taken_out(whole: Symbol, part: Symbol, by: Symbol) -> list[tuple[float, Symbol]]:
    """Return the terms of a sum; where they hold all terms of another sum, or its opposite, `by` stands."""
    held = {str(term): factor for factor, term in whole.parts}
    taken: set[str] = set()
    if part.kind == "sum":
        for sign in (1.0, -1.0):
            if all(held.get(str(term)) == sign * factor for factor, term in part.parts):
                taken, outside = {str(term) for _, term in part.parts}, (sign, by)
    terms = []
    for factor, term in whole.parts:
        if str(term) not in taken:
            terms.append((factor, replaced(term, part, by)))
        elif outside not in terms:
            terms.append(outside)
    return terms
