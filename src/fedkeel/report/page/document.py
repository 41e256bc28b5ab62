"""What a page shows, as plain data: it becomes JSON, and one template, style sheet and script draw any of it.

A document has a head (title, verdict, facts), the runs' curves once, and sections of blocks. Blocks that show
curves name columns of the runs; the others bring their own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Number = int | float
Tone = Literal["", "good", "bad", "unclear"]


class Part(BaseModel):
    """A frozen part of a document."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class RunColumn(Part):
    """A column of a run: the rounds (from 1 on) with a value, as `first` and `step` or listed, and values."""

    first: int = 1
    step: int = 1
    rounds: tuple[int, ...] | None = None
    values: tuple[Number | None, ...] = ()


class RunCurves(Part):
    """A run: whose it is, how it stands, its columns, and the totals after each round that are x axes.

    `axes` has `bytes`, `gradients` and `seconds`; `method` is what curves and legends name it by.
    """

    id: str
    method: str
    seed: int = 0
    state: Literal["finished", "running", "unfinished", "diverged"] = "finished"
    problem: str | None = None
    directory: str | None = None
    done: int = 0
    planned: int | None = None
    columns: dict[str, RunColumn] = {}
    axes: dict[str, RunColumn] = {}


class ColumnLabel(Part):
    """How a column is written: its name, what it means, whether in per cent, and on a logarithmic axis."""

    label: str
    about: str = ""
    percent: bool = False
    log: bool = False


class Axis(Part):
    """An axis of a chart."""

    label: str
    log: bool = False
    percent: bool = False


class Series(Part):
    """A line, points or bars of a chart; `low` and `high` are the band around it, `hollow` marks points."""

    name: str
    x: tuple[Number | str | None, ...]
    y: tuple[Number | None, ...]
    low: tuple[Number | None, ...] | None = None
    high: tuple[Number | None, ...] | None = None
    hollow: tuple[bool, ...] | None = None
    kind: Literal["line", "points", "bars"] = "line"
    colour: int | None = None
    dash: int | None = None


class Chart(Part):
    """A chart with numbers of its own."""

    type: Literal["chart"] = "chart"
    id: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    note: str = ""
    wide: bool = False


class Curves(Part):
    """The chart of the runs' curves with all controls: metric, axis, smoothing, scales, methods, seeds."""

    type: Literal["curves"] = "curves"
    id: str
    title: str
    metrics: tuple[str, ...]
    target: float | None = None
    note: str = ""


class SmallCurves(Part):
    """Small charts of columns of the runs over the rounds, one per column or group of columns."""

    type: Literal["small_curves"] = "small_curves"
    id: str
    columns: tuple[str, ...]
    note: str = ""


class LabelGrid(Part):
    """The label picture of a split: a column per client, a line per class, samples as the area of a disc."""

    type: Literal["labels"] = "labels"
    id: str
    title: str
    classes: tuple[str, ...]
    clients: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]
    note: str = ""


class Table(Part):
    """A table of texts. `wide` columns wrap, `bold` cells are (line, column), `tones` colour lines' marks.

    `scores` marks the table of results, which `fedkeel export` writes.
    """

    type: Literal["table"] = "table"
    id: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: tuple[tuple[int, int], ...] = ()
    wide: tuple[int, ...] = ()
    left: tuple[int, ...] = (0,)
    tones: tuple[Tone, ...] | None = None
    note: str = ""
    scores: bool = Field(False, exclude=True)


class FactList(Part):
    """Names and values, one below the other."""

    type: Literal["facts"] = "facts"
    id: str
    rows: tuple[tuple[str, str], ...]


class Code(Part):
    """Lines to copy: commands, or settings as TOML; `folded` ones open on a click."""

    type: Literal["code"] = "code"
    id: str
    title: str
    text: str
    folded: bool = False


class Text(Part):
    """Paragraphs, or with `listed` the points of a list; `tone` marks a warning."""

    type: Literal["text"] = "text"
    id: str
    paragraphs: tuple[str, ...]
    listed: bool = False
    tone: Tone = ""


class LiveRun(Part):
    """A line of the list of runs in progress; `requests` are the buttons that it has now."""

    id: str
    name: str
    place: str
    state: str
    tone: Tone = ""
    done: int
    planned: int | None = None
    score: str = ""
    clients: str = ""
    pace: str = ""
    left: str = ""
    asked: str | None = None
    requests: tuple[str, ...] = ()


class RunList(Part):
    """Runs in progress: how far each is, and what can be asked of it. Only a live page has one."""

    type: Literal["run_list"] = "run_list"
    id: str
    title: str
    runs: tuple[LiveRun, ...]
    note: str = ""


class GroupChoice(Part):
    """A group of runs that a live page can show."""

    id: str
    label: str
    note: str = ""


class GroupList(Part):
    """The groups of runs below a watched directory, and which of them is shown."""

    type: Literal["groups"] = "groups"
    id: str
    groups: tuple[GroupChoice, ...]
    chosen: str


Block = Annotated[
    Chart | Curves | SmallCurves | LabelGrid | Table | FactList | Code | Text | RunList | GroupList,
    Field(discriminator="type"),
]


class Section(Part):
    """A part of a page with a heading; its name stands in the page's table of contents."""

    id: str
    title: str
    about: str = ""
    blocks: tuple[Block, ...] = ()


class Verdict(Part):
    """What came out, in a sentence or two; its tone says whether that is settled."""

    text: str
    tone: Tone = ""


class Document(Part):
    """What is told of runs: a head, the runs, how their columns are written, and sections of blocks.

    The page shows these. A terminal and a notebook show `summary`, programs get `numbers`, and CSV, LaTeX and
    Markdown are written of its first table (see `scores`).
    """

    title: str
    subtitle: str = ""
    kind: str = "report"
    subject: str = "method"
    verdict: Verdict | None = None
    facts: tuple[tuple[str, str], ...] = ()
    runs: tuple[RunCurves, ...] = ()
    columns: dict[str, ColumnLabel] = {}
    sections: tuple[Section, ...] = ()
    summary: tuple[Block, ...] = Field((), exclude=True)
    numbers: dict[str, Any] = Field({}, exclude=True)

    def to_json(self) -> str:
        """Return the page as JSON; what is None is left out."""
        return self.model_dump_json(exclude_none=True)

    @property
    def scores(self) -> Table | None:
        """Return the table of results, which is exported: the first of the page whose lines are results."""
        return next((table for table in self._tables() if table.scores), None)

    def _tables(self) -> Iterator[Table]:
        for section in self.sections:
            yield from (block for block in section.blocks if isinstance(block, Table))
