"""Small symbolic arithmetic: run a method's own code on symbols and print what it computes.

A symbol stands where a tensor or a setting would. It knows the operators and the few torch functions that
methods use, collects like terms, and prints itself in the papers' manner. A symbol made of settings alone
also knows its number, so that a method may branch on a setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedkeel.common.errors import FedkeelError
from fedkeel.explain.notation import render


class Untraceable(FedkeelError):
    """A method does something that symbols cannot follow."""


class Symbol:
    """An expression: a name, a number, a sum, a product, a power or a call.

    `parts` holds (coefficient, symbol) pairs of a sum, the factors of a product, base and exponent of a
    power, or the arguments of a call; `under` the divisors of a product; `scale` a product's coefficient or
    a number's value; `number` the value where it is known.
    """

    __slots__ = ("_text", "kind", "name", "number", "parts", "scale", "under")

    def __init__(
        self,
        kind: str,
        name: str = "",
        parts: tuple[Any, ...] = (),
        *,
        under: tuple[Symbol, ...] = (),
        scale: float = 1.0,
        number: float | None = None,
    ) -> None:
        self.kind, self.name, self.parts, self.under, self.scale = kind, name, parts, under, scale
        self.number = number
        self._text: str | None = None

    def __str__(self) -> str:
        if self._text is None:
            self._text = render(self)
        return self._text

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Symbol | int | float):
            return False
        other = symbol(other)
        if self.number is not None and other.number is not None:
            return self.number == other.number
        return str(self) == str(other)

    def __bool__(self) -> bool:
        if self.number is None:
            raise Untraceable(f"a branch on {self}, which is known only while a run is on")
        return bool(self.number)

    def __float__(self) -> float:
        if self.number is None:
            raise Untraceable(f"{self} was taken as a plain number")
        return float(self.number)

    def __add__(self, other: Any) -> Symbol:
        return add([(1.0, self), (1.0, symbol(other))])

    def __radd__(self, other: Any) -> Symbol:
        return symbol(other) + self

    def __sub__(self, other: Any) -> Symbol:
        return add([(1.0, self), (-1.0, symbol(other))])

    def __rsub__(self, other: Any) -> Symbol:
        return symbol(other) - self

    def __neg__(self) -> Symbol:
        return add([(-1.0, self)])

    def __mul__(self, other: Any) -> Symbol:
        return multiply([self, symbol(other)])

    def __rmul__(self, other: Any) -> Symbol:
        return symbol(other) * self

    def __truediv__(self, other: Any) -> Symbol:
        return multiply([self], under=[symbol(other)])

    def __rtruediv__(self, other: Any) -> Symbol:
        return symbol(other) / self

    def __pow__(self, exponent: Any) -> Symbol:
        return power(self, symbol(exponent))

    def __rpow__(self, base: Any) -> Symbol:
        return power(symbol(base), self)

    def __gt__(self, other: Any) -> Any:
        return _compare(self, ">", other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return _compare(self, "≥", other, lambda a, b: a >= b)

    def __lt__(self, other: Any) -> Any:
        return _compare(self, "<", other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return _compare(self, "≤", other, lambda a, b: a <= b)

    def __getitem__(self, index: Any) -> Symbol:
        return self

    def __getattr__(self, method: str) -> Any:
        function = _FUNCTIONS.get(method)
        if function is None or method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **options: function(self, *args, **options)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Follow a torch function."""
        function = _FUNCTIONS.get(getattr(func, "__name__", "").removeprefix("linalg_"))
        if function is None:
            raise Untraceable(f"no symbolic form of {getattr(func, '__name__', func)!r}")
        return function(*args, **(kwargs or {}))


def name(text: str, number: float | None = None) -> Symbol:
    """Return a named symbol; a setting brings its number."""
    return Symbol("name", text, number=number)


def symbol(given: Any) -> Symbol:
    """Return a number as a symbol, and a symbol as it is."""
    if isinstance(given, Symbol):
        return given
    value = float(given)
    return Symbol("number", scale=value, number=value)


def call(function: str, *args: Any) -> Symbol:
    """Return a function of symbols."""
    return Symbol("call", function, tuple(symbol(arg) for arg in args))


def add(terms: Iterable[tuple[float, Symbol]]) -> Symbol:
    """Return a sum with like terms collected."""
    terms = list(terms)
    found: dict[str, tuple[float, Symbol]] = {}
    for factor, term in _flat(terms):
        before = found.get(str(term), (0.0, term))[0]
        found[str(term)] = (before + factor, term)
    kept = tuple((factor, term) for factor, term in found.values() if factor != 0)
    if not kept:
        return symbol(0.0)
    number = _known(lambda: sum(factor * _value(term) for factor, term in kept))
    if len(kept) == 1:
        factor, term = kept[0]
        return term if factor == 1 else multiply([symbol(factor), term])
    return Symbol("sum", parts=kept, number=number)


