"""Reads values written as call expressions: `relaxed(scaffold(lr=0.5), beta=0.1)`, `DirichletByClass(0.1)`.

This is how methods, models, splits, noise, schedules and pre-training are named on the command line and in
experiment files. The text is parsed, never evaluated: only names of a given table can be called. A bare name
is a call without arguments, case, hyphens and underscores do not matter, and `repr` of every value reads back
as it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError, FedkeelError, did_you_mean

Names = Mapping[str, Callable[..., Any]]

_WORDS = {"true": True, "false": False, "none": None}
_LONGEST = 1_000
_SHOWN = 60  # characters on either side of where an error points
_HYPHEN = re.compile(r"""("[^"]*"|'[^']*')|(?<=[A-Za-z0-9_])-(?=[A-Za-z_])""")


def parse(text: str, names: Names, *, kind: str = "value") -> Any:
    """Return the value that an expression describes; `kind` is what an error message calls it."""
    if not isinstance(text, str):
        raise ConfigError(
            f"{text!r} is not {_with_article(kind)}: write it as text, as in {_example(names)!r}"
        )
    text = re.sub(r"\s", " ", text).strip()
    if not text:
        raise ConfigError(f"an empty text is not {_with_article(kind)}: write one, as in {_example(names)!r}")
    if len(text) > _LONGEST:
        raise ConfigError(
            f"{_with_article(kind)} of {len(text)} characters: the longest that is read has {_LONGEST}"
        )
    source = _HYPHEN.sub(lambda hit: hit.group(1) or "_", text)
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as problem:
        position = min(max((problem.offset or 1) - 1, 0), len(text))
        raise ConfigError(_pointed(text, position, f"not {_with_article(kind)}: {problem.msg}")) from None
    except (ValueError, RecursionError, MemoryError) as problem:
        raise ConfigError(f"{text[:60]!r} is not {_with_article(kind)}: {problem}") from None
    return _Reader(text, {_plain(name): call for name, call in names.items()}, names, kind).top(tree.body)


def parse_method(text: str) -> Any:
    """Return the method, plug-in or stages that a text describes."""
    from fedkeel.core.algorithm import Algorithm  # noqa: PLC0415  the readers below import what they name
    from fedkeel.methods import Stages  # noqa: PLC0415

    made = parse(text, method_names(), kind="method")
    if not isinstance(made, Algorithm | Stages):
        raise ConfigError(f"{text!r} is not a method: it is {made!r}; `fedkeel methods` lists them")
    return made


def spell_method(text: str) -> str:
    """Return a method's text with its names spelled out: relaxed(SCAFFOLD) for `relaxed(scaffold())`."""
    known = {_plain(name): name for name in method_names()}

    def spell(hit: re.Match[str]) -> str:
        word = hit.group()
        return word if word[0] in "\"'" else known.get(_plain(word), word)

    return re.sub(
        r"""\"[^\"]*\"|'[^']*'|(?<![\w.])[A-Za-z_][\w-]*""", spell, re.sub(r"\(\s*\)", "", text.strip())
    )


def parse_split(text: str) -> Any:
    """Return the splitter that a text describes."""
    return _made_of(text, split_names(), kind="split")


def parse_noise(text: str) -> Any:
    """Return the noise on pictures that a text describes."""
    return _made_of(text, noise_names(), kind="kind of noise")


def parse_augment(text: str) -> Any:
    """Return the augmentation that a text describes."""
    return _made_of(text, augment_names(), kind="augmentation")


def parse_optimizer(text: str) -> Any:
    """Return the local optimizer that a text describes."""
    return _made_of(text, optimizer_names(), kind="optimizer")


def parse_schedule(text: str) -> Any:
    """Return the learning-rate schedule that a text describes."""
    return _made_of(text, schedule_names(), kind="schedule")


def parse_probe(text: str) -> Any:
    """Return the probe that a text describes."""
    return _made_of(text, probe_names(), kind="probe")


def parse_faults(text: str) -> Any:
    """Return the simulated faults that a text describes."""
    return _made_of(text, fault_names(), kind="kind of fault")


