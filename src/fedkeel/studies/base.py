"""A study: which runs it takes and what they say together. One class for each kind, one way to make them all.

A kind declares its settings once, as fields: they are the options of its command, the arguments of its
function in Python, and the plan that its directory keeps, from which `fedkeel resume` goes on.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

from pydantic import BeforeValidator, Field, InstanceOf, ValidationInfo

from fedkeel.common.errors import (
    ConfigError,
    DataError,
    Diverged,
    RunsLost,
    Stopped,
    StorageError,
    TooFewClients,
)
from fedkeel.common.files import read_whole, storage_errors, write_durably
from fedkeel.common.frozen import Count, FrozenModel
from fedkeel.common.jsonfiles import json_text, parse_object, sealed, unsealed
from fedkeel.experiments import PAGE_FILE, RESULT_FILE, STUDY_FILE
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.placement import ONE_BY_ONE, Placement
from fedkeel.experiments.planned_run import SPEED_ONLY, changes
from fedkeel.experiments.run_all import IndependentRun, RunEvents, SeveralEvents, ShownRun, run_all
from fedkeel.report.page.document import Document
from fedkeel.report.page.parts import PageParts
from fedkeel.report.page.rendering import write_page
from fedkeel.report.terminal import document_html, document_text
from fedkeel.studies.artifacts import open_directory

Results = Mapping[Path, Any]

SEEDS = "Number of seeds: 0, 1, 2, …"


class AskedSetting(NamedTuple):
    """How a setting of a study is written on the command line.

    `many`: the option is repeated; `listed`: its values are separated by commas.
    """

    flag: str | None = None
    metavar: str | None = None
    many: bool = False
    listed: bool = False


def asked(
    default: Any,
    meaning: str,
    *,
    flag: str | None = None,
    metavar: str | None = None,
    many: bool = False,
    listed: bool = False,
    **limits: Any,
) -> Any:
    """Declare a setting of a study: its default (… for none), meaning, and how its option is written."""
    how = AskedSetting(flag, metavar, many, listed)
    return Field(default, description=meaning, json_schema_extra={"asked": how}, **limits)  # type: ignore[dict-item]


def asked_settings(study: type[FrozenModel]) -> dict[str, AskedSetting]:
    """Return the settings that a study asks for, those without a default first, then the seeds."""
    found = {
        name: extra["asked"]
        for name, field in study.model_fields.items()
        if isinstance(extra := field.json_schema_extra, dict) and "asked" in extra
    }
    fields = study.model_fields
    order = sorted(found, key=lambda name: (not fields[name].is_required(), name != "seeds"))
    return {name: cast("AskedSetting", found[name]) for name in order}


def _as_texts(given: Any, info: ValidationInfo) -> Any:
    """Read several expressions: texts, or values whose `repr` is one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{info.field_name} = {given!r}: give several in a list, as in [{given!r}]")
    return tuple(one if isinstance(one, str) else _expression(one) for one in given)


def _expression(value: Any) -> str:
    """Return the expression of a value; of a method that has a name, its name."""
    from fedkeel.experiments.expression import parse_method  # noqa: PLC0415  heavy
    from fedkeel.methods import METHODS  # noqa: PLC0415

    shown = repr(value)
    names = (getattr(method, "__name__", "") for method in METHODS)
    return next((name for name in names if name and repr(parse_method(name)) == shown), shown)


def _as_numbers(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]
Counts = Annotated[tuple[int, ...], BeforeValidator(_as_numbers)]


