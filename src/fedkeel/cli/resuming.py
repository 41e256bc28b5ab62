"""What all commands of many runs share: what was asked for is kept, so that `fedkeel resume` goes on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkeel.common.errors import ConfigError, DataError, RunsLost, Stopped, StorageError, TooFewClients
from fedkeel.common.files import make_directory, storage_errors, write_durably
from fedkeel.common.jsonfiles import Shape, json_text, read_object, sealed
from fedkeel.common.progress import console
from fedkeel.experiments import COMMAND_FILE, STUDY_FILE

if TYPE_CHECKING:
    from fedkeel.experiments.experiment import Experiment

# The commands that `fedkeel resume` goes on with: the module of `fedkeel.cli` that each is in.
RESUMABLE = {
    "sweep": "search",
    "tune": "search",
    "robustness": "robustness",
    "stability": "study",
    "interaction": "study",
    "constants": "constants",
    "reproduce": "reproduce",
}
_OF_SEVERAL = ("reproduce",)  # their --out is the folder above: recipes share runs


class GivenCommand(NamedTuple):
    """A command as it was given: its name, experiment and arguments; the line, where it is a resumed one."""

    command: str
    experiment: dict[str, Any] | None
    arguments: dict[str, Any]
    line: str | None = None


class _CommandShape(Shape):
    command: str
    experiment: dict[str, Any] | None
    arguments: dict[str, Any]
    line: str


_given: ContextVar[GivenCommand | None] = ContextVar("given", default=None)


@contextmanager
def given_command(
    command: Callable[..., Any],
    experiment: Experiment | None,
    arguments: Mapping[str, Any],
    line: str | None = None,
) -> Iterator[None]:
    """Know what was asked for while a command runs."""
    asked = {key: value for key, value in arguments.items() if key not in ("out", "as_json", "dry_run")}
    asked = {key: str(value) if isinstance(value, Path) else value for key, value in asked.items()}
    table, before = None if experiment is None else experiment.table(), _given.get()
    if line is None and before is not None and before.command == command.__name__:
        line = before.line
    token = _given.set(GivenCommand(command.__name__, table, asked, line))
    try:
        yield
    finally:
        _given.reset(token)


def say_what_is_there(out: Path, done: int, total: int, what: str) -> None:
    """Say at the start how much of the work is done already; nothing where it is new."""
    if done:
        text = f"{done} of {total} {what} are there already in {out}"
        console(stderr=True).print(text, style="dim", markup=False, soft_wrap=True)


@contextmanager
def resumable(out: Path, new: list[Path] | None = None) -> Iterator[None]:
    """End an interrupted command with the line that goes on; a mistake leaves no `new` directory."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        raise Stopped(f"\n{str(stop) or 'stopped'}\ngo on with: {_way_on(out)}") from None
    except (TooFewClients, RunsLost) as problem:
        problem.args = (f"{problem}\ngo on with: {_way_on(out)}",)
        raise
    except (ConfigError, DataError):
        _remove(new or [])
        raise


def go_on(
    directory: Path, *, rounds: int | None, columns: str | None, settings: list[str] | None, as_json: bool
) -> None:
    """Go on with the command that is written down in a directory."""
    from fedkeel.experiments.experiment import Experiment  # noqa: PLC0415  heavy

    fix = "give the line again that began it, with --out"
    found = read_object(directory / COMMAND_FILE, fix, _CommandShape)
    name, table, arguments = found["command"], found["experiment"], dict(found["arguments"])
    if name not in RESUMABLE:
        raise StorageError(f"{directory / COMMAND_FILE}: there is no command {name!r} that goes on: {fix}")
    if settings:
        raise ConfigError(
            f"--set {settings[0]}: {directory} holds runs of `{name}`; --set is for single runs"
        )
    if columns is not None and "columns" not in arguments:
        raise ConfigError(f"--columns {columns}: `{name}` has no such table: leave it out")
    if rounds is not None and table is None:
        raise ConfigError(f"--rounds {rounds}: the rounds of `{name}` are those of the paper: leave it out")
    arguments |= {} if columns is None else {"columns": columns}
    experiment = None if table is None else Experiment.from_table(table)
    if experiment is not None and rounds is not None:
        experiment = experiment.with_settings([f"rounds={rounds}"])
    function = import_module(f"fedkeel.cli.{RESUMABLE[name]}").__dict__[name]
    command = getattr(function, "command", function)
    out = directory.parent if name in _OF_SEVERAL else directory
    given = {**arguments, "out": out, "as_json": as_json}
    given |= {"histories": Path(given["histories"])} if given.get("histories") else {}
    given |= {} if experiment is None else {"experiment": experiment}
    with given_command(command, experiment, arguments, found["line"]):
        try:
            command(**given)
        except TypeError as problem:
            raise StorageError(f"{directory / COMMAND_FILE}: cannot be used: {problem}: {fix}") from None


def _way_on(out: Path) -> str:
    return f"fedkeel resume {shlex.quote(str(out))}" if (out / COMMAND_FILE).exists() else command_line(out)


def keep_command(out: Path) -> None:
    """Write down what was asked for, in a directory that belongs to it."""
    given = _given.get()
    if given is None:
        return
    table = {**given._asdict(), "line": command_line(out)}
    with storage_errors(out):
        make_directory(out)
        write_durably(out / COMMAND_FILE, json_text(sealed(table), indent=2).encode())


def missing_directories(out: Path) -> list[Path]:
    """Return a directory and those above it that do not exist yet, the innermost first."""
    return [path for path in (out, *out.parents) if not path.exists()]


def _remove(new: list[Path]) -> None:
    """Remove new directories in which nothing is kept but the description of a study."""
    inner = sorted(new[0].rglob("*"), reverse=True) if new else []
    files = [path for path in inner if path.is_file()]
    if all(path.name in (STUDY_FILE, COMMAND_FILE) for path in files):
        for path in files:
            path.unlink()
        for path in (*inner, *new):
            with suppress(OSError):  # a file, or not empty
                path.rmdir()


def command_line(out: Path) -> str:
    """Return the line that was given, and where the work is kept."""
    given = _given.get()
    if given is not None and given.line is not None:
        return given.line
    words = sys.argv[1:]
    has_out = any(word == "--out" or word.startswith("--out=") for word in words)
    return shlex.join(["fedkeel", *words, *([] if has_out else ["--out", str(out)])])