def parse_init(text: str) -> Any:
    """Return the pre-training that a text describes."""
    return _made_of(text, init_names(), kind="kind of initial weights")


@cache
def parse_model(text: str) -> Any:
    """Return the model that a text describes, with its own arguments: `mlp(200, 200)`."""
    return _made_of(text, model_names(), kind="model")


def parse_reducer(text: str) -> Any:
    """Return the reducer that a text describes."""
    return _made_of(text, reducer_names(), kind="reducer")


def parse_attack(text: str) -> Any:
    """Return the attack that a text describes."""
    return _made_of(text, attack_names(), kind="attack")


def method_names() -> Names:
    """Return what may stand in a method's expression."""
    from fedkeel.methods import METHODS, Adaptive, Decayed, private, relaxed, sharp, stages  # noqa: PLC0415
    from fedkeel.probes import SwitchingRule  # noqa: PLC0415

    return _by_name((*METHODS, relaxed, sharp, private, stages, Adaptive, Decayed, SwitchingRule))


def probe_names() -> Names:
    """Return what may stand in a probe's expression."""
    from fedkeel.probes import PROBES  # noqa: PLC0415

    return _by_name(PROBES)


def split_names() -> Names:
    """Return what may stand in a split's expression."""
    from fedkeel.data import (  # noqa: PLC0415
        IID,
        DirichletByClass,
        DirichletByClient,
        Natural,
        Pathological,
    )

    return _by_name((IID, DirichletByClass, DirichletByClient, Pathological, Natural))


def noise_names() -> Names:
    """Return what may stand in the expression of a noise."""
    from fedkeel.data import ChannelGains, ClassBrightness  # noqa: PLC0415

    return _by_name((ChannelGains, ClassBrightness))


def augment_names() -> Names:
    """Return what may stand in an augmentation's expression."""
    from fedkeel.data import Augment  # noqa: PLC0415

    return _by_name((Augment,))


def optimizer_names() -> Names:
    """Return what may stand in an optimizer's expression."""
    from fedkeel.core.work import AdamW  # noqa: PLC0415

    return _by_name((AdamW,))


def schedule_names() -> Names:
    """Return what may stand in a schedule's expression."""
    from fedkeel.core.schedules import SCHEDULES  # noqa: PLC0415

    return _by_name(SCHEDULES)


def fault_names() -> Names:
    """Return what may stand in the expression of simulated faults."""
    from fedkeel.settings.faults import Faults  # noqa: PLC0415

    return _by_name((Faults,))


def init_names() -> Names:
    """Return what may stand in the expression of initial weights."""
    from fedkeel.experiments.pretraining import Pretrain  # noqa: PLC0415

    return _by_name((Pretrain,))


def model_names() -> Names:
    """Return what may stand in a model's expression."""
    from fedkeel.models.building import architectures  # noqa: PLC0415

    return architectures()


def reducer_names() -> Names:
    """Return what may stand in a reducer's expression."""
    from fedkeel.reducers import REDUCERS  # noqa: PLC0415

    return _by_name(REDUCERS)


def attack_names() -> Names:
    """Return what may stand in an attack's expression."""
    from fedkeel.attacks import ATTACKS  # noqa: PLC0415

    return _by_name(ATTACKS)


