"""The pages that Sphinx needs and the repository does not keep: the API reference, and files of the root.

The reference is made of the docstrings, which are Markdown: a page per group of public names, in `docs/api`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import fedkeel as fk

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "index.md",
}
# page: its title, and where its names are defined; a public name belongs to the first page that fits
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "running": (
        "Running",
        ("running", "experiments", "core.task", "core.work", "settings.options", "settings.arguments"),
    ),
    "data": ("Data", ("data",)),
    "methods": ("Methods and plug-ins", ("methods",)),
    "contract": ("Writing a method", ("core.algorithm", "tensors.vector", "common.frozen")),
    "probes": ("Probes", ("probes",)),
    "parts": ("Reducers and metrics", ("reducers", "metrics", "core.metrics")),
    "models": ("Models", ("models",)),
    "attacks": ("Attacks and faults", ("attacks", "settings.faults")),
    "errors": ("Errors", ("common.errors",)),
}
_FIRST = (
    "train",
    "Result",
    "Task",
    "Work",
    "Bernoulli",
    "Aggregation",
    "Evaluation",
    "Failures",
    "Execution",
    "compare",
    "sweep",
    "load",
    "RunGrid",
    "Federation",
    "Algorithm",
    "Plan",
)
MODULES = ("data", "metrics", "models", "probes")
# names whose objects are not ours or no classes or functions: their page, and what they are
_VALUES = {
    "METHODS": ("methods", "The table of all methods: what makes each."),
    "Vector": (
        "contract",
        "A model's trainable parameters as one flat tensor, of shape (d,) or (clients, d).",
    ),
    "Metric": (
        "parts",
        "A function of outputs and targets, or an object that accumulates: see [tasks](../tasks.md).",
    ),
    "zeros_like": ("contract", "PyTorch's own, for methods: a vector of zeros."),
}


def write_pages(docs: Path) -> None:
    """Write docs/api and docs/project."""
    pages = {f"api/{name}.md": text for name, text in api_pages().items()}
    for file, page in PROJECT_PAGES.items():
        if page != "index.md" and (ROOT / file).exists():
            pages[page] = _moved((ROOT / file).read_text())
    entries = [f"{page.removeprefix('project/')}" for page in pages if page.startswith("project/")]
    pages["project/index.md"] = _contents("The project", entries)
    for page, text in pages.items():
        path = docs / page
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def api_pages() -> dict[str, str]:
    """Return the pages of the reference, by name."""
    pages: dict[str, list[str]] = {name: [f"# {title}", ""] for name, (title, _) in GROUPS.items()}
    for owner, name, thing in public_names():
        pages[_group(owner, name, thing)] += [*_entry(owner, name, thing), ""]
    texts = {name: "\n".join(lines) for name, lines in pages.items()}
    about = (
        "Everything public: `import fedkeel as fk`, then `fk.train`. Written from the docstrings;"
        " `help(fk.train)` shows the same."
    )
    return {**texts, "index": _contents("API reference", [f"{name}.md" for name in GROUPS], about)}


def public_names() -> Iterable[tuple[str, str, Any]]:
    """Yield (module, name, object) for all of `fedkeel.__all__` and of its public modules."""
    for name in (*_FIRST, *(one for one in fk.__all__ if one not in _FIRST)):
        if name not in MODULES:
            yield "fedkeel", name, getattr(fk, name)
    for module in MODULES:
        for name in names_of(getattr(fk, module)):
            if name not in fk.__all__:
                yield f"fedkeel.{module}", name, getattr(getattr(fk, module), name)


def names_of(module: ModuleType) -> list[str]:
    """Return the public names of a module: those it lists, else the functions and classes that it defines."""
    own = [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and getattr(thing, "__module__", "") == module.__name__
        and callable(thing)
    ]
    return list(vars(module).get("__all__", own))


def _contents(title: str, entries: Iterable[str], about: str = "") -> str:
    return "\n".join([f"# {title}", "", about, "", "```{toctree}", ":maxdepth: 1", "", *entries, "```", ""])


def _group(owner: str, name: str, thing: Any) -> str:
    where = owner if owner != "fedkeel" else getattr(thing, "__module__", "") or ""
    for page, (_, rooms) in GROUPS.items():
        if any(f"{where}.".startswith(f"fedkeel.{room}.") for room in rooms):
            return page
    return _VALUES[name][0] if name in _VALUES else "running"


def _entry(owner: str, name: str, thing: Any) -> list[str]:
    """Return the entry of a name: its signature, its docstring, and of a class what is public in it."""
    if name in _VALUES or not callable(thing):
        about = _VALUES[name][1] if name in _VALUES else f"`{thing}`"
        return [f"## {name}", "", f":::{{py:data}} {name}", f":module: {owner}", "", about, ":::"]
    kind = "class" if inspect.isclass(thing) else "function"
    if kind == "class" and issubclass(thing, BaseException):
        kind = "exception"
    lines = [f"## {name}", "", f"::::{{py:{kind}}} {name}{_signature(thing)}", f":module: {owner}", ""]
    lines += _text(thing)
    if inspect.isclass(thing):
        for part in _members(thing):
            lines += ["", *part]
    return [*lines, "::::"]


def _members(thing: type) -> Iterable[list[str]]:
    """Yield the public methods and properties that the class itself or ours define."""
    if issubclass(thing, BaseException):
        return
    fields = [field.name for field in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
    for name, _ in inspect.getmembers_static(thing):
        part = inspect.getattr_static(thing, name)
        home = next((cls for cls in thing.__mro__ if name in vars(cls)), object)
        if name.startswith("_") or name in fields or not home.__module__.startswith("fedkeel"):
            continue
        plain = part.__func__ if isinstance(part, classmethod | staticmethod) else part
        if inspect.isfunction(plain) and plain.__doc__:
            extra = [":classmethod:"] if isinstance(part, classmethod) else []
            extra += [":staticmethod:"] if isinstance(part, staticmethod) else []
            lines = [
                f":::{{py:method}} {name}{_signature(getattr(thing, name))}",
                *extra,
                "",
                *_text(plain),
                ":::",
            ]
            yield lines
        elif isinstance(part, property) and part.__doc__:
            yield [f":::{{py:property}} {name}", "", *_text(part), ":::"]


def _signature(thing: Callable[..., Any]) -> str:
    """Return the arguments with their defaults; types stand in the docstrings where they matter."""
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return "()"
    plain = []
    for one in parameters:
        if one.name == "self":
            continue
        default = inspect.Parameter.empty
        if one.default is not inspect.Parameter.empty:
            default = one.default if isinstance(one.default, int | float | str | type(None)) else _Dots()
        plain.append(one.replace(annotation=inspect.Parameter.empty, default=default))
    return str(inspect.Signature(plain))


class _Dots:
    """A default that is no plain value."""

    def __repr__(self) -> str:
        return "..."


def _text(thing: Any) -> list[str]:
    """Return a docstring as Markdown."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"(?<![`\w])<(?=[a-zA-Z/])", r"\<", text).splitlines()


def _moved(text: str) -> str:
    """Return a page of the root with its links as seen from docs/project."""
    for file, page in PROJECT_PAGES.items():
        text = text.replace(f"]({file}", f"](../{page}")
    text = re.sub(r"\]\((docs/)", "](../", text)
    return re.sub(r"\]\((examples|src|tests|benchmarks)/", r"](../../\1/", text)
