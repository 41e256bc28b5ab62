"""Every recipe's scale of seconds works from plan to page; `make recipes` runs all, `make thorough` some."""

from __future__ import annotations

import os

import pytest
from pages import document_in

from fedkeel.experiments.placement import ONE_BY_ONE
from fedkeel.papers.recipes import all_recipes
from fedkeel.papers.reproduce.carrying_out import carry_out_plan
from fedkeel.papers.reproduce.outcome import shown_tables
from fedkeel.papers.reproduce.page import kept_document, panel_chart, write_page
from fedkeel.papers.reproduce.plan import plan

SOME = ("poster/costs", "rethinking/figure8")
ALL = os.environ.get("FEDKEEL_RECIPES") == "all"

pytestmark = pytest.mark.slow(4)


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    """One directory for all recipes, so that what they share is run once."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.parametrize("name", list(all_recipes()) if ALL else SOME)
def test_the_smoke_scale_works(name, out):
    recipe = all_recipes()[name]
    outcome = carry_out_plan(plan(recipe, "smoke", out), placement=ONE_BY_ONE)
    assert set(outcome.plan.setups) == set(recipe.setups)
    assert len(outcome.results) == len(outcome.plan.jobs)
    unread = [
        (cell.key, key.seed, result.problem)
        for cell in outcome.cells.values()
        if not cell.scores
        for key, result in outcome.results.items()
        if key.row == cell.key.row
    ]
    assert unread == []
    assert all(table.rows for table in shown_tables(outcome))
    assert [panel.title for panel in recipe.panels if panel_chart(outcome, panel, "p") is None] == []
    assert [one.claim.text for one in outcome.claims if one.finding == "not run"] == []
    write_page(outcome, f"fedkeel reproduce {name} --scale smoke")
    page, kept = document_in(outcome.plan.directory / "page.html"), kept_document(outcome.plan.directory)
    assert page.to_json() == kept.to_json()
