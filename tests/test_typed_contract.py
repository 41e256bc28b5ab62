"""The contract is typed: a method names its own records, and a mistyped field fails the type check."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
import torch

import fedkeel as fk
from fedkeel.core.algorithm import Algorithm, Wrapper
from fedkeel.tensors.streams import Stream

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_method.py"
SEVEN = ("init", "init_client", "broadcast", "plan", "finish", "aggregate", "models")
ARGUMENTS = {"server", "down", "client", "walk", "mean", "cohort", "context", "facts"}
METHODS = [
    *(make() for make in fk.METHODS),
    fk.SCAFFOLD(option="I"),
    fk.FedDyn(by_size=True, last_models=True),
    fk.SCAFFOLD(by_size=True),
    fk.FedAdam(v0=0.0, bias_correction=True),
    fk.FedSpeed(correction="all"),
    fk.FedLNAG(carry=False),
    fk.relaxed(fk.FedDyn(), fk.Decayed()),
    fk.relaxed(fk.MOON(), fk.Adaptive(), aggregate="walk", gamma="end"),
]


def overridden(cls: type) -> list[str]:
    return [name for name in SEVEN if getattr(cls, name) is not getattr(Algorithm, name)]


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a method's function, looked up in the class that it was written in."""
    owner = getattr(inspect.getmodule(function), function.__qualname__.split(".")[0])
    return get_type_hints(function, localns=vars(owner))


def says_nothing(kind: Any) -> bool:
    return kind is Any or any(says_nothing(part) for part in get_args(kind))


@pytest.mark.parametrize("cls", sorted({type(method) for method in METHODS}, key=lambda cls: cls.__name__))
def test_only_a_wrapper_takes_a_record_of_unknown_type(cls: type) -> None:
    for name in overridden(cls):
        function = getattr(cls, name)
        found = hints(function)
        assert {*inspect.signature(function).parameters, "return"} - {"self"} <= {*found}
        assert issubclass(cls, Wrapper) or not any(map(says_nothing, found.values())), (name, found)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_method_gets_and_gives_the_records_that_it_names(method: Algorithm) -> None:
    x = torch.arange(1.0, 4.0)
    server, client = called(method, "init", x), called(method, "init_client", x)
    down = called(method, "broadcast", server)
    plan = called(method, "plan", down, client, fk.Facts.of(3, 2.0, x))
    walk = fk.Walk(plan.start, x + 1, torch.ones(1), torch.ones(1), buffer=x, dual=x, full_gradient=x)
    up, _ = called(method, "finish", walk, down, client, fk.Facts.of(3, 2.0, x))
    cohort = fk.Cohort(round=0, rounds=1, size=2, share=0.5, stream=Stream(0))
    called(method, "models", called(method, "aggregate", server, up, cohort))


def called(method: Algorithm, name: str, *args: Any) -> Any:
    """Call a function of a method; what goes in and what comes out must be of the annotated types."""
    result = getattr(method, name)(*args)
    if name in overridden(type(method)):
        *takes, gives = hints(getattr(type(method), name)).values()
        takes = takes[-len(args) :]  # `self` may be annotated too
        for value, kind in zip((*args, result), (*takes, gives), strict=True):
            assert fits(value, kind), (name, kind, value)
    return result


def fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, types.GenericAlias):  # tuple[Up, Client], dict[str, Vector]
        parts = value.items() if isinstance(value, dict) else [value]
        return all(fits(one, of) for part in parts for one, of in zip(part, get_args(kind), strict=True))
    return kind is Any or isinstance(value, kind)


class Mistake(NamedTuple):
    file: str
    line: int
    field: str


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[Mistake], list[str]]:
    """Mistype every field that any method or the example reads: what was planted, and what mypy says."""
    folder = tmp_path_factory.mktemp("mistyped")
    planted: set[Mistake] = set()
    for path in (*sorted((ROOT / "src" / "fedkeel" / "methods").glob("[a-z]*.py")), EXAMPLE):
        planted |= mistyped(path, folder / f"mistyped_{path.name}")
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", str(EXAMPLE), str(folder)]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert not done.stderr, done.stderr
    return planted, done.stdout.splitlines()


def mistyped(source: Path, copy: Path) -> set[Mistake]:
    """Copy a file with one letter more in every field that it reads of a record, a walk or a cohort."""
    lines = source.read_text().splitlines()
    reads = [
        node
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ARGUMENTS
    ]
    for node in sorted(reads, key=lambda node: -(node.end_col_offset or 0)):
        line = lines[node.lineno - 1].encode()
        lines[node.lineno - 1] = (line[: node.end_col_offset] + b"q" + line[node.end_col_offset :]).decode()
    copy.write_text("\n".join(lines))
    return {Mistake(copy.name, node.lineno, f"{node.attr}q") for node in reads}


@pytest.mark.slow  # late: by then `make types` has filled mypy's cache
def test_the_type_check_names_every_mistyped_field(checked: tuple[set[Mistake], list[str]]) -> None:
    planted, said = checked
    pattern = re.compile(r'(mistyped_\w+\.py):(\d+): error: .* has no attribute "(\w+)"')
    found = {Mistake(m[1], int(m[2]), m[3]) for m in map(pattern.search, said) if m}
    assert planted - found == set()
    assert {"mistyped_own_method.py", "mistyped_scaffold.py", "mistyped_relaxed.py"} <= {
        m.file for m in planted
    }
    assert {"xq", "mq", "deltaq", "c_iq", "delta_cq", "h_iq", "directionq", "shareq"} <= {
        m.field for m in planted
    }


@pytest.mark.slow
def test_the_documented_method_passes_the_strict_type_check(checked: tuple[set[Mistake], list[str]]) -> None:
    _, said = checked
    assert [line for line in said if "mistyped_" not in line] == []


def test_no_public_function_has_the_full_name_of_a_module() -> None:
    """Where one had, mypy took it for the module whenever it read fedkeel from its cache."""
    for name in fk.__all__:
        thing = getattr(fk, name)
        if callable(thing) and hasattr(thing, "__qualname__"):
            assert f"{thing.__module__}.{thing.__qualname__}" not in sys.modules
