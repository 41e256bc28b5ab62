"""Writes what docs/results shows from the histories that are kept there, and makes some of them again.

    python docs/results_pages.py                      # tables, verdicts and pages of every folder; runs nothing
    python docs/results_pages.py again --seed 1       # three runs drawn at random, from scratch, beside what is kept
    python docs/results_pages.py commands             # the commands of all folders

A folder has `recipes.toml`, which says what was run, `histories/`, one small file for each run, `log.txt`, and
README.md, in which the parts between two marks are written from here. For each recipe there is a directory with
the numbers (outcome.json), the same as text (outcome.txt) and the page as data (page.json):
`fedkeel report docs/results/FOLDER/RECIPE` makes it an HTML file, and `make site` does so for all.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import kendalltau, rankdata

from fedkeel.papers.recipes import find_recipe
from fedkeel.papers.recipes.claims import CellKey
from fedkeel.papers.recipes.recipe import AUTHORS, PRINTED, Column
from fedkeel.papers.reproduce.carrying_out import read_outcome
from fedkeel.papers.reproduce.jobs import carry_out
from fedkeel.papers.reproduce.judging import JudgedClaim
from fedkeel.papers.reproduce.outcome import Outcome, outcome_text
from fedkeel.papers.reproduce.page import write_numbers
from fedkeel.papers.reproduce.plan import RecipeJob, RecipePlan, plan
from fedkeel.papers.reproduce.reading import oriented, read_cells, shown_cell

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
RUNS = Path("runs") / "reproduce"  # where the commands keep their runs
_CHANCE = {"mnist": 10.0, "cifar10": 10.0}  # accuracy of a guess, in %
_LEARNED = 1.5  # a row learned something where its mean accuracy is above so many times chance
_BLOCK = "<!-- {name} -->\n{text}<!-- end -->"


class Part(NamedTuple):
    """A recipe of a folder, and what of it was run."""

    folder: Path
    recipe: str
    given: dict[str, Any]  # scale, reading, only, methods, seeds

    @property
    def histories(self) -> Path:
        """Return where the runs' numbers are kept."""
        return self.folder / "histories"

    @property
    def plan(self) -> RecipePlan:
        """Return what is run, and where its numbers are written, from the root of the repository."""
        given = {key: value for key, value in self.given.items() if key not in ("scale", "reading")}
        made = plan(find_recipe(self.recipe).read(self.reading), self.scale, RUNS, **given)
        return made._replace(directory=self.folder.relative_to(ROOT) / made.directory.name)

    @property
    def scale(self) -> str:
        """Return its scale."""
        return str(self.given.get("scale", "cpu"))

    @property
    def reading(self) -> str:
        """Return how its paper is read."""
        return str(self.given.get("reading", PRINTED))

    def words(self, scale: str | None = None) -> list[str]:
        """Return the command that runs it, at its own scale or another."""
        words = ["fedkeel", "reproduce", self.recipe, "--scale", scale or self.scale]
        words += [] if self.reading == PRINTED else ["--reading", self.reading]
        for key in ("only", "methods"):
            words += [f"--{key}", ",".join(self.given[key])] if key in self.given else []
        return [*words, "--seeds", str(self.given["seeds"])] if "seeds" in self.given else words

    @property
    def command(self) -> str:
        """Return the command that runs it and adds to what is kept."""
        return f"{shlex.join(self.words())} --histories {self.histories.relative_to(ROOT)}"

    @property
    def outcome(self) -> Outcome:
        """Return what the kept histories say."""
        return read_outcome(self.plan, self.histories)


def parts() -> Iterator[Part]:
    """Return every recipe of every folder."""
    for file in sorted(RESULTS.glob("*/recipes.toml")):
        for entry in tomllib.loads(file.read_text())["recipe"]:
            given = {key: value for key, value in entry.items() if key != "name"}
            yield Part(file.parent, entry["name"], given)


def blocks(part: Part, outcome: Outcome) -> dict[str, str]:
    """Return the parts of README.md that show a recipe, by name: command, table and verdicts; the order of its rows."""
    name = outcome.plan.directory.name
    page = f"Page with curves: `fedkeel report {outcome.plan.directory}`"
    shown = outcome_text(outcome)
    if _is_ours(part.recipe):  # a question of ours has no paper that could be read
        shown = shown.replace(f"Reading {part.reading}.", f"{_settings_of_ours(outcome)}.", 1)
    text = f"```\n{part.command}\n```\n\n```\n{shown}\n```\n\n{page}\n"
    made = {name: _BLOCK.format(name=name, text=text)}
    if outcome.plan.recipe.printed:
        order = f"{name}, order"
        made[order] = _BLOCK.format(name=order, text=ranks(outcome))
    return made


