"""A recipe as a study: a table or figure of a paper at a scale and in a reading."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator

from fedkeel.common.errors import ConfigError, Diverged, StorageError
from fedkeel.common.files import read_whole, storage_errors
from fedkeel.common.jsonfiles import read_object
from fedkeel.experiments import OUTCOME_FILE, OUTCOME_TEXT, PAGE_FILE
from fedkeel.experiments.placement import Placement
from fedkeel.experiments.run_all import IndependentRun, RunEvents
from fedkeel.papers.recipes import find_recipe
from fedkeel.papers.recipes.recipe import PRINTED
from fedkeel.papers.reproduce.jobs import JobResult
from fedkeel.papers.reproduce.plan import RecipePlan, plan
from fedkeel.report.page.document import Code, Document
from fedkeel.report.page.parts import PageParts
from fedkeel.settings.options import Execution
from fedkeel.studies.base import SEEDS, Results, Study, asked

SCALE = "paper: as printed; cpu: an hour or two on two cores; smoke: seconds."
READING = (
    "printed: the paper's text alone; authors: as public code of its authors, or of its baselines', runs it."
)


def _read_names(given: Any) -> Any:
    """Read names with commas between them; an empty list is refused."""
    if given is None or not isinstance(given, str):
        return None if given is None else tuple(given)
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names:
        raise ConfigError(f"{given!r}: name at least one, as in --only emnist,cifar10")
    return names


Names = Annotated[tuple[str, ...] | None, BeforeValidator(_read_names)]


class RecipeStudy(Study):
    """A table or figure of a paper: its numbers beside ours, each claim judged, and a page.

    Runs lie beside its directory, so that recipes that need the same runs share them.
    """

    kind: ClassVar = "recipe"
    command: ClassVar = "reproduce"
    about: ClassVar = (
        "Run a table or figure of a paper: its numbers beside ours, each claim judged, and a page."
    )
    examples: ClassVar = (
        "fedkeel reproduce fedsagd/table2 --scale cpu --only emnist --methods fedavg,fedsagd --seeds 3",
        "fedkeel reproduce fedinit/figure1b --scale smoke",
        "fedkeel reproduce fedinit/table6 --reading authors",
        "fedkeel reproduce rethinking/table1 --scale paper --dry-run",
        "fedkeel reproduce fedinit/table4 --scale paper --on ray --address head:6379 --out /shared/reproduce",
    )
    has_experiment: ClassVar = False

    recipe: str
    scale: Literal["paper", "cpu", "smoke"] = asked("cpu", SCALE)
    reading: Literal["printed", "authors"] = asked(PRINTED, READING)
    only: Names = asked(
        None, "Setups to run, as emnist,cifar10; all by default.", metavar="SETUP,…", listed=True
    )
    methods: Names = asked(
        None, "Rows of the table, as fedavg,fedsagd; all by default.", metavar="ROW,…", listed=True
    )
    seeds: int | None = asked(None, SEEDS, metavar="N", ge=1)  # type: ignore[assignment]  # by default the recipe's
    address: str | None = asked(None, Execution.model_fields["address"].description or "")
    device: str | None = asked(None, "Where the model and its vectors live.")
    histories: str | None = asked(
        None, "Directory of small files with finished runs' numbers: read, and added to.", metavar="DIR"
    )

    def checked(self) -> Self:
        """Check that there is such a recipe with what is asked for."""
        if self.histories is not None and Path(self.histories).is_file():
            raise ConfigError(f"--histories {self.histories}: that is a file: name a directory")
        self.plan(Path())
        return self

    @cached_property
    def _plans(self) -> dict[Path, RecipePlan]:
        return {}

    def plan(self, parent: Path) -> RecipePlan:
        """Return its runs below a directory that all recipes share."""
        if parent not in self._plans:
            self._plans[parent] = plan(
                find_recipe(self.recipe).read(self.reading),
                self.scale,
                parent,
                only=list(self.only or ()),
                methods=list(self.methods or ()),
                seeds=self.seeds,
                device=self.device,
            )
        return self._plans[parent]

    def shared(self) -> dict[str, Any]:
        """Return what its directory belongs to; setups, rows and seeds may grow."""
        return {"recipe": self.recipe, "scale": self.scale, "reading": self.reading}

    def runs(self, out: Path) -> Sequence[IndependentRun[JobResult]]:
        """Return the runs, those that are shared once."""
        from fedkeel.papers.reproduce.carrying_out import RecipeRun  # noqa: PLC0415  heavy

        histories = None if self.histories is None else Path(self.histories)
        return [RecipeRun(job, histories) for job in self.plan(out.parent).distinct.values()]

    def make(self, out: Path, placement: Placement, events: RunEvents) -> Results:
        """Make the runs, the longest of a seed first."""
        from fedkeel.papers.reproduce.carrying_out import make_runs  # noqa: PLC0415  heavy

        histories = None if self.histories is None else Path(self.histories)
        return make_runs(self.plan(out.parent), placement=placement, histories=histories, events=events)

    def conclude(self, results: Results, out: Path) -> dict[str, Any]:
        """Return the numbers, and write them with the page as data."""
        from fedkeel.papers.reproduce.carrying_out import conclude_from  # noqa: PLC0415  heavy
        from fedkeel.papers.reproduce.outcome import outcome_text  # noqa: PLC0415
        from fedkeel.papers.reproduce.page import write_numbers  # noqa: PLC0415

        outcome = conclude_from(self.plan(out.parent), results)
        self._pages[out] = write_numbers(outcome, self.line())
        numbers = {**outcome.as_dict(), "text": f"{outcome_text(outcome)}\n"}
        return {key: part for key, part in numbers.items() if key not in ("directory", "page")}

    def document(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> Document:
        """Return the page, and the tables and claims as text."""
        return recipe_told(numbers, out, self._page(out))

    def parts(self, numbers: Mapping[str, Any], out: Path, results: Results | None = None) -> PageParts:
        """Return the page."""
        page = self._page(out)
        return PageParts(page.title, sections=page.sections, whole=page)

    @cached_property
    def _pages(self) -> dict[Path, Document]:
        return {}

    def _page(self, out: Path) -> Document:
        """Return the page that was concluded, or the one that is kept."""
        from fedkeel.papers.reproduce.page import kept_document  # noqa: PLC0415  heavy

        return self._pages.get(out) or kept_document(out)

    def summary(self, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the tables and the claims as text."""
        return outcome_summary(numbers)

    def write(self, numbers: Mapping[str, Any], out: Path) -> None:
        """Write nothing: `conclude` has."""

    @classmethod
    def read(cls, out: Path) -> dict[str, Any] | None:
        """Return what was written."""
        return read_outcome_file(out) if (out / OUTCOME_FILE).exists() else None

    def refuse(self, results: Results) -> None:
        """Raise Diverged where no run is left."""
        if all(result.problem is not None for result in results.values()):
            raise Diverged(f"all {len(results)} runs diverged", round=0)

    def line(self) -> str:
        """Return the command line that makes it again."""
        given = (
            ("only", None if self.only is None else ",".join(self.only)),
            ("methods", None if self.methods is None else ",".join(self.methods)),
            ("seeds", self.seeds),
        )
        more = "".join(f" --{key} {shlex.quote(str(value))}" for key, value in given if value is not None)
        reading = "" if self.reading == PRINTED else f" --reading {self.reading}"
        return f"fedkeel reproduce {self.recipe} --scale {self.scale}{reading}{more}"


