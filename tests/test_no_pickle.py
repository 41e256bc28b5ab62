"""Nothing that is read from outside is ever run: no pickle, eval, exec or yaml on any input."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import fedkeel

SOURCE = Path(fedkeel.__file__).parent
BETWEEN_OUR_PROCESSES = {
    "engines/jobs/pickles.py",
    "engines/pool/sharing.py",
}  # files without a name, pipes, Ray
FORBIDDEN = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "yaml"}
CALLS = {"eval", "exec", "__import__"}


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@cache
def called(tree: ast.AST) -> set[str]:
    """Return the names of the functions that are called, as `torch.load` or `eval`."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@cache
def keywords(tree: ast.AST) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.keyword)}


@cache
def sources() -> dict[str, ast.AST]:
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in files}


@pytest.mark.slow
def test_pickles_pass_only_between_our_own_processes() -> None:
    users = {name for name, tree in sources().items() if imported(tree) & FORBIDDEN}
    assert users == BETWEEN_OUR_PROCESSES


def test_nothing_that_is_read_is_run() -> None:
    for name, tree in sources().items():
        found = called(tree)
        assert not found & {*CALLS, "torch.load", "torch.jit.load", "yaml.load", "pandas.read_pickle"}, name
        assert "allow_pickle=True" not in keywords(tree), name
        assert "weights_only=False" not in keywords(tree), name


def test_arrays_are_read_without_objects() -> None:
    for name, tree in sources().items():
        if "np.load" in called(tree):
            assert "allow_pickle=False" in keywords(tree), name


def test_the_test_would_find_it() -> None:
    tree = ast.parse("import pickle\nfrom yaml import load\nimport numpy as np\neval('1')\ntorch.load(f)")
    assert imported(tree) & FORBIDDEN == {"pickle", "yaml"}
    assert {"eval", "torch.load"} <= called(tree)
