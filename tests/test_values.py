"""A value is written in one of three ways: `@frozen`, NamedTuple or pydantic model; others have a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedkeel

SOURCE = Path(fedkeel.__file__).parent
HOLDS_TENSORS = "holds tensors or a model, and is one object: known by identity, changed by `replace`"
IN_A_QUEUE = "known by identity in the queue of jobs: two jobs are never the same"
CLAIM = "inherits its text and what decides it, which @frozen does not"
RECIPE = "a table of a paper as code of ours: keyword-only, checked as a whole by Recipe, never a user's"
STUDIED = "numbers of a study with properties, made once and turned into plain values by asdict"
CHECKED = "checks its numbers, in a folder that imports the standard library alone"
DATACLASSES = {
    "core.task.Task": HOLDS_TENSORS,
    "data.federation.Federation": HOLDS_TENSORS,
    "data.sources.dataset.Dataset": HOLDS_TENSORS,
    "engines.jobs.job.ChunkJob": IN_A_QUEUE,
    "engines.jobs.job.ClientJob": IN_A_QUEUE,
    "engines.jobs.job.EvaluationJob": IN_A_QUEUE,
    "papers.recipes.claims.Claim": CLAIM,
    "papers.recipes.claims.Better": CLAIM,
    "papers.recipes.claims.Similar": CLAIM,
    "papers.recipes.claims.Ordered": CLAIM,
    "papers.recipes.claims.Peaks": CLAIM,
    "papers.recipes.claims.BetterColumn": CLAIM,
    "papers.recipes.claims.BetterInPairs": CLAIM,
    "papers.recipes.claims.SmallerDrop": CLAIM,
    "papers.recipes.claims.Between": CLAIM,
    "papers.recipes.recipe.Line": RECIPE,
    "papers.recipes.recipe.Unprinted": RECIPE,
    "papers.recipes.recipe.Setup": RECIPE,
    "papers.recipes.recipe.Column": RECIPE,
    "papers.recipes.recipe.PaperTable": RECIPE,
    "papers.recipes.recipe.Panel": RECIPE,
    "papers.recipes.recipe.RecipeScale": RECIPE,
    "papers.recipes.recipe.Reading": RECIPE,
    "papers.recipes.recipe.Recipe": RECIPE,
    "papers.recipes.studies.StabilityCurves": RECIPE,
    "papers.recipes.studies.FeatureCounts": RECIPE,
    "papers.recipes.studies.CountedCosts": RECIPE,
    "papers.recipes.studies.BoundedRun": RECIPE,
    "papers.reproduce.bounded_run.ProblemSettings": RECIPE,
    "studies.constants.findings.Findings": STUDIED,
    "studies.stability.study.Stability": STUDIED,
    "studies.grid.RunGrid": HOLDS_TENSORS,
    "running.result.BestRound": HOLDS_TENSORS,
    "running.result.Result": HOLDS_TENSORS,
    "theory.advice.inputs.AdviceInputs": CHECKED,
    "theory.beyond_smoothness.setting.Constants": CHECKED,
    "theory.beyond_smoothness.setting.Steps": CHECKED,
    "theory.bound.Bound": CHECKED,
    "theory.catalogue.BoundParameters": "the command `bounds` reads and changes its fields by name",
    "theory.fedinit.constants.RelaxedRun": CHECKED,
    "theory.fedinit.generalisation.Sampling": CHECKED,
    "theory.fedinit.lemmas.RoundState": CHECKED,
    "theory.fedinit.poster.Heterogeneity": CHECKED,
    "theory.fedsagd.convergence.AcceleratedSteps": CHECKED,
    "theory.fedsagd.lemmas.DriftState": CHECKED,
    "theory.fedsagd.stability.StabilityRun": CHECKED,
}
MODELS = {  # bases of what is read from files, and of what a page holds
    "common.frozen.FrozenModel",
    "common.jsonfiles.Shape",
    "experiments.sections._Section",
    "report.page.document.Part",
}
ELSEWHERE = {"TypedDict", "SimpleNamespace", "namedtuple", "attr", "attrs", "msgspec"}


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield every class of the package with its name and module, also those inside functions."""
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).with_suffix("")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield f"{'.'.join(place.parts)}.{node.name}", node


def names_in(*nodes: ast.expr) -> set[str]:
    """Return the last words of the names that expressions use."""
    found = [part for node in nodes for part in ast.walk(node)]
    return {one.id for one in found if isinstance(one, ast.Name)} | {
        one.attr for one in found if isinstance(one, ast.Attribute)
    }


FOUND = dict(classes())


def test_every_dataclass_has_a_reason() -> None:
    written = {name for name, node in FOUND.items() if "dataclass" in names_in(*node.decorator_list)}
    assert written - DATACLASSES.keys() == set(), "use @frozen or a NamedTuple, or say why not"
    assert DATACLASSES.keys() - written == set(), "these are none any more: strike them off"


def test_models_of_pydantic_have_one_of_four_bases() -> None:
    direct = {name for name, node in FOUND.items() if "BaseModel" in names_in(*node.bases)}
    assert direct == MODELS


def test_there_is_no_fourth_way() -> None:
    for name, node in FOUND.items():
        assert not names_in(*node.bases, *node.decorator_list) & ELSEWHERE, name
    for path in SOURCE.rglob("*.py"):
        for imported in ast.walk(ast.parse(path.read_text())):
            if isinstance(imported, ast.ImportFrom | ast.Import):
                taken = {one.name for one in imported.names}
                module = getattr(imported, "module", None) or ""
                assert not ({module, *taken} & ELSEWHERE), path


def test_splits_are_values_that_show_their_arguments_as_they_were_written() -> None:
    with pytest.raises(fedkeel.ConfigError, match=r"DirichletByClass needs the argument .alpha."):
        fedkeel.DirichletByClass()  # type: ignore[call-arg]
    assert repr(fedkeel.DirichletByClass(1)) == "DirichletByClass(alpha=1, min_samples=1)"
    assert repr(fedkeel.IID()) == "IID(balanced=False, lognormal=0.0)"
    assert fedkeel.DirichletByClass(0.1) == fedkeel.DirichletByClass(0.1)
    assert len({fedkeel.IID(), fedkeel.IID(balanced=False)}) == 1
