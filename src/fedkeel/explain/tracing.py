"""Runs a method's functions on symbols: what it computes, read off its own code."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Objective, Plan, Sharp, Walk
from fedkeel.explain.rewriting import replaced
from fedkeel.explain.symbolic import Symbol, add, call, name, symbol
from fedkeel.tensors.records import Record, leaves
from fedkeel.tensors.records import transform as transform_tensors
from fedkeel.tensors.streams import Stream

ALIASES = {("Relaxed", "origin"): "aggregate"}  # a field that the expression calls by another name

transform: Any = transform_tensors  # symbols stand where tensors would
y, g, eta, wd = name("y"), name("g"), name("η"), name("wd")


class Trace(NamedTuple):
    """A method in equations, line by line, and the plan they come from."""

    initial: list[str]
    down: list[str]
    start: list[str]
    step: list[str]
    keep: list[str]
    up: list[str]
    server: list[str]
    plan: Plan


def trace(method: Any) -> Trace:
    """Follow one round of a method on symbols."""
    x = name("x")
    taken = {str(given) for _, _, given in settings_of(method) if isinstance(given, Symbol)}
    server_template, client_template = method.init(x), method.init_client(name("x⁰"))
    server = _named(server_template, taken)
    client = _named(client_template, taken)
    sent = method.broadcast(server)
    down, down_lines = _received(sent, taken)
    facts: Any = Facts(name("n_i"), name("w_i"))  # type: ignore[arg-type]
    plan = method.plan(down, client, facts)
    start = symbol(plan.start)
    walk = _walk(plan, start)
    up, memory = method.finish(walk, down, client, facts)
    memory_rules = _rules(client, memory)
    up = transform(lambda part: _with_news(symbol(part), memory_rules), up)
    mean = transform(lambda part: call("mean", part), up)
    following = method.aggregate(server, mean, _cohort())
    return Trace(
        initial=_initial(server, server_template, "x") + _initial(client, client_template, "x⁰"),
        down=down_lines,
        start=[f"y = {start}"] if start.kind == "name" else [f"y = start = {start}"],
        step=step_lines(plan),
        keep=_lines(memory_rules),
        up=[str(part) for _, part in leaves(up)],
        server=_lines(_rules(server, following)),
        plan=plan,
    )


def symbolised(method: Algorithm) -> Algorithm:
    """Return a copy of a method whose numbers are named symbols that know their values."""
    counts = Counter(setting for _, setting, _ in settings_of(method))
    made: Algorithm = _symbolised(method, {setting for setting, n in counts.items() if n > 1}, prefix="")
    return made


def _symbolised(value: Any, twice: set[str], prefix: str) -> Any:
    """Name the numbers of a value; a wrapper puts its name before those that the wrapped method has too."""
    made = copy.copy(value)
    if isinstance(getattr(value, "inner", None), Algorithm):
        prefix = f"{type(value).__name__.lower()}."
    for setting in value.__dataclass_fields__:
        given = getattr(value, setting)
        if type(given) in (int, float):
            shown = f"{prefix}{setting}" if setting in twice else setting
            object.__setattr__(made, setting, name(shown, number=given))
        elif hasattr(given, "__dataclass_fields__"):
            inner = _symbolised(given, twice, "" if isinstance(given, Algorithm) else prefix)
            object.__setattr__(made, setting, inner)
    return made


def settings_of(value: Any) -> Iterable[tuple[type, str, Any]]:
    """Yield (class, setting, value) of a method and of all that it wraps."""
    for setting in value.__dataclass_fields__:
        given = getattr(value, setting)
        if hasattr(given, "__dataclass_fields__"):
            yield from settings_of(given)
        else:
            yield type(value), ALIASES.get((type(value).__name__, setting), setting), given


def _named(record: Record, taken: set[str]) -> Record:
    """Return a record of the same shape whose parts are named symbols."""
    dotted = [path for path, _ in leaves(record)]
    short = Counter(path.rpartition(".")[2] for path in dotted)
    labels = []
    for path in dotted:
        last = path.rpartition(".")[2]
        label = last if short[last] == 1 and last not in taken else path
        labels.append(f"{label}_t" if label in taken else label)
    taken.update(labels)
    following = iter(labels)
    made: Record = transform(lambda _: name(next(following)), record)
    return made


def _received(sent: Record, taken: set[str]) -> tuple[Record, list[str]]:
    """Return what the clients see: a symbol for everything that is sent, and the lines that say what."""
    lines = []

    def see(part: Symbol) -> Symbol:
        part = symbol(part)
        if part.kind == "name":
            lines.append(str(part))
            return part
        label = next(letter for letter in ("z", "u", "w") if letter not in taken)
        taken.add(label)
        lines.append(f"{label} = {part}")
        return name(label)

    return transform(see, sent), lines


def _walk(plan: Plan, start: Symbol) -> Walk:
    sharp = as_sharp(plan.sharp)
    anchor = start if plan.anchor is None else plan.anchor
    seen = start if start.kind == "name" else name("start")
    walk: Any = Walk
    finished: Walk = walk(
        start=seen,
        end=name("end"),
        length=name("length"),
        steps=name("steps"),
        buffer=None if plan.momentum is None else name("b_end"),
        dual=None if sharp is None or sharp.dual is None else name("dual_end"),
        full_gradient=name(f"∇f_i({anchor})") if plan.full_gradient else None,
        unit_move=name("reach") if plan.momentum is not None or symbol(plan.pull).number != 0 else None,
    )
    return finished


def _cohort() -> Cohort:
    cohort: Any = Cohort
    made: Cohort = cohort(name("t"), name("T"), name("N"), name("share"), Stream(0).branch("explain"))
    return made


def as_sharp(given: Any) -> Sharp | None:
    """Return a plan's `sharp` in full; a bare number is its rho."""
    return given if given is None or isinstance(given, Sharp) else Sharp(given)


