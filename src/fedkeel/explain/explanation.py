"""`explain(method)`: its equations, what it sends, keeps and costs, its settings, all read off its code."""

from __future__ import annotations

import inspect
import textwrap
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fedkeel.common.frozen import allowed
from fedkeel.common.references import Paper, cited
from fedkeel.core.algorithm import Algorithm, Facts, Plan, Walk
from fedkeel.explain.notation import digits
from fedkeel.explain.symbolic import Symbol, Untraceable, symbol
from fedkeel.explain.tracing import ALIASES, Trace, as_sharp, symbolised, trace, wd
from fedkeel.methods import Stages
from fedkeel.tensors.records import Record, leaves

_TINY = 7  # parameters of the model on which traffic is counted: any number but 1 would do
_LEGEND = (
    "y is the client's moving point, end where it stops, g its minibatch gradient at y, η the local rate, "
    "wd the weight decay, length the sum of the rates, share the cohort's part of the population; "
    "mean is over the cohort, ⁺ marks a new value"
)
_RARE_SYMBOLS = {
    "n_i": "n_i is the client's number of samples",
    "w_i": "w_i is the client's number of samples over the mean of all clients",
    "reach": "reach is how far a constant gradient of one would carry the client",
}
_PARTS = {
    "initial": "at first",
    "down": "server sends",
    "start": "client starts at",
    "step": "each step",
    "keep": "client keeps",
    "up": "client sends",
    "server": "server then",
}
_ON_ONE_LINE = ("initial", "down", "up")


class Load(NamedTuple):
    """How much is sent or kept: whole vectors of d numbers, and single numbers, by name."""

    vectors: int
    scalars: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"{self.vectors}·d"] if self.vectors else []
        parts += [f"{self.scalars} number{'s' * (self.scalars > 1)}"] if self.scalars else []
        return " + ".join(parts) or "nothing"

    def bytes(self, d: int, each: int = 4) -> int:
        """Return the bytes for a model of d parameters."""
        return (self.vectors * d + self.scalars) * each


class MethodSetting(NamedTuple):
    """An argument of a method: whose it is, what it is set to, its default, what is allowed."""

    owner: str
    name: str
    value: str
    default: str | None
    allowed: str


class Explanation(NamedTuple):
    """A method, explained. `equations` maps a part of the round to its lines."""

    method: str
    about: str
    equations: dict[str, list[str]]
    down: Load
    up: Load
    client_state: Load
    gradients_per_step: int
    other_models: int
    full_gradient: bool
    effective_l2: str | None
    settings: list[MethodSetting]
    references: list[Paper]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; bytes are for a million parameters of four bytes."""
        table = self._asdict()
        for name in ("down", "up", "client_state"):
            load: Load = table[name]
            table[name] = {**load._asdict(), "bytes_at_1M": load.bytes(1_000_000)}
        table["settings"] = [setting._asdict() for setting in self.settings]
        table["references"] = [paper.as_dict() for paper in self.references]
        return table

    def __str__(self) -> str:
        lines = [self.method, *self.about.splitlines(), ""]
        for part, equations in self.equations.items():
            shown = [", ".join(equations)] if part in _ON_ONE_LINE else equations
            lines += [f"{_PARTS[part] if i == 0 else '':<18}{line}" for i, line in enumerate(shown)]
        lines += ["", *textwrap.wrap(self._legend(), 100), "", *self._costs(), "", *self._setting_lines()]
        return "\n".join(lines).rstrip()

    def _legend(self) -> str:
        """Explain the symbols; those that are rare only where they are used."""
        used = " ".join(line for equations in self.equations.values() for line in equations)
        return "; ".join([_LEGEND, *(told for name, told in _RARE_SYMBOLS.items() if name in used)])

    def _costs(self) -> list[str]:
        passes = [f"{self.gradients_per_step} gradient{'s' * (self.gradients_per_step > 1)} per step"]
        if self.other_models:
            passes.append(f"forward passes of {self.other_models} other model{'s' * (self.other_models > 1)}")
        if self.full_gradient:
            passes.append("one gradient over all of a client's data per round")
        kept = f" ({', '.join(self.client_state.names)})" if self.client_state.names else ""
        lines = [
            f"{'a client receives':<18}{self.down}{_megabytes(self.down)}",
            f"{'a client sends':<18}{self.up}{_megabytes(self.up)}",
            f"{'a client keeps':<18}{self.client_state}{kept}",
            f"{'a client computes':<18}{', '.join(passes)}",
        ]
        return lines if self.effective_l2 is None else [*lines, f"{'effective L2':<18}{self.effective_l2}"]

    def _setting_lines(self) -> list[str]:
        if not self.settings:
            return ["no settings"]
        names = [f"{setting.owner}.{setting.name} = {setting.value}" for setting in self.settings]
        width = max(map(len, names)) + 2
        rest = [
            f"{setting.allowed}"
            + ("" if setting.default in (None, setting.value) else f"; default {setting.default}")
            for setting in self.settings
        ]
        return ["settings", *(f"  {name:<{width}}{text}" for name, text in zip(names, rest, strict=True))]


class StagedExplanation(NamedTuple):
    """Methods one after another, each explained, with when it ends."""

    method: str
    stages: list[tuple[str, Explanation]]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        stages = [{"until": until, **one.as_dict()} for until, one in self.stages]
        return {"method": self.method, "stages": stages}

    def __str__(self) -> str:
        parts = [f"— {until} —\n{one}" for until, one in self.stages]
        return "\n\n".join([self.method, *parts])


def explain(method: Algorithm | Stages) -> Explanation | StagedExplanation:
    """Explain a method, a plug-in or stages."""
    if isinstance(method, Stages):
        stages = [(_until(part.until), explain_method(part.method)) for part in method.parts]
        return StagedExplanation(repr(method), stages)
    return explain_method(method)


def explain_method(method: Algorithm) -> Explanation:
    """Explain a single method."""
    traced = _traced(method)
    down, up, client_state, plan = _loads(method)
    sharp = as_sharp(plan.sharp)
    return Explanation(
        method=repr(method),
        about=about(method),
        equations={}
        if traced is None
        else {part: getattr(traced, part) for part in _PARTS if getattr(traced, part)},
        down=down,
        up=up,
        client_state=client_state,
        gradients_per_step=2 if sharp is not None and (sharp.rho or sharp.dual is not None) else 1,
        other_models=0 if plan.objective is None else len(list(leaves(plan.objective.context))),
        full_gradient=plan.full_gradient,
        effective_l2=_effective_l2(plan if traced is None else traced.plan),
        settings=list(method_settings(method)),
        references=list(dict.fromkeys(_papers(method))),
    )


def about(method: Algorithm) -> str:
    """Return the docstrings of a method and of what it wraps."""
    texts = [inspect.getdoc(type(method)) or ""]
    inner = getattr(method, "inner", None)
    return "\n\n".join([*texts, *([about(inner)] if isinstance(inner, Algorithm) else [])])


def _papers(method: Algorithm) -> typing.Iterator[Paper]:
    """Yield the papers of a method of ours and of what it wraps."""
    if type(method).__module__.startswith("fedkeel."):
        yield from cited(type(method).__name__)
    inner = getattr(method, "inner", None)
    if isinstance(inner, Algorithm):
        yield from _papers(inner)


def method_settings(value: Any) -> typing.Iterator[MethodSetting]:
    """Yield a value's settings, then those of the values inside."""
    inside = []
    for name, field in type(value).__pydantic_fields__.items():
        given = getattr(value, name)
        if hasattr(given, "__dataclass_fields__"):
            inside.append(given)
        if isinstance(given, Algorithm):
            continue
        known = ALIASES.get((type(value).__name__, name), name)
        default = None if field.is_required() else repr(field.default)
        yield MethodSetting(
            type(value).__name__, known, repr(given), default, allowed(field.annotation, field.metadata)
        )
    for given in inside:
        yield from method_settings(given)