def recipe_told(numbers: Mapping[str, Any], out: Path, page: Document) -> Document:
    """Return all that is told of a recipe: its page, and the tables and claims as text."""
    whole = {"directory": str(out), "page": str(out / PAGE_FILE), **numbers}
    del whole["text"]
    return page.model_copy(update={"summary": outcome_summary(numbers), "numbers": whole})


def outcome_summary(numbers: Mapping[str, Any]) -> tuple[Code]:
    """Return the tables and the claims as text."""
    return (Code(id="outcome", title="", text=str(numbers["text"]).rstrip()),)


def read_outcome_file(out: Path) -> dict[str, Any]:
    """Return the numbers that were written of a recipe, with its text."""
    again = "run the same `fedkeel reproduce` line again: what is finished is not trained again"
    found = read_object(out / OUTCOME_FILE, again)
    numbers = {key: value for key, value in found.items() if key not in ("format", "directory", "page")}
    return numbers if "text" in numbers else {**numbers, "text": _read_text(out / OUTCOME_TEXT, again)}


def _read_text(path: Path, fix: str) -> str:
    """Return a text from before it was kept beside the numbers."""
    with storage_errors(path):
        content = read_whole(path)
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise StorageError(f"{path}: byte {problem.start} is not UTF-8: {fix}") from None
