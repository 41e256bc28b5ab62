"""A recipe at one of its scales as runs: what each trains and where it is kept.

Two recipes that need the same run find it in the same directory, whose name is made of the run's settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.older import settings_before
from fedkeel.papers.recipes.recipe import ALPHA_TIMES, PRINTED, Column, Recipe, RecipeScale, merged
from fedkeel.papers.recipes.studies import RecipeStudy, StabilityCurves
from fedkeel.settings.options import Execution

_STUDY = "study."
_STUDY_FIELDS = {field.name for kind in get_args(RecipeStudy) for field in dataclasses.fields(kind)}
_SHORTEST = 8  # letters of a digest in a directory's name


class JobKey(NamedTuple):
    """Which run of a recipe: setup, row of the table, seed."""

    setup: str
    row: str
    seed: int

    def __str__(self) -> str:
        return f"{self.setup}, {self.row}, seed {self.seed}"


class RecipeJob(NamedTuple):
    """One run or study: which it is, what it trains, as an experiment's table, and where it is kept."""

    key: JobKey
    table: dict[str, Any]
    study: RecipeStudy | None
    directory: Path

    @property
    def rounds(self) -> int:
        """How many rounds it has."""
        return int(self.table["rounds"])


class RecipePlan(NamedTuple):
    """What is run for a recipe: its scale as it is now, columns, jobs, and the directory of its results."""

    recipe: Recipe
    scale_name: str
    scale: RecipeScale
    columns: tuple[Column, ...]
    rows: tuple[str, ...]
    jobs: tuple[RecipeJob, ...]
    directory: Path

    @property
    def setups(self) -> tuple[str, ...]:
        """The setups that are run."""
        return tuple(dict.fromkeys(job.key.setup for job in self.jobs))

    @property
    def distinct(self) -> dict[Path, RecipeJob]:
        """The jobs by directory: rows of several setups may share a run."""
        return {job.directory: job for job in reversed(self.jobs)}


def plan(
    recipe: Recipe,
    scale_name: str,
    out: Path,
    *,
    only: Iterable[str] = (),
    methods: Iterable[str] = (),
    seeds: int | None = None,
    device: str | None = None,
) -> RecipePlan:
    """Plan the runs of a recipe at a scale; `only` names setups, `methods` rows of the table."""
    scale = recipe.scale(scale_name)
    scale = scale if seeds is None else dataclasses.replace(scale, seeds=seeds)
    if device is not None:
        scale = dataclasses.replace(scale, settings={**scale.settings, "device": device})
    at_scale = tuple(recipe.setups if scale.setups is None else scale.setups)
    setups = _chosen(tuple(only), at_scale, tuple(recipe.setups), f"{recipe.name} at scale {scale_name}")
    known = tuple(row for row in recipe.rows if scale.rows is None or row in scale.rows)
    rows = _chosen(tuple(methods), known, recipe.rows, f"{recipe.name} at scale {scale_name}")
    jobs = [
        _job(recipe, scale, JobKey(name, row, seed), out)
        for seed in range(scale.seeds)
        for name in setups
        for row in recipe.setups[name].lines
        if row in rows
    ]
    if not jobs:
        raise ConfigError(f"{recipe.name}: none of {', '.join(rows)} is in {', '.join(setups)}: name others")
    columns = tuple(
        dataclasses.replace(column, measure=scale.measures.get(column.heading, column.measure))
        for column in recipe.columns
        if column.setup in setups
    )
    reading = "" if recipe.reading == PRINTED else f"{recipe.reading}-"
    directory = out / f"{recipe.name.replace('/', '-')}-{reading}{scale_name}"
    return RecipePlan(recipe, scale_name, scale, columns, rows, tuple(jobs), directory)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with dotted keys as nested tables; None leaves a key at its default."""
    table: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        inner = table
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is not None:
            inner[last] = value
    return table


def settings_of(
    recipe: Recipe, scale: RecipeScale, setup_name: str, row: str
) -> tuple[dict[str, Any], RecipeStudy | None]:
    """Return what a row of a setup trains at a scale, as nested tables without its method, and its study."""
    setup = recipe.setups[setup_name]
    flat = _flat(recipe, scale, setup_name, row)
    flat.pop(ALPHA_TIMES, None)
    study = _study(setup.study, {key: flat.pop(key) for key in [*flat] if key.startswith(_STUDY)})
    if isinstance(study, StabilityCurves):
        flat["data.held_out"] = study.held_out
    if study is None and flat.get("work.clip"):  # so that the page can say how many steps it changed
        flat["probes"] = [*(flat.get("probes") or ()), "clipping"]
    return nested(flat), study


def method_of(recipe: Recipe, scale: RecipeScale, setup_name: str, row: str) -> str:
    """Return the method of a row at a scale: FedDyn's α is what keeps its exposure there."""
    times = _flat(recipe, scale, setup_name, row).get(ALPHA_TIMES, 1)
    method = recipe.setups[setup_name].line(row).method
    return _ALPHA.sub(lambda hit: f"{hit[1]}{float(hit[2]) * times:.6g}", method)


