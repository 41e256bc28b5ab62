"""Replaces an expression by a name, wherever it occurs inside another one."""

from __future__ import annotations

from fedkeel.explain.symbolic import Symbol, add, call, multiply, power, symbol


def replaced(whole: Symbol, part: Symbol, by: Symbol) -> Symbol:
    """Return an expression with every `part` replaced by `by`; a sum may contain another sum."""
    if str(whole) == str(part):
        return by
    if whole.kind == "sum":
        return add(_terms(whole, part, by))
    if whole.kind == "product":
        over = [symbol(whole.scale), *(replaced(factor, part, by) for factor in whole.parts)]
        return multiply(over, under=[replaced(factor, part, by) for factor in whole.under])
    if whole.kind == "power":
        return power(replaced(whole.parts[0], part, by), replaced(whole.parts[1], part, by))
    if whole.kind == "call":
        return call(whole.name, *(replaced(arg, part, by) for arg in whole.parts))
    return whole


def _terms(whole: Symbol, part: Symbol, by: Symbol) -> list[tuple[float, Symbol]]:
    """Return the terms of a sum; `by` replaces those of another sum, or of its opposite, if all are there."""
    factors = {str(term): factor for factor, term in whole.parts}
    replaced_terms: set[str] = set()
    if part.kind == "sum":
        for sign in (1.0, -1.0):
            if all(factors.get(str(term)) == sign * factor for factor, term in part.parts):
                replaced_terms, outside = {str(term) for _, term in part.parts}, (sign, by)
    terms = []
    for factor, term in whole.parts:
        if str(term) not in replaced_terms:
            terms.append((factor, replaced(term, part, by)))
        elif outside not in terms:
            terms.append(outside)
    return terms
