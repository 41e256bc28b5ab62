"""Who may import whom: each part of the tree keeps to its room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fedkeel

SOURCE = Path(fedkeel.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Return the modules a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def within(room: str) -> Iterator[Path]:
    place = SOURCE / room
    yield from place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]


STANDARD = {"__future__", "collections", "typing", "math", "contextlib", "functools", "dataclasses"}


@pytest.mark.parametrize("room", ["vector", "layout", "records"])
def test_the_ground_floor_imports_torch_only(room: str) -> None:
    for path in within(room):
        assert top(imports(path)) <= STANDARD | {"torch"}, path


def test_methods_know_the_contract_and_nothing_else() -> None:
    allowed = {"algorithm", "vector", "records", "values", "errors", "methods"}
    for path in within("methods"):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("fedkeel.")}
        assert ours <= allowed, path
        assert top(imports(path)) <= STANDARD | {"torch", "fedkeel"}, path


def test_engines_know_no_method() -> None:
    for path in within("engines"):
        assert not any(name.startswith("fedkeel.methods") for name in imports(path)), path


def test_probes_know_no_engine() -> None:
    for path in within("probes"):
        assert not any(name.startswith("fedkeel.engines") for name in imports(path)), path


def test_the_contract_stands_alone() -> None:
    allowed = {"records", "streams", "values", "vector"}
    ours = {name.split(".")[1] for name in imports(SOURCE / "algorithm.py") if name.startswith("fedkeel.")}
    assert ours <= allowed


@pytest.mark.parametrize("extra", ["ray", "flwr", "plotly", "starlette", "pandas", "pooch", "optuna"])
def test_an_extra_is_imported_in_one_place(extra: str) -> None:
    users = [path.relative_to(SOURCE) for path in FILES if extra in top(imports(path))]
    assert len(users) <= 1, users


def test_no_pickle_is_read() -> None:
    """Checkpoints and data are read without unpickling; workers talk over pipes of their own."""
    for path in FILES:
        if "engines" not in path.parts:
            assert not top(imports(path)) & {"pickle", "cloudpickle", "dill", "shelve", "joblib"}, path
        assert "torch.load(" not in path.read_text(), path


def test_all_is_the_namespace() -> None:
    assert {name for name in dir(fedkeel) if not name.startswith("_")} == set(fedkeel.__all__)
    for name in fedkeel.__all__:
        told = name in {"METHODS", "Vector"} or getattr(fedkeel, name).__doc__
        assert told, name
