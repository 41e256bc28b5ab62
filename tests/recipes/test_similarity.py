"""Similarity numbers: how like the paper's experiment a scale is, and which claims that decides."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedkeel.cli import app
from fedkeel.papers.recipes import all_recipes, find_recipe
from fedkeel.papers.recipes.claims import (
    DECAY,
    EXPOSURE,
    LEVEL,
    NOTHING,
    PROXIMAL,
    RELAXATION,
    SIMILARITY,
    WALK,
    CellKey,
    Claim,
    Contrast,
    better,
)
from fedkeel.papers.recipes.recipe import ALPHA_TIMES, CPU, Recipe
from fedkeel.papers.reproduce.judging import judge
from fedkeel.papers.reproduce.outcome import conclude
from fedkeel.papers.reproduce.plan import method_of, plan
from fedkeel.papers.reproduce.reading import CellResult, Score, read_rule
from fedkeel.papers.reproduce.similarity import compare_all, decisive, similarity_numbers, why_decisive
from tests.recipes.small_recipe import SMALL

TABLE: dict[str, Any] = {
    "method": "FedDyn(alpha=0.01)",
    "rounds": 300,
    "cohort": 1.0,
    "data": {"name": "cifar10", "clients": 10},
    "model": {"name": "vgg11"},
    "work": {"epochs": 1, "batch_size": 50, "lr": 0.1, "lr_decay": 0.99},
}


def numbers(**changes: Any) -> dict[str, float]:
    return similarity_numbers({**TABLE, **changes})


def test_exposure_is_that_of_the_paper_s_cross_silo_cell() -> None:
    rates = 0.1 * (1 - 0.99**300) / 0.01
    found = numbers()
    assert found[EXPOSURE] == pytest.approx(100 * 0.01 * rates)
    assert found[EXPOSURE] == pytest.approx(9.5, abs=0.02)
    assert found[WALK] == pytest.approx(100 * rates)


def test_only_the_rounds_of_feddyn_expose() -> None:
    switched = numbers(method="stages((FedDyn(alpha=0.01), 0.5), FedAvg)")
    assert switched[EXPOSURE] == pytest.approx(100 * 0.01 * 0.1 * (1 - 0.99**150) / 0.01)
    assert EXPOSURE not in numbers(method="FedDyn(alpha=0.01, regularize=False)")


def test_a_relaxed_start_counts_those_who_answer() -> None:
    table = {"method": "relaxed(SCAFFOLD, beta=0.1)", "cohort": 1}
    assert numbers(**table)[RELAXATION] == pytest.approx(1.0)
    dropped = numbers(**table, faults="Faults(drop=0.3)", on_client_error="skip")
    assert dropped[RELAXATION] == pytest.approx(1 / 0.7)


def test_proximal_terms_are_those_of_a_round() -> None:
    found = numbers(method="FedSAGD(beta=0.9, lam=0.01, mu=0.001)")
    assert found["proximal"] == pytest.approx(0.01 * 0.1 * 100)
    assert found["decay"] == pytest.approx(0.001 * 0.1 * 100)
    assert numbers(method="FedProx(mu=0.5)")["proximal"] == pytest.approx(0.5 * 0.1 * 100)


def test_samples_are_counted_per_client_and_per_parameter() -> None:
    found = numbers()
    assert found["samples per client"] == 300 * 5000
    assert found["samples"] == pytest.approx(300 * 50_000 / 9_225_610)


def test_the_paper_s_own_scale_is_like_the_paper() -> None:
    for recipe in all_recipes().values():
        assert all(one.ratio == 1 for one in compare_all(recipe, recipe.scale("paper"))), recipe.name


OFF = {
    "rethinking/figure9": {("partial participation", "α = 1.0")},
    "rethinking/figure10": {("local drift", "α = 1.0"), ("full participation", "α = 1.0")},
}


@pytest.mark.parametrize("recipe", all_recipes().values(), ids=lambda recipe: recipe.name)
def test_at_scale_cpu_what_drives_the_methods_is_the_paper_s(recipe: Recipe) -> None:
    """All but α = 1 of two figures of Rethinking: a larger α is not stable there."""
    decide = {number for claim in recipe.claims for number in decisive(claim, recipe)}
    off = {
        (one.setup, row)
        for one in compare_all(recipe, recipe.scale(CPU))
        if not one.alike and one.number in decide & {EXPOSURE, RELAXATION, PROXIMAL, DECAY}
        for row in one.rows
    }
    assert off == OFF.get(recipe.name, set())


def test_a_scale_multiplies_feddyn_s_alpha_alone() -> None:
    recipe = find_recipe("rethinking/figure1")
    scale = recipe.scale(CPU)
    assert (scale.setups or {})["partial participation"][ALPHA_TIMES] == 12
    method = method_of(recipe, scale, "partial participation", "FedDyn→FedAvg")
    assert method == "stages((FedDyn(alpha=1.2), 0.75), FedAvg)"
    assert (
        method_of(recipe, scale, "partial participation", "SCAFFOLD→FedAvg")
        == "stages((SCAFFOLD, 0.75), FedAvg)"
    )


COSTS = {"round": 0, "bytes_down": 1, "bytes_up": 1, "seconds": 1.0, "gradients": 1}


def outcome_of(recipe: Recipe, tmp_path: Any) -> Any:
    from fedkeel.papers.reproduce.jobs import JobResult

    made = plan(recipe, CPU, tmp_path)
    rows = {"FedAvg": 0.5, "FedDyn(ours)": 0.9}
    results = {
        job.key: JobResult([{**COSTS, "accuracy": rows[job.key.row] + 0.01 * job.key.seed}])
        for job in made.jobs
    }
    return conclude(made, results)


def with_exposure(times: float) -> Recipe:
    claim = better("FedDyn is above FedAvg", "FedDyn(ours)", "FedAvg", "IID top", decided_by=(EXPOSURE,))
    setups = {"iid": {"rounds": 3, ALPHA_TIMES: times}}
    return SMALL.changed(claims=(claim,), cpu=replace(SMALL.cpu, setups=setups))


def test_a_claim_is_not_comparable_where_its_number_is_more_than_three_times_off(tmp_path: Any) -> None:
    (claim,) = outcome_of(with_exposure(3.5), tmp_path).claims
    assert claim.finding == "not comparable here"
    assert claim.why.startswith("FedDyn's exposure Σ p·K·α·η is")
    (claim,) = outcome_of(with_exposure(0.3), tmp_path).claims
    assert claim.finding == "not comparable here"


def test_a_claim_is_judged_where_its_number_is_within_three_times(tmp_path: Any) -> None:
    for times in (1, 2.9, 0.35):
        (claim,) = outcome_of(with_exposure(times), tmp_path).claims
        assert claim.finding == "holds"
        assert claim.because == SIMILARITY[EXPOSURE]


LEVELS = ("target", "–180 features", "–150 features", "–90 features")


def has_margin_in_points(claim: Claim, recipe: Recipe) -> bool:
    """Tell whether a claim asks for a distance in points of accuracy, not for an order alone."""
    columns = {column.heading: column for column in recipe.columns}
    cells = {CellKey(row, one.heading) for one in columns.values() for row in recipe.setups[one.setup].lines}

    def in_points(contrast: Contrast) -> bool:
        read = [columns[cell.heading] for cell in contrast.cells]
        return all(read_rule(one.measure).percent and one.relative_to is None for one in read)

    contrasts = [contrast for some in claim.alternatives(cells) for contrast in some]
    return any(contrast.above and in_points(contrast) for contrast in contrasts)


@pytest.mark.parametrize(
    "recipe",
    [
        recipe for recipe in all_recipes().values() if recipe.paper != "ours"
    ],  # those have a scale of their own
    ids=lambda recipe: recipe.name,
)
def test_walk_and_samples_decide_claims_about_levels_and_no_others(recipe: Recipe) -> None:
    """A level is a target, a count, or any margin in points of accuracy."""
    for claim in recipe.claims:
        level = has_margin_in_points(claim, recipe) or any(word in claim.text for word in LEVELS)
        assert (set(LEVEL) <= set(decisive(claim, recipe))) == level, claim.text


def test_every_claim_names_a_number_that_its_rows_have_or_that_none_decides() -> None:
    for recipe in all_recipes().values():
        for claim in recipe.claims:
            declared = claim.decided_by or recipe.decided_by
            assert decisive(claim, recipe) or declared == (NOTHING,), (recipe.name, claim.text)


def test_what_decides_a_claim_is_said_of_its_own_rows_alone() -> None:
    recipe = find_recipe("fedsagd/figure1")
    dyn = next(one for one in recipe.claims if one.text == "FedDyn is more stable than FedAvg")
    assert decisive(dyn, recipe) == (EXPOSURE,)
    assert why_decisive(dyn, recipe) == SIMILARITY[EXPOSURE]


@pytest.mark.parametrize("name", ["fedsagd/figure1", "fedsagd/figure2"])
def test_no_claim_is_judged_that_hangs_on_rates_that_are_not_printed(name: str, tmp_path: Any) -> None:
    recipe = find_recipe(name)
    made = plan(recipe, CPU, tmp_path, only=["emnist"])
    (column,) = made.columns
    cells = {
        key: CellResult(key, read_rule(column.measure), None, {seed: Score(place) for seed in range(3)}, 0)
        for place, row in enumerate(made.rows, 1)
        for key in [CellKey(row, column.heading)]
    }
    assert recipe.claims
    for claim in recipe.claims:
        judged = judge(claim, recipe, made.scale, made.columns, cells)
        assert judged.finding == "not comparable here", claim.text
        assert "A.4 does not print the rates" in judged.why


def test_a_claim_that_compares_numbers_of_clients_needs_the_paper_s(tmp_path: Any) -> None:
    recipe = find_recipe("rethinking/figure4")
    made = plan(recipe, CPU, tmp_path)
    claim = next(one for one in recipe.claims if one.text.startswith("10 clients: FedDyn's advantage"))
    cells = {
        key: CellResult(key, read_rule(column.measure), None, {seed: Score(40.0) for seed in range(3)}, 0)
        for column in made.columns
        for row in made.rows
        for key in [CellKey(row, column.heading)]
    }
    judged = judge(claim, recipe, made.scale, made.columns, cells)
    assert judged.finding == "not comparable here"
    assert judged.why.startswith("number of clients is 20, in the paper 100")


def test_a_level_at_another_scale_is_never_a_bold_no() -> None:
    recipe = find_recipe("fedinit/table6")
    made = plan(recipe, CPU, Path("unused"))
    claim = next(one for one in recipe.claims if "over 3 points" in one.text)
    cells = {
        key: CellResult(key, read_rule("smoothed:50"), None, {seed: Score(40.0) for seed in range(3)}, 0)
        for key in (CellKey("FedAvg", column.heading) for column in made.columns)
    }
    assert judge(claim, recipe, made.scale, made.columns, cells).finding == "not comparable here"


def test_the_numbers_stand_in_show_dry_run_and_page(tmp_path: Any) -> None:
    shown = CliRunner().invoke(app, ["recipes", "show", "rethinking/table1"])
    assert "Similarity numbers" in shown.output
    assert "FedDyn's exposure" in shown.output
    facts = json.loads(CliRunner().invoke(app, ["recipes", "show", "rethinking/table1", "--json"]).output)
    assert {one["number"] for one in facts["similarity"]["cpu"]} >= {"exposure", "walk", "samples"}
    line = ["reproduce", "rethinking/table1", "--dry-run", "--out", str(tmp_path)]
    assert "Similarity numbers" in CliRunner().invoke(app, line).output
    dry = json.loads(CliRunner().invoke(app, [*line, "--json"]).output)
    silo = [one for one in dry["similarity"] if one["number"] == "exposure" and "Silo" in one["setup"]]
    assert all(math.isclose(one["ours"], one["paper"], rel_tol=0.01) for one in silo)
    outcome = outcome_of(with_exposure(3.5), tmp_path)
    from fedkeel.papers.reproduce.page import recipe_document

    page = recipe_document(outcome, "fedkeel reproduce").to_json()
    assert "How like the paper's experiment" in page
    assert "not comparable here" in page
