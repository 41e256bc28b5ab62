"""Who may import whom: one table for all of the package, kept as data in `tests/imports.toml`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import fedkeel

SOURCE = Path(fedkeel.__file__).parent
TABLE = tomllib.loads(Path(__file__).with_name("imports.toml").read_text())
PROJECT = Path(__file__).parent.parent / "pyproject.toml"


class Module(NamedTuple):
    """A module of the package: its dotted name and all that it imports, anywhere in the file."""

    name: str
    imports: frozenset[str]
    relative: bool = False
    whole_package: bool = False

    @property
    def folder(self) -> str:
        """Its folder or module right below the package; the package itself is `fedkeel`."""
        return self.name.split(".")[1] if "." in self.name else "fedkeel"


def files_of(source: Path) -> dict[str, Path]:
    """Return the files of a package by the names of their modules."""
    files = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def modules() -> dict[str, Module]:
    """Read all modules of fedkeel by name; imports of a module's names count as imports of the module."""
    return {name: read_module(name, parsed(path), FILES) for name, path in FILES.items()}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def read_module(name: str, tree: ast.Module, known: Iterable[str]) -> Module:
    found, relative, whole = set(), False, False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            whole |= any(alias.name == "fedkeel" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            relative |= node.level > 0
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else str(node.module))
    return Module(name, frozenset(found - {name}), relative, whole)


def forbidden(modules: Mapping[str, Module], table: Mapping[str, list[str]]) -> list[str]:
    """Return what imports something that its folder may not import."""
    wrong = []
    for module in modules.values():
        allowed = {module.folder, *table.get(module.folder, [])}
        ours = sorted(name for name in module.imports if name.partition(".")[0] == "fedkeel")
        folders = {name: name.split(".")[1] if "." in name else "fedkeel" for name in ours}
        wrong += [
            f"{module.name} imports {name}" for name, folder in folders.items() if folder not in allowed
        ]
    return wrong


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Return a cycle of a graph, None where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        found: list[str] = problem.args[1]
        return found
    return None


def siblings(modules: Mapping[str, Module], folder: str) -> dict[str, set[str]]:
    """Return who imports whom among the modules and folders right below a folder."""
    graph: dict[str, set[str]] = {}
    below = f"{folder}."
    for module in modules.values():
        if not module.name.startswith(below):
            continue
        child = module.name.removeprefix(below).partition(".")[0]
        others = {
            name.removeprefix(below).partition(".")[0] for name in module.imports if name.startswith(below)
        }
        graph.setdefault(child, set()).update(others - {child})
    return graph


FILES = files_of(SOURCE)
FOLDERS = sorted({name.rpartition(".")[0] for name in FILES if "." in name})


def test_the_table_names_every_folder_and_no_other() -> None:
    assert sorted(TABLE["may_import"]) == sorted({module.folder for module in modules().values()})


def test_each_folder_imports_only_what_the_table_allows() -> None:
    assert forbidden(modules(), TABLE["may_import"]) == []


def test_the_table_allows_nothing_that_is_not_used() -> None:
    used: dict[str, set[str]] = {folder: set() for folder in TABLE["may_import"]}
    for module in modules().values():
        ours = (name for name in module.imports if name.partition(".")[0] == "fedkeel")
        used[module.folder] |= {name.split(".")[1] if "." in name else "fedkeel" for name in ours}
    unused = {
        f: sorted({*allowed} - used[f]) for f, allowed in TABLE["may_import"].items() if {*allowed} - used[f]
    }
    assert unused == {}


def test_modules_have_no_cycle() -> None:
    graph = {
        name: [other for other in module.imports if other in FILES] for name, module in modules().items()
    }
    assert cycle(graph) is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_lies_in_a_folder_has_no_cycle(folder: str) -> None:
    assert cycle(siblings(modules(), folder)) is None


def test_imports_name_modules_in_full() -> None:
    assert [m.name for m in modules().values() if m.relative] == []
    assert [m.name for m in modules().values() if m.whole_package] == [], (
        "`import fedkeel` inside the package"
    )