def ranks(outcome: Outcome) -> str:
    """Return the order of the rows in the paper and in our runs, by each column that is printed, and how alike it is.

    Rows at chance level have no place: which of them is last says nothing.
    """
    shown: dict[str, dict[str, str]] = {}  # by row, then by column
    alike, guessing = [], []
    for column in outcome.plan.columns:
        cells = {row: outcome.cells.get(CellKey(row, column.heading)) for row in outcome.plan.rows}
        known = {
            row: (cell.printed.value, cell.mean)
            for row, cell in cells.items()
            if cell is not None
            and cell.printed is not None
            and cell.printed.value is not None
            and cell.mean is not None
        }
        left_out = _at_chance(outcome, column, {row: mean for row, (_, mean) in known.items()})
        guessing += [row for row in left_out if row not in guessing]
        known = {row: pair for row, pair in known.items() if row not in left_out}
        if len(known) < 3:
            continue
        pairs = [tuple(oriented(column) * value for value in pair) for pair in known.values()]
        places = [rankdata([-value for value in side], method="min") for side in zip(*pairs, strict=True)]
        for row, paper, ours in zip(known, *places, strict=True):
            shown.setdefault(row, {})[column.heading] = f"{paper:.0f} | {ours:.0f}"
        found = kendalltau(*zip(*pairs, strict=True))
        alike.append(f"{column.heading} {found.statistic:.2f} (p = {found.pvalue:.2g})")
    compared = [
        column.heading
        for column in outcome.plan.columns
        if any(column.heading in places for places in shown.values())
    ]
    headings = [f"{heading}: {whose}" for heading in compared for whose in ("paper", "ours")]
    lines = [f"| | {' | '.join(headings)} |", f"|---|{'---|' * len(headings)}"]
    lines += [
        f"| {row} | {' | '.join(shown[row].get(heading, '— | —') for heading in compared)} |"
        for row in outcome.plan.rows
        if row in shown
    ]
    told = f"Kendall's τ between the two orders: {'; '.join(alike)}."
    if guessing:
        told += f" Not ranked, since they end at chance level: {', '.join(guessing)}."
    return "\n".join([*lines, "", f"{told}\n"])


def _at_chance(outcome: Outcome, column: Column, means: dict[str, float]) -> list[str]:
    """Return the rows whose accuracy is hardly above that of a guess."""
    if not column.measure.startswith(("final", "top", "smoothed", "last")) or " of " in column.measure:
        return []
    job = next(job for job in outcome.plan.jobs if job.key.setup == column.setup)
    return [row for row, mean in means.items() if mean < _LEARNED * _CHANCE[job.table["data"]["name"]]]


def findings(all_parts: list[Part]) -> dict[str, str]:
    """Return the parts of findings.md: every claim of the papers, and every question of ours, with its verdict."""
    tables: dict[str, list[str]] = {"claims of the papers": [], "questions of ours": []}
    grouped: dict[tuple[Path, str], dict[str, Part]] = {}
    for part in all_parts:
        grouped.setdefault((part.folder, part.recipe), {})[part.reading] = part
    for (folder, recipe), readings in sorted(
        grouped.items(), key=lambda one: _PAPERS.index(one[0][1].split("/")[0])
    ):
        ours = _is_ours(recipe)
        outcomes = {reading: part.outcome for reading, part in readings.items()}
        first = next(iter(outcomes.values()))
        source = f"[{recipe}](results/{folder.name}/README.md): {_setting(first)}"
        source += f"; {_settings_of_ours(first).lower()}" if ours else ""
        found = {reading: {c.claim.text: c for c in one.claims} for reading, one in outcomes.items()}
        choices = {reading: _choices(one) for reading, one in outcomes.items()}
        for text in dict.fromkeys(text for claims in found.values() for text in claims):
            printed, authors = (
                _verdict(found.get(reading, {}).get(text), choices.get(reading, ""))
                for reading in (PRINTED, AUTHORS)
            )
            if authors == _NOT_RUN and first.plan.recipe.authors is None:
                authors = "no such reading"
            cells = [text, source, printed] if ours else [text, source, printed, authors]
            if {printed, authors} - {_NOT_RUN, "no such reading"}:
                tables["questions of ours" if ours else "claims of the papers"].append(_line(cells))
    made = {}
    for name, rows in tables.items():
        headings = ["claim", "recipe: scale, model, seeds", "reading printed", "reading authors"]
        if name == "questions of ours":
            headings = ["question", "recipe: scale, model, seeds; settings", "verdict"]
        lines = [_line(headings), _line(["---"] * len(headings)), *rows]
        made[name] = _BLOCK.format(name=name, text="\n".join(lines) + "\n")
    return made


_NOT_RUN = "not run"
_NOT_COMPARABLE = "not comparable here"
_PAPERS = ("fedinit", "rethinking", "fedsagd", "beyond-smoothness", "ours")


def _verdict(judged: JudgedClaim | None, choices: str) -> str:
    if judged is None or judged.finding == _NOT_RUN:
        return _NOT_RUN
    why = re.sub(r"; in the paper's numbers: .*", "", judged.why)
    return f"**{judged.finding}**{'' if judged.finding == _NOT_COMPARABLE else choices}: {why}"