class _Reader(NamedTuple):
    """Turns the nodes of one text into values."""

    text: str
    calls: Names
    names: Names
    kind: str

    def top(self, node: ast.expr) -> Any:
        """Read the whole text: it must be a name or a call."""
        if isinstance(node, ast.Tuple):
            raise ConfigError(f"{self.text!r}: one {self.kind} is read here: give several one by one")
        if not isinstance(node, ast.Name | ast.Call):
            raise ConfigError(
                f"{self.text!r} is not {_with_article(self.kind)}: write one, as in {_example(self.names)!r}"
            )
        return self.read(node)

    def read(self, node: ast.expr) -> Any:
        """Read one part."""
        match node:
            case ast.Constant(value=int() | float() | str() | None):
                return node.value
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() as size)):
                return -size if isinstance(node.op, ast.USub) else size
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self.read(part) for part in parts)
            case ast.Name(id=word) if _plain(word) not in self.calls and word.lower() in _WORDS:
                return _WORDS[word.lower()]
            case ast.Name():
                return self.call(node, (), {})
            case ast.Call(func=ast.Name() as name):
                given = {key.arg: self.read(key.value) for key in node.keywords if key.arg is not None}
                if len(given) < len(node.keywords):
                    raise self.problem(node, _repeated([key.arg for key in node.keywords]))
                return self.call(name, tuple(self.read(part) for part in node.args), given)
        raise self.problem(node, "only names, calls, numbers, text in quotes and tuples can be used here")

    def call(self, name: ast.Name, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Call what a name stands for."""
        function = self.calls.get(_plain(name.id))
        if function is None:
            start = self.position(name)
            word = self.text[start : start + len(name.id)]
            hint = did_you_mean(word, self.names)
            if name.col_offset:  # inside of a call: a text may be meant
                hint += f"; a text as a value stands in quotes: '{word}'"
            raise self.problem(name, f"there is no {self.kind} {word!r}; {hint}")
        takes = inspect.signature(function).parameters
        if len(args) > len(takes) and not any(p.kind is p.VAR_POSITIONAL for p in takes.values()):
            listed = f" ({', '.join(takes)})" if takes else ""
            raise ConfigError(
                f"{function.__name__} takes at most {len(takes)} arguments{listed}, not {len(args)}"
            )
        try:
            return function(*args, **given)
        except FedkeelError:
            raise
        except TypeError as problem:
            raise ConfigError(_misfit(function, args, given, problem)) from None
        except ValueError as problem:
            raise ConfigError(str(problem)) from None

    def problem(self, node: ast.expr, message: str) -> ConfigError:
        """Return an error that points at a part of the text."""
        if isinstance(node, ast.Name) and len(node.id) == len(self.text):
            return ConfigError(message)
        return ConfigError(_pointed(self.text, self.position(node), message))

    def position(self, node: ast.expr) -> int:
        """Return where a part begins, in characters (the parser counts bytes)."""
        return len(self.text.encode()[: node.col_offset].decode(errors="ignore"))


def _made_of(text: str, names: Names, *, kind: str) -> Any:
    """Return what a text describes; a bare `true` or `none` describes nothing."""
    made = parse(text, names, kind=kind)
    if made is None or isinstance(made, bool):
        raise ConfigError(f"{text!r} is not {_with_article(kind)}: write one, as in {_example(names)!r}")
    return made


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _pointed(text: str, position: int, message: str) -> str:
    start = max(0, position - _SHOWN)
    return f"{message}\n  {text[start : position + _SHOWN]}\n  {' ' * (position - start)}^"


def _plain(name: str) -> str:
    return re.sub(r"[-_]", "", name).lower()


def _by_name(calls: Iterable[Callable[..., Any]]) -> Names:
    return {call.__name__: call for call in calls}


def _example(names: Names) -> str:
    """Return a call of the first name, with the arguments that it needs."""
    name, call = next(iter(names.items()))
    needed = [key for key, p in inspect.signature(call).parameters.items() if p.default is p.empty]
    return f"{name}({', '.join(needed)})"


def _repeated(names: list[str | None]) -> str:
    """Say what is wrong with the names of arguments: one is given twice, or hidden in `**`."""
    twice = next((name for name in names if name is not None and names.count(name) > 1), None)
    return "`**` cannot be used here" if twice is None else f"{twice!r} is given twice: leave one out"


def _misfit(
    function: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any], problem: TypeError
) -> str:
    """Say which argument a call does not take, or lacks."""
    name = function.__name__
    takes = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        for key in given:
            if key not in takes:
                hint = did_you_mean(key, takes) if takes else "it takes none"
                return f"{name} has no argument {key!r}; {hint}"
    if not any(p.kind is p.VAR_POSITIONAL for p in takes.values()):
        needed = [key for key, p in takes.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        for key in needed[len(args) :]:
            if key not in given:
                return f"{name} needs the argument {key!r}, as in {name}({key}=…)"
    shown = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in given.items())])
    return f"{name}({shown}): an argument has the wrong type: {problem}"