_ALPHA = re.compile(r"(FedDyn\(alpha=)([\d.]+)")


def _flat(recipe: Recipe, scale: RecipeScale, setup_name: str, row: str) -> dict[str, Any]:
    setup = recipe.setups[setup_name]
    own = {} if scale.setups is None else scale.setups[setup_name]
    line = (setup.line(row).settings, scale.lines.get(row, {}))
    return merged([setup.settings, scale.settings, own, *line])


def _job(recipe: Recipe, scale: RecipeScale, key: JobKey, out: Path) -> RecipeJob:
    from fedkeel.experiments.experiment import Experiment  # noqa: PLC0415  heavy

    table, study = settings_of(recipe, scale, key.setup, key.row)
    method = method_of(recipe, scale, key.setup, key.row)
    try:
        made = Experiment.from_table({**table, "method": method, "seed": key.seed}).table()
    except ConfigError as problem:
        raise ConfigError(f"{key.setup}, {key.row}: {problem}") from None
    return RecipeJob(key, made, study, out / "runs" / _folder(made, study) / f"seed-{key.seed}")


def _study(study: RecipeStudy | None, changes: Mapping[str, Any]) -> RecipeStudy | None:
    named = {key.removeprefix(_STUDY): value for key, value in changes.items()}
    unknown = sorted(set(named) - _STUDY_FIELDS)
    if unknown:
        raise ConfigError(f"study.{unknown[0]}: {did_you_mean(unknown[0], _STUDY_FIELDS)}")
    if study is None:
        return None
    fields = {field.name for field in dataclasses.fields(study)}
    return dataclasses.replace(study, **{key: value for key, value in named.items() if key in fields})


def _folder(table: Mapping[str, Any], study: RecipeStudy | None) -> str:
    """Return a directory's name: readable, and of its own for all that the numbers depend on."""
    essence = settings_before({key: part for key, part in table.items() if key not in Execution.model_fields})
    essence = {key: part for key, part in essence.items() if key not in ("seed", "target")}
    if study is not None:
        fields = {key: part for key, part in dataclasses.asdict(study).items() if key != "along"}
        essence["study"] = {"kind": type(study).__name__, **fields}
    digest = hashlib.sha256(json.dumps(essence, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    words = f"{table['data']['name']}-{table['model']['name']}-{table['method']}".lower()
    name = re.sub(r"[^a-z0-9.]+", "-", words).strip("-.")[:56]
    kind = "" if study is None else f"{type(study).__name__.lower()}-"
    return f"{kind}{name}-{digest[:_SHORTEST]}"


def _chosen(
    asked: tuple[str, ...], known: tuple[str, ...], in_paper: tuple[str, ...], where: str
) -> tuple[str, ...]:
    """Return the names that are asked for, in the order of the recipe; all where none is."""
    if not asked:
        return known
    found = []
    for name in asked:
        matches = _matches(name, known)
        if len(matches) != 1:
            if _matches(name, in_paper) and not matches:
                raise ConfigError(f"{name!r} is not run in {where}: choose from {', '.join(known)}")
            if matches:
                raise ConfigError(f"{name!r} may be {' or '.join(matches)} in {where}: write it out")
            raise ConfigError(f"there is no {name!r} in {where}; {did_you_mean(name, known)}")
        found += matches
    return tuple(name for name in known if name in found)


def _matches(asked: str, known: tuple[str, ...]) -> list[str]:
    """Return the names that are meant: the same but for case and punctuation, else those that begin so."""
    same = [name for name in known if _plain(name) == _plain(asked)]
    return same or [name for name in known if _plain(name).startswith(_plain(asked))]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter in ".+-→")