def _traced(method: Algorithm) -> Trace | None:
    """Follow the method with named settings, else with their numbers, else not at all."""
    for form in (symbolised, _as_it_is):
        try:
            return trace(form(method))
        except (Untraceable, TypeError, AttributeError, ValueError):
            continue
    return None


def _as_it_is(method: Algorithm) -> Algorithm:
    return method


def _loads(method: Algorithm) -> tuple[Load, Load, Load, Plan]:
    """Play a round on a tiny vector and count what is sent and kept."""
    x = torch.arange(1.0, 1.0 + _TINY)
    server, client = method.init(x), method.init_client(x)
    down = method.broadcast(server)
    facts = Facts.of(1, 1.0, x)
    plan = method.plan(down, client, facts)
    sharp = as_sharp(plan.sharp)
    walk = Walk(
        start=plan.start,
        end=plan.start + 1.0,
        length=torch.ones(1),
        steps=torch.ones(1),
        buffer=None if plan.momentum is None else x,
        dual=None if sharp is None or sharp.dual is None else x,
        full_gradient=x if plan.full_gradient else None,
        unit_move=torch.ones(1),
    )
    up, _ = method.finish(walk, down, client, facts)
    return _load(down), _load(up), _load(client), plan


def _load(record: Record) -> Load:
    parts = list(leaves(record))
    vectors = sum(tensor.numel() == _TINY for _, tensor in parts)
    scalars = sum(tensor.numel() for _, tensor in parts if tensor.numel() != _TINY)
    return Load(vectors, scalars, tuple(name for name, _ in parts))


def _effective_l2(plan: Plan) -> str | None:
    """Say how strong the L2 term is beside the gradient, where that is not simply weight_decay."""
    gain, decay = symbol(plan.gain), symbol(plan.decay)
    if gain.number in (None, 1.0) and decay.number in (None, 0.0):
        return None
    strength: Symbol = (wd + decay) / gain
    if decay.number or gain.number is None or gain.kind == "number":
        return str(strength)
    return f"{strength} = {digits(1 / gain.number)}·wd"


def _until(until: int | float | Callable[..., bool] | None) -> str:
    if until is None:
        return "to the end"
    if not callable(until) and until == 0:
        return "for no round"
    if isinstance(until, float):
        return f"for the first {100 * until:g} % of the rounds"
    return f"to round {until}" if isinstance(until, int) else f"until {until!r}"


def _megabytes(load: Load) -> str:
    return f" ({load.bytes(1_000_000) / 1e6:.3g} MB for a million parameters)"