class Study(FrozenModel):
    """Which runs are made and what they say together.

    A kind overrides `checked` (what can be found wrong before any run), `shared` (what a directory belongs
    to), `runs`, `conclude` and `parts`.
    """

    kind: ClassVar[str]
    command: ClassVar[str]
    about: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    without: ClassVar[tuple[str, ...]] = ("method", "seed")  # settings of an experiment that it has itself
    has_experiment: ClassVar[bool] = True
    shows_training: ClassVar[bool] = True  # its help shows more options of training
    may_change: ClassVar[frozenset[str]] = frozenset()  # of what all runs share, from one call to the next
    own_workers: ClassVar[bool] = False  # how many runs go side by side is a setting: it decides numbers

    experiment: InstanceOf[Experiment] = Field(default_factory=Experiment)
    seeds: Count = asked(3, SEEDS, metavar="N")

    @classmethod
    def of(cls, experiment: Experiment | None = None, **settings: Any) -> Self:
        """Make a study whose settings were checked."""
        return cls(experiment=experiment or Experiment(), **settings).checked()

    def checked(self) -> Self:
        """Return the study with its settings checked, and written in one way; raise ConfigError else."""
        return self

    def changed(self, **settings: Any) -> Self:
        """Return the same study with some settings changed."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**given, **settings})

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of its runs."""
        return tuple(range(self.seeds))

    def shared(self) -> dict[str, Any]:
        """Return what all its runs share, which a directory belongs to; what may grow is no part of it."""
        free = {*SPEED_ONLY, *self.without}
        return {key: part for key, part in self.experiment.table().items() if key not in free}

    def began_in_old_format(self, out: Path) -> bool:
        """Tell whether version 0.1 began the directory, with settings that only its parts can check."""
        return False

    @abstractmethod
    def runs(self, out: Path) -> Sequence[IndependentRun[Any]]:
        """Return the runs, seed after seed, so that a first impression of all comes early."""

    def make(self, out: Path, placement: Placement, events: RunEvents) -> Results:
        """Make what is not made yet; return the result of each run by its directory."""
        return run_all(self.runs(out), out, placement, events)

    @abstractmethod
    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return what the runs say together, as plain values."""

    @abstractmethod
    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return what the page shows; runs are read where their results are not given."""

    @abstractmethod
    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the blocks that a terminal shows."""

    def so_far(self, out: Path) -> Results | None:
        """Return what is there of runs that are not all finished; None where nothing can be said of them."""
        return None

    def with_rounds(self, rounds: int) -> Self:
        """Return the study with longer runs."""
        if not self.has_experiment:
            raise ConfigError(
                f"--rounds {rounds}: the rounds of a {self.kind} are those of the paper: leave it out"
            )
        return self.changed(experiment=self.experiment.with_settings([f"rounds={rounds}"]))

    def with_columns(self, columns: str) -> Self:
        """Return the study with other columns in its table."""
        raise ConfigError(f"--columns {columns}: {self.kind} has no table of methods or values: leave it out")

    def check_columns(self, results: Results) -> None:
        """Refuse columns of its table that runs on disk do not have."""

    def refuse(self, results: Results) -> None:
        """Raise Diverged where runs diverged and that is an error of the whole."""
        lost = [(run, result) for run, result in results.items() if result.problem is not None]
        if lost:
            raise Diverged(f"{len(lost)} of {len(results)} runs diverged; {lost[0][1].problem}", round=0)

    def document(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> Document:
        """Return all that is told of it: for the page, terminals, programs and papers."""
        whole = {"directory": str(out), "page": str(out / PAGE_FILE), **numbers}
        page = self.parts(numbers, out, results).document()
        return page.model_copy(update={"summary": self.summary(numbers), "numbers": whole})

    def table(self) -> dict[str, Any]:
        """Return its settings as plain values, from which `from_table` makes it again."""
        own = {name: getattr(self, name) for name in type(self).model_fields if name != "experiment"}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        return {**plain, "experiment": self.experiment.table()}

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, checked: bool = True) -> Self:
        """Make a study of what `table` returned; to check its expressions takes PyTorch."""
        read = Experiment.from_table if checked else Experiment.unchecked
        return cls(**{**table, "experiment": read(table["experiment"])})

    def line(self) -> str:
        """Return the command line that makes the study again."""
        words = [f"fedkeel {self.command}"]
        for name, how in asked_settings(type(self)).items():
            value = getattr(self, name)
            if value is None or (value == type(self).model_fields[name].get_default() and name != "seeds"):
                continue
            flag = how.flag or f"--{name.replace('_', '-')}"
            if how.listed:
                comma = ";" if any("," in one for one in value) else ","
                words.append(f"{flag}={shlex.quote(comma.join(value))}")
            elif isinstance(value, bool):
                words += [flag] * value
            else:
                several = value if isinstance(value, tuple) else (value,)
                words += [f"{flag} {shlex.quote(str(one))}" for one in several]
        dropped = tuple(f"{name}=" for name in self.without)
        changed = [one for one in changes(self.experiment) if not one.startswith(dropped)]
        return " ".join([*words, *(f"--set {shlex.quote(one)}" for one in changed)])

    def write(self, numbers: Mapping[str, Any], out: Path) -> None:
        """Write what it came to."""
        with storage_errors(out):
            text = json_text(sealed({"study": self.kind, "numbers": dict(numbers)}), indent=2)
            write_durably(out / RESULT_FILE, text.encode())

    @classmethod
    def read(cls, out: Path) -> dict[str, Any] | None:
        """Return what was written, None where it is not finished."""
        return read_result(out, cls.kind)


class StudyResult(NamedTuple):
    """What a study came to: it prints as its tables and verdict, and has the document of its page.

    `numbers` are what `--json` prints; `directory` is where it is kept, None where nothing is kept.
    """

    study: Study
    directory: Path | None
    document: Document
    results: Results

    @property
    def numbers(self) -> dict[str, Any]:
        """Return the numbers, as `--json` prints them."""
        return self.document.numbers

    def save_page(self, path: str | Path) -> Path:
        """Write the page as one HTML file."""
        with storage_errors(path := Path(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
        return write_page(self.document, path)

    def __repr__(self) -> str:
        return document_text(self.document)

    def _repr_html_(self) -> str:
        return document_html(self.document)


class _Begun(RunEvents):
    """Writes the plan of a study: of a new one before its runs, of another one when a run has gone on.

    So a line that asks for what the runs on disk refuse leaves the plan as it is.
    """

    def __init__(self, write: Callable[[], None], *, new: bool) -> None:
        self._write, self._new, self._written = write, new, False

    def begin(self, runs: Sequence[ShownRun], kept: int) -> None:
        """Write it, where it is a new one, or nothing is left to do."""
        if self._new or kept == len(runs):
            self._once()

    def row(self, run: ShownRun, row: Any) -> None:
        """Write it."""
        self._once()

    def ended(self, run: ShownRun, result: Any, *, kept: bool) -> None:
        """Write it."""
        if not kept:
            self._once()

    def _once(self) -> None:
        if not self._written:
            self._write()
            self._written = True


def play(
    study: Study,
    out: Path | None,
    *,
    placement: Placement = ONE_BY_ONE,
    events: RunEvents | None = None,
    line: str | None = None,
) -> StudyResult:
    """Make what is not made yet of a study, conclude, and write its numbers and page below `out`.

    Without `out` nothing is kept. `line` is the command line that is written down for whoever wants to make
    it again. A mistake in the settings leaves no new directory behind.
    """
    if out is None:
        with TemporaryDirectory(prefix="fedkeel-") as scratch:
            return play(study, Path(scratch), placement=placement, events=events)._replace(directory=None)
    new = [path for path in (out, *out.parents) if not path.exists()]
    line = line or f"{study.line()} --out {shlex.quote(str(out))}"

    def begin() -> None:
        how = {"plan": study.table(), "command": line, "placement": placement._asdict()}
        open_directory(out, study.kind, study.shared(), more=how, may_change=study.may_change)

    told = [] if events is None else [events]
    try:
        if not study.began_in_old_format(out):
            open_directory(out, study.kind, study.shared(), begin=False, may_change=study.may_change)
            told = [_Begun(begin, new=not (out / STUDY_FILE).exists()), *told]
        results = study.make(out, placement, SeveralEvents(*told))
        numbers = study.conclude(results, out)
        study.write(numbers, out)
        document = study.document(numbers, out, results)
        write_page(document, out / PAGE_FILE)
    except (ConfigError, DataError):
        _remove(new)
        raise
    except (KeyboardInterrupt, Stopped) as stop:
        if isinstance(stop, KeyboardInterrupt) and not (out / STUDY_FILE).exists():
            raise
        raise Stopped(f"\n{str(stop) or 'stopped'}\n{way_on(out)}") from None
    except (TooFewClients, RunsLost) as problem:
        problem.args = (f"{problem}\n{way_on(out)}",)
        raise
    return StudyResult(study, out, document, results)


def way_on(out: Path) -> str:
    """Say how to go on with a study that was stopped."""
    return f"resume with: fedkeel resume {shlex.quote(str(out))}"


def read_result(directory: Path, kind: str) -> dict[str, Any] | None:
    """Return the numbers of a study that is finished, None of one that is not."""
    file = directory / RESULT_FILE
    if not file.exists():
        return None
    with storage_errors(file):
        content = read_whole(file)
    try:
        found = unsealed(parse_object(content))
        if found["study"] != kind:
            raise ValueError(f"it is of a {found['study']}")
        numbers: dict[str, Any] = dict(found["numbers"])
    except (ValueError, KeyError, TypeError) as problem:
        raise StorageError(
            f"{file}: cannot be read ({problem}): `fedkeel resume {shlex.quote(str(directory))}` "
            "writes it anew"
        ) from None
    return numbers


def _remove(new: list[Path]) -> None:
    """Remove new directories in which nothing is kept but the description of a study."""
    inner = sorted(new[0].rglob("*"), reverse=True) if new else []
    files = [path for path in inner if path.is_file()]
    if all(path.name in (STUDY_FILE, ".lock") for path in files):
        for path in files:
            path.unlink()
        for path in (*inner, *new):
            with suppress(OSError):  # a file, or not empty
                path.rmdir()