def step_lines(plan: Plan) -> list[str]:
    """Return the lines of one local step."""
    start = symbol(plan.start)
    lines = [] if plan.objective is None else [_objective_line(plan.objective)]
    anchor = plan.start if plan.anchor is None else plan.anchor
    sharp = as_sharp(plan.sharp)
    gradient = g
    if sharp is not None:
        lines += _sharp_lines(sharp)
        gradient = name("g_e")
        if not (isinstance(sharp.blend, int | float) and sharp.blend == 1):
            gradient = add([(1.0, (1 - symbol(sharp.blend)) * g), (1.0, symbol(sharp.blend) * name("g_e"))])
    pull = symbol(plan.pull) * (y - symbol(anchor))
    push = symbol(0.0 if plan.push is None else plan.push)
    direction = symbol(plan.gain) * gradient + push + pull + symbol(plan.decay) * y + wd * y
    if start.kind != "name":
        direction = replaced(direction, start, name("start"))
    if plan.momentum is None:
        return [*lines, f"y ← y − {eta * direction}"]
    beta, b = symbol(plan.momentum.beta), name("b")
    first = symbol(0.0) if plan.momentum.buffer is None else symbol(plan.momentum.buffer)
    if plan.momentum.damped:
        direction = (1 - beta) * direction
    lines += [f"b = {first} at the start", f"b ← {beta * b + direction}"]
    move = direction + beta * b if plan.momentum.nesterov else b
    return [*lines, f"y ← y − {eta * move}"]


def _sharp_lines(sharp: Sharp) -> list[str]:
    q = g
    for part in (sharp.dual, sharp.tilt):
        q = q - symbol(part) if part is not None else q
    lines = [] if q is g else [f"q = {q}"]
    q = q if q is g else name("q")
    lines.append(f"e = {symbol(sharp.rho) * q / (call('‖‖', q) + 1e-7)}")
    if sharp.dual is not None:
        renewed = symbol(sharp.dual) + name("e") - (symbol(0.0) if sharp.tilt is None else symbol(sharp.tilt))
        lines.append(f"{sharp.dual} ← {renewed}")
    return [*lines, "g_e = g(y + e)"]


def _objective_line(objective: Objective) -> str:
    function = getattr(objective.function, "__name__", "extra")
    context = ", ".join(str(part) for _, part in leaves(objective.context))
    return f"g = ∇(loss + {function}(y, {context}))" if context else f"g = ∇(loss + {function}(y))"


def _initial(record: Record, template: Record, origin: str) -> list[str]:
    pairs = zip(leaves(record), leaves(template), strict=True)
    return [f"{label} = {value}" for (_, label), (_, value) in pairs if str(label) != str(value) != origin]


def _rules(before: Record, after: Record) -> list[tuple[Symbol, Symbol]]:
    """Return (name, new value) for every part that changes."""
    pairs = zip(leaves(before), leaves(after), strict=True)
    return [(symbol(old), symbol(new)) for (_, old), (_, new) in pairs if str(old) != str(new)]


def _lines(rules: list[tuple[Symbol, Symbol]]) -> list[str]:
    """Return the rules, in an order and with a ⁺ that let one rule use the result of another."""
    done = []
    for index, (label, value) in enumerate(rules):
        others = [
            rule for i, rule in enumerate(rules) if i != index and (str(rule[1]) != str(value) or i < index)
        ]
        done.append((label, _with_news(value, others)))
    waiting = {str(label) for label, _ in done}
    lines: list[str] = []
    while done:
        ready = [pair for pair in done if not any(f"{other}⁺" in str(pair[1]) for other in waiting)]
        for label, value in ready or done:
            lines.append(f"{label} ← {value}")
            waiting.discard(str(label))
        done = [pair for pair in done if pair not in ready] if ready else []
    return lines


def _with_news(value: Symbol, rules: list[tuple[Symbol, Symbol]]) -> Symbol:
    """Write the new value of another part by its name, where it stands in an expression."""
    for label, new in rules:
        if new.kind in ("sum", "product"):
            value = replaced(value, new, name(f"{label}⁺"))
    return value
