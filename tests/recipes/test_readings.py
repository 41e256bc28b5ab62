"""Readings and assumptions: what a recipe takes beside the paper's text is named, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from fedkeel.cli import app
from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import told
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse_method
from fedkeel.methods import Stages
from fedkeel.papers.recipes import all_recipes, find_recipe
from fedkeel.papers.recipes.recipe import AUTHORS, PAPER, PRINTED, Recipe
from fedkeel.papers.recipes.studies import BoundedRun, CountedCosts
from fedkeel.papers.reproduce.plan import plan, settings_of
from fedkeel.settings.options import Execution

READ = [recipe.read(reading) for recipe in all_recipes().values() for reading in recipe.readings]
# Settings that change no number, and those that a study brings along; what else differs must be named.
FREE = {*Execution.model_fields, "method", "seed", "target", "evaluate_on", "eval_every", "probes"}
FREE |= {"on_client_error", "data.validation"}
ALWAYS = ("work.clip", "sampling", "weighting")  # named even where they are the library's defaults
DEFAULTS = Experiment().table()


def flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and key in ("data", "model", "work"):
            yield from flat(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value


def arguments(method: Any) -> Iterator[str]:
    """Yield the arguments of a method and of all that it is made of, as FedDyn.alpha."""
    if isinstance(method, Stages):
        for stage in method.parts:
            yield from arguments(stage.method)
        return
    for name in told(method):
        if name == "inner":
            yield from arguments(method.inner)
        else:
            yield f"{type(method).__name__}.{name}"


def trained(recipe: Recipe) -> list[tuple[str, str]]:
    return [
        (name, row)
        for name, setup in recipe.setups.items()
        if not isinstance(setup.study, CountedCosts | BoundedRun)
        for row in setup.lines
    ]


def named(recipe: Recipe) -> set[str]:
    return {*recipe.stated, *(key for one in recipe.assumptions for key in getattr(one, "covers", ()))}


def unnamed(recipe: Recipe) -> set[str]:
    """Return the settings and arguments of a recipe that are neither printed nor in an assumption."""
    known, defaults, found = named(recipe), dict(flat(DEFAULTS)), set()
    for setup, row in trained(recipe):
        table, _ = settings_of(recipe, recipe.scale(PAPER), setup, row)
        made = Experiment.from_table(table).table()
        differs = {key for key, value in flat(made) if defaults.get(key) != value}
        wanted = (differs | set(ALWAYS)) - FREE
        methods = set(arguments(parse_method(recipe.setups[setup].line(row).method)))
        found |= {key for key in wanted if key not in known}
        found |= {key for key in methods if key not in known and f"{key.split('.')[0]}.*" not in known}
    return found


@pytest.mark.parametrize("recipe", READ, ids=lambda recipe: f"{recipe.name}-{recipe.reading}")
def test_every_setting_that_is_not_printed_stands_in_the_assumptions(recipe: Recipe) -> None:
    if recipe.paper == "ours":
        pytest.skip("a question of ours: its settings are no assumption about a paper")
    assert unnamed(recipe) == set()


@pytest.mark.parametrize("recipe", READ, ids=lambda recipe: f"{recipe.name}-{recipe.reading}")
def test_no_assumption_contradicts_the_settings(recipe: Recipe) -> None:
    clipped = [setup.settings.get("work.clip") for setup in recipe.setups.values() if setup.settings]
    if any(clipped):
        assert not [one for one in recipe.assumptions if "no clipping" in one.lower()]
    betas = [one for one in recipe.assumptions if "Relaxed.beta" in getattr(one, "covers", ())]
    assert len(betas) <= 1, betas


def test_each_baseline_is_clipped_as_its_own_authors_code_clips_it() -> None:
    setup = find_recipe("fedsagd/table2").read(AUTHORS).setups["cifar10"]
    whole = {row for row in setup.lines if setup.line(row).settings.get("work.clip_on") == "corrected"}
    assert whole == {"FedProx", "FedACG", "FedSAGD(ours)"}
    assert setup.settings["work.clip_on"] == "direction"


@pytest.mark.parametrize("name", ["fedsagd/table2", "rethinking/table1"])
def test_the_authors_reading_keeps_what_is_said_of_the_split_and_the_pictures(name: str) -> None:
    printed, authors = (named(find_recipe(name).read(reading)) for reading in (PRINTED, AUTHORS))
    assert printed <= authors


@pytest.mark.parametrize("recipe", READ, ids=lambda recipe: f"{recipe.name}-{recipe.reading}")
def test_no_assumption_is_about_methods_alone_that_no_row_runs(recipe: Recipe) -> None:
    rows = [setup.line(row).method for setup in recipe.setups.values() for row in setup.lines]
    run = {key.split(".")[0] for row in rows for key in arguments(parse_method(row))}
    for one in recipe.assumptions:
        about = {key.split(".")[0] for key in getattr(one, "covers", ())}
        assert not about or about & run or any(key[0].islower() for key in about), one


def test_fedinit_s_figure_of_fedavg_says_nothing_of_other_methods() -> None:
    for reading in (PRINTED, AUTHORS):
        assumed = find_recipe("fedinit/figure2a").read(reading).assumptions
        assert not [one for one in assumed if "FedSAM's ρ" in one or "SCAFFOLD is its option" in one]
        assert [one for one in find_recipe("fedinit/table6").read(reading).assumptions if "FedSAM's ρ" in one]


def test_the_poster_says_what_it_repeats_in_both_readings() -> None:
    for name in ("poster/table1", "poster/table2"):
        for reading in (PRINTED, AUTHORS):
            assert find_recipe(name).read(reading).assumptions[0].startswith("The poster repeats")


def test_a_setting_that_nobody_named_would_be_seen() -> None:
    recipe = find_recipe("fedinit/table6")
    less = tuple(one for one in recipe.assumptions if "work.clip" not in getattr(one, "covers", ()))
    assert unnamed(recipe.changed(assumptions=less)) == {"work.clip"}


@pytest.mark.parametrize("name", ["fedinit/table6", "rethinking/table1", "fedsagd/table2"])
def test_the_authors_reading_clips_and_draws_each_client_by_itself(name: str) -> None:
    printed, authors = find_recipe(name), find_recipe(name).read(AUTHORS)
    for setup in printed.setups:
        if printed.setups[setup].study is None:
            assert "work.clip" not in printed.setups[setup].settings
            settings = authors.setups[setup].settings
            assert (settings["work.clip"], settings["work.clip_on"]) == (10.0, "direction")
            assert settings["sampling"] == "bernoulli"
    assert printed.assumptions != authors.assumptions


def test_the_authors_reading_averages_walks_with_feddyn_s_gamma_at_the_end_models() -> None:
    lines = find_recipe("fedinit/table6").read(AUTHORS).setups["5%-200 Dir-0.1 +RI"].lines
    assert lines["FedAvg"].method == 'FedInit(beta=0.1, aggregate="walk")'
    assert 'aggregate="walk", gamma="end"' in lines["FedDyn"].method
    assert "gamma" not in lines["FedCM"].method


def test_the_authors_reading_measures_the_divergence_over_the_cohort() -> None:
    figure = find_recipe("fedinit/figure2a")
    columns = {column.heading: column.measure for column in figure.read(AUTHORS).columns}
    assert "divergence/cohort" in columns["divergence, second half"]
    assert [panel.column for panel in figure.read(AUTHORS).panels] == ["accuracy", "divergence/cohort"]
    assert [panel.column for panel in figure.panels] == ["accuracy", "divergence"]


def test_reading_and_scale_are_independent(tmp_path: Any) -> None:
    recipe = find_recipe("fedinit/figure2a")
    places = {
        plan(recipe.read(reading), scale, tmp_path).directory.name
        for reading in (PRINTED, AUTHORS)
        for scale in ("paper", "cpu", "smoke")
    }
    assert len(places) == 6


def test_a_recipe_that_rests_on_the_text_alone_refuses_another_reading() -> None:
    with pytest.raises(ConfigError, match="fedinit/table9: there is no reading 'authors'"):
        find_recipe("fedinit/table9").read(AUTHORS)
    assert CliRunner().invoke(app, ["recipes", "show", "fedinit/table9", "--reading", "authors"]).exit_code


def test_stability_on_emnist_has_the_rates_of_a_3() -> None:
    setup = find_recipe("fedsagd/figure2").setups["emnist"]
    assert setup.line("FedAvg").settings == {"work.lr": 0.1}
    assert setup.settings["work.lr"] == 0.001


@pytest.mark.parametrize("scale", ["cpu", "smoke", "paper"])
def test_show_compares_any_scale_with_the_paper(scale: str) -> None:
    done = CliRunner().invoke(app, ["recipes", "show", "fedinit/figure2a", "--scale", scale])
    assert done.exit_code == 0
    assert f"Similarity numbers, the paper's and those of scale {scale}" in done.output


@pytest.mark.parametrize(("reading", "words"), [(PRINTED, "No clipping"), (AUTHORS, "clipped to norm 10")])
def test_show_lists_the_assumptions_of_a_reading(reading: str, words: str) -> None:
    done = CliRunner().invoke(app, ["recipes", "show", "fedinit/figure2a", "--reading", reading])
    assert done.exit_code == 0
    assert f"Reading {reading}" in done.output
    assert words in done.output
