"""Every experimental table and figure of the papers has its recipe, and every recipe can be reviewed."""

from __future__ import annotations

import pytest

from fedkeel.papers.recipes import all_recipes, find_recipe, ours
from fedkeel.papers.recipes.claims import CellKey
from fedkeel.papers.reproduce.plan import plan
from fedkeel.papers.reproduce.reading import read_rule

PAPERS = {
    "fedinit": [
        *(f"table{n}" for n in range(4, 10)),
        *(f"figure{n}" for n in ("1a", "1b", "2a", "2b", "2c", "2d")),
    ],
    "poster": ["table1", "table2", "costs"],
    "rethinking": [*(f"table{n}" for n in range(1, 5)), *(f"figure{n}" for n in range(1, 14))],
    "fedsagd": [*(f"table{n}" for n in (2, 3, 4, 8, 9, 10, 11)), *(f"figure{n}" for n in range(1, 5))],
    "beyond-smoothness": ["bound"],
}
OURS = [recipe.name for recipe in ours.RECIPES]
NAMES = [*(f"{paper}/{part}" for paper, parts in PAPERS.items() for part in parts), *OURS]


def test_no_table_or_figure_is_missing_and_none_is_invented():
    assert sorted(all_recipes()) == sorted(NAMES)
    assert all(name.startswith("ours/") for name in OURS)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_it_claims_assumes_and_changes(name):
    recipe = all_recipes()[name]
    assert recipe.claims or name == ours.SEARCH.name  # a search claims nothing
    assert recipe.assumptions
    assert all(text.strip() == text and len(text) > 20 for text in recipe.assumptions)
    assert len({claim.text for claim in recipe.claims}) == len(recipe.claims)
    assert recipe.scale("cpu").seeds >= 2 or not recipe.claims  # one seed resolves nothing
    assert len(recipe.scale("cpu").note) > 10
    for scale in ("paper", "cpu", "smoke"):
        for column in recipe.columns:
            read_rule(recipe.scale(scale).measures.get(column.heading, column.measure))
        assert set(recipe.scale(scale).measures) <= {column.heading for column in recipe.columns}
        assert set(recipe.scale(scale).lines) <= set(recipe.rows)
        assert set(recipe.scale(scale).setups or {}) <= set(recipe.setups)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_about_cells_that_the_scale_paper_has(name):
    recipe = all_recipes()[name]
    cells = {
        CellKey(row, column.heading) for column in recipe.columns for row in recipe.setups[column.setup].lines
    }
    for claim in recipe.claims:
        assert any(claim.alternatives(cells)), claim.text


@pytest.mark.parametrize("name", NAMES)
def test_every_scale_makes_experiments(name, tmp_path):
    for scale in ("paper", "cpu", "smoke"):
        made = plan(all_recipes()[name], scale, tmp_path)
        assert made.jobs
        assert {job.key.seed for job in made.jobs} == set(range(made.scale.seeds))


def test_names_are_read_as_people_write_them():
    assert find_recipe("FedSAGD/Table 2").name == "fedsagd/table2"
    assert find_recipe("beyond_smoothness/bound").name == "beyond-smoothness/bound"


@pytest.mark.slow
def test_tables_share_their_runs(tmp_path):
    def directories(name, scale="paper"):
        return set(plan(all_recipes()[name], scale, tmp_path).distinct)

    assert directories("fedinit/table4") & directories("fedinit/table6")
    assert directories("poster/table1") == directories("fedinit/table4") | directories("fedinit/table5")
    assert directories("fedsagd/table11") == directories("fedsagd/table2")