def _flat(terms: Iterable[tuple[float, Symbol]]) -> Iterable[tuple[float, Symbol]]:
    """Open nested sums, and take coefficients out of products."""
    for factor, term in terms:
        if term.kind == "sum":
            yield from _flat((factor * inner, part) for inner, part in term.parts)
        elif term.kind == "number":
            yield factor * term.scale, symbol(1.0)
        elif term.kind == "product" and term.scale != 1:
            bare = multiply(term.parts, under=term.under)
            yield from _flat([(factor * term.scale, bare)])
        else:
            yield factor, term


def multiply(factors: Iterable[Symbol], under: Iterable[Symbol] = ()) -> Symbol:
    """Return a product with numbers gathered in front and common factors cancelled."""
    scale = 1.0
    over: list[Symbol] = []
    below: list[Symbol] = []
    for sign, group in ((1, list(factors)), (-1, list(under))):
        for factor in group:
            if factor.kind == "number":
                scale *= factor.scale**sign
            elif factor.kind == "product":
                scale *= factor.scale**sign
                (over if sign > 0 else below).extend(factor.parts)
                (below if sign > 0 else over).extend(factor.under)
            else:
                (over if sign > 0 else below).append(factor)
    for text in {str(factor) for factor in over} & {str(factor) for factor in below}:
        for group in (over, below):
            group.pop([str(factor) for factor in group].index(text))
    if scale == 0:
        return symbol(0.0)
    if not over and not below:
        return symbol(scale)
    if scale == 1 and len(over) == 1 and not below:
        return over[0]
    if scale == -1 and len(over) == 1 and not below and over[0].kind == "sum":
        return add([(-1.0, over[0])])
    number = _known(lambda: scale * math.prod([*map(_value, over)]) / math.prod([*map(_value, below)]))
    return Symbol("product", parts=tuple(over), under=tuple(below), scale=scale, number=number)


def power(base: Symbol, exponent: Symbol) -> Symbol:
    """Return a power."""
    if exponent.kind == "number" and exponent.scale in (0, 1):
        return base if exponent.scale == 1 else symbol(1.0)
    if base.kind == exponent.kind == "number":
        return symbol(base.scale**exponent.scale)
    number = _known(lambda: _value(base) ** _value(exponent))
    return Symbol("power", parts=(base, exponent), number=number)


def _value(given: Symbol) -> float:
    if given.number is None:
        raise Untraceable("no number")
    return given.number


def _known(compute: Callable[[], float]) -> float | None:
    try:
        return compute()
    except (Untraceable, ZeroDivisionError, OverflowError):
        return None


def _compare(left: Symbol, sign: str, right: Any, compute: Callable[[float, float], bool]) -> Any:
    right = symbol(right)
    if left.number is not None and right.number is not None:
        return compute(left.number, right.number)
    return call(f"[{sign}]", left, right)


def _clamp(x: Symbol, min: Any = None, max: Any = None) -> Symbol:
    if min is not None:
        x = call("max", x, min)
    return x if max is None else call("min", x, max)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x: call("√", x),
    "square": lambda x: symbol(x) ** 2,
    "sign": lambda x: call("sign", x),
    "abs": lambda x: call("abs", x),
    "clamp": _clamp,
    "minimum": lambda x, y: call("min", x, y),
    "maximum": lambda x, y: call("max", x, y),
    "where": lambda condition, x, y: call("if", condition, x, y),
    "vector_norm": lambda x, *_, **__: call("‖‖", x),
    "norm": lambda x, *_, **__: call("‖‖", x),
    "sum": lambda x, *_, **__: call("sum", x),
    "mean": lambda x, *_, **__: call("mean", x),
    "zeros_like": lambda x, **_: symbol(0.0),
    "ones_like": lambda x, **_: symbol(1.0),
    "full_like": lambda x, value, **_: symbol(value),
    "empty_like": lambda x, **_: x,
    "normal_": lambda x, **_: name("ξ"),
    "to": lambda x, *_, **__: x,
    "clone": lambda x, **_: x,
    "detach": lambda x: x,
    "add": lambda x, y, alpha=1: x + alpha * y,
    "sub": lambda x, y, alpha=1: x - alpha * y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "neg": lambda x: -x,
    "pow": lambda x, y: x**y,
    "lerp": lambda x, y, weight: x + weight * (y - x),
}