def test_planted_mistakes_are_seen() -> None:
    known = {*FILES, "fedkeel.methods.planted"}
    planted = read_module(
        "fedkeel.methods.planted", ast.parse("from fedkeel.engines.serial import Serial"), known
    )
    with_planted = {**modules(), planted.name: planted}
    assert forbidden(with_planted, TABLE["may_import"]) == [
        "fedkeel.methods.planted imports fedkeel.engines.serial"
    ]
    loop = read_module("fedkeel.tensors.records", ast.parse("from fedkeel.running.store import Store"), known)
    graph = {name: module.imports for name, module in {**modules(), loop.name: loop}.items()}
    assert "fedkeel.tensors.records" in (cycle(graph) or [])
    assert "running" in (cycle(siblings({**modules(), loop.name: loop}, "fedkeel")) or [])
    assert read_module("fedkeel.x", ast.parse("from . import records"), known).relative
    assert read_module("fedkeel.x", ast.parse("import fedkeel as fk"), known).whole_package


@pytest.mark.parametrize("package", TABLE["third_party"])
def test_what_a_folder_may_use_from_elsewhere(package: str) -> None:
    """Heavy packages are imported where the table says: an extra in one module only."""
    users = sorted(
        m.name for m in modules().values() if package in {name.partition(".")[0] for name in m.imports}
    )
    assert users == TABLE["third_party"][package]


def test_every_declared_extra_is_used() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    used = {name.partition(".")[0] for module in modules().values() for name in module.imports}
    imported_as = TABLE["imported_as"]
    for extra, requirements in extras.items():
        if extra in ("dev", "docs", "examples", "browser"):  # not used by the package itself
            continue
        for requirement in requirements:
            package = requirement.split(">")[0].split("=")[0].split("<")[0].split("[")[0]
            assert imported_as.get(package, package) in used, f"the extra {extra!r} declares {package}"


GROUND = {"__future__", "abc", "collections", "contextlib", "dataclasses", "functools", "math", "typing"}


@pytest.mark.parametrize("name", ["tensors.vector", "tensors.layout", "tensors.records", "reducers"])
def test_the_ground_floor_imports_torch_only(name: str) -> None:
    outside = {other.partition(".")[0] for other in modules()[f"fedkeel.{name}"].imports} - {"fedkeel"}
    assert outside <= GROUND | {"torch"}


def test_nothing_below_imports_the_papers() -> None:
    users = {folder for folder, allowed in TABLE["may_import"].items() if "papers" in allowed}
    assert users == {"cli", "directories"}


def test_no_module_lies_beside_the_folders() -> None:
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_methods_import_torch_and_nothing_else_from_elsewhere() -> None:
    for module in modules().values():
        if module.folder == "methods":
            outside = {other.partition(".")[0] for other in module.imports} - {"fedkeel"}
            assert outside <= GROUND | {"torch"}, module.name


def test_no_pickle_is_read_from_disk() -> None:
    """Checkpoints and data are read without unpickling; workers of one run talk over pipes of their own."""
    for module in modules().values():
        if module.folder != "engines":
            pickles = {"pickle", "cloudpickle", "dill", "shelve", "joblib"}
            assert not {name.partition(".")[0] for name in module.imports} & pickles, module.name
    for path in SOURCE.rglob("*.py"):
        assert "torch.load(" not in path.read_text(), path


def test_module_level_class_names_are_unique() -> None:
    """One name means one thing. Records nested in methods are not module-level."""
    owners: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}


def test_all_is_the_namespace() -> None:
    public = {name for name in dir(fedkeel) if not name.startswith("_")}
    folders = {path.stem for path in SOURCE.iterdir()}
    assert set(fedkeel.__all__) <= public
    assert public - folders <= set(fedkeel.__all__)
    for name in fedkeel.__all__:
        told = name in {"METHODS", "Metric", "Vector"} or getattr(fedkeel, name).__doc__
        assert told, name