def _choices(outcome: Outcome) -> str:
    """Return the values of ours on which the verdicts of a paper's recipe may hang."""
    choices = [getattr(one, "choice", "") for one in outcome.plan.recipe.assumptions]
    told = "; ".join(filter(None, choices))
    return f" ({told})" if told and not _is_ours(outcome.plan.recipe.name) else ""


def _setting(outcome: Outcome) -> str:
    """Return scale, models and seeds of a recipe, and whether its setting was chosen after trials."""
    models = dict.fromkeys(job.table["model"]["name"] for job in outcome.plan.jobs)
    seeds = len({key.seed for key in outcome.results})
    told = f"{outcome.plan.scale_name}, {', '.join(models)}, {seeds} seed{'s' * (seeds > 1)}"
    return f"{told}; settings chosen after trials" if "chosen after" in outcome.plan.scale.note else told


def _is_ours(recipe: str) -> bool:
    """Whether a recipe asks a question of our own."""
    return recipe.startswith("ours/")


def _settings_of_ours(outcome: Outcome) -> str:
    """Return what kind of settings a question of ours has: neither of the readings of a paper."""
    clips = {job.table["work"].get("clip") for job in outcome.plan.jobs}
    told = [
        f"clipped to norm {clip:g}" if clip else "no clip" for clip in sorted(clips, key=lambda one: one or 0)
    ]
    return f"Settings ours, {' and '.join(told)}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def with_blocks(readme: str, blocks: dict[str, str]) -> str:
    """Return a README with those of its parts written anew that it has."""
    for name, text in blocks.items():
        marked = re.compile(_BLOCK.format(name=re.escape(name), text=".*?"), re.DOTALL)
        readme = marked.sub(lambda _: text, readme)  # noqa: B023  used at once
    return readme


def write() -> None:
    """Write tables, verdicts and pages of all folders."""
    found: dict[Path, dict[str, str]] = {}
    for part in parts():
        outcome = part.outcome
        write_numbers(outcome, part.command)
        found.setdefault(part.folder, {}).update(blocks(part, outcome))
    found_page = ROOT / "docs" / "findings.md"
    found_page.write_text(with_blocks(found_page.read_text(), findings(list(parts()))))
    for folder, made in found.items():
        readme = folder / "README.md"
        readme.write_text(with_blocks(readme.read_text(), made))
        print(readme.relative_to(ROOT))


def kept_jobs() -> Iterator[tuple[Part, RecipeJob]]:
    """Return every run that is kept, once."""
    seen = set()
    for part in parts():
        outcome = part.outcome
        for job in outcome.plan.jobs:
            if job.key in outcome.results and (part.folder, job.directory.name, job.directory) not in seen:
                seen.add((part.folder, job.directory.name, job.directory))
                yield part, job


def again(count: int, seed: int, longest: float) -> None:
    """Draw runs at random, make them from scratch, and print their numbers beside those that are kept."""
    from fedkeel.papers.reproduce.estimate import job_seconds  # noqa: PLC0415  heavy

    short = [(part, job) for part, job in kept_jobs() if job_seconds(job) <= 60 * longest]
    drawn = random.Random(seed).sample(short, count)
    print("| recipe | run | column | kept | again | spread over seeds |\n|---|---|---|---|---|---|")
    for part, job in drawn:
        outcome = part.outcome
        with tempfile.TemporaryDirectory() as scratch:
            made = carry_out(
                job._replace(directory=Path(scratch) / job.directory.parent.name / job.directory.name)
            )
        cells = read_cells(outcome.plan, {**outcome.results, job.key: made})
        for column in outcome.plan.columns:
            key = CellKey(job.key.row, column.heading)
            if column.setup == job.key.setup and key in cells:
                scores = [one[key].scores.get(job.key.seed) for one in (outcome.cells, cells)]
                numbers = [f"{s.value:.6g}" if s and s.value is not None else "—" for s in scores]
                known = outcome.cells[key].values
                spread = (
                    f"{statistics.stdev(known):.2g}" if len(known) > 1 else shown_cell(outcome.cells[key])
                )
                print(
                    f"| {part.recipe} | {job.key} | {column.heading} | {numbers[0]} | {numbers[1]} | {spread} |",
                    flush=True,
                )


def main() -> None:
    """Write, run some again, or list the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("write", "again", "commands"), default="write")
    parser.add_argument("--count", type=int, default=3, help="runs to make again")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--longest", type=float, default=10.0, help="minutes a run may be estimated to take")
    options = parser.parse_args()
    os.chdir(ROOT)
    if options.what == "commands":
        print("\n".join(part.command for part in parts()))
    elif options.what == "again":
        again(options.count, options.seed, options.longest)
    else:
        write()


if __name__ == "__main__":
    sys.exit(main())
