"""Rethinking's recipes: its tables and figures, its settings, and its numbers against its own text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fedkeel.papers.recipes.recipe import CPU, PAPER, SMOKE
from fedkeel.papers.recipes.rethinking import RECIPES
from fedkeel.papers.recipes.rethinking import settings as printed
from fedkeel.papers.reproduce.judging import judge_in_paper
from fedkeel.papers.reproduce.plan import plan

BY_NAME = {recipe.name.removeprefix("rethinking/"): recipe for recipe in RECIPES}
TABLE1, TABLE2, TABLE3, TABLE4 = (BY_NAME[f"table{number}"] for number in range(1, 5))
SYSTEMS = ("Device", "Silo")


def number(recipe, row, heading):
    return recipe.printed[row, heading].value


def test_every_experimental_table_and_figure_has_a_recipe():
    tables = [f"rethinking/table{number}" for number in range(1, 5)]  # 5 and 6 are settings
    figures = [f"rethinking/figure{number}" for number in range(1, 14)]
    assert [recipe.name for recipe in RECIPES] == tables + figures


TABLE_5 = {  # cross-device
    "data.clients": 100,
    "cohort": 0.1,
    "work.epochs": 5,
    "work.batch_size": 50,
    "work.weight_decay": 1e-3,
    "rounds": 1000,
    "work.lr": 0.1,
    "work.lr_decay": 0.999,
}
TABLE_6 = TABLE_5 | {
    "data.clients": 10,
    "cohort": 1.0,
    "work.epochs": 1,
    "rounds": 300,
    "work.lr_decay": 0.99,
}


@pytest.mark.parametrize(
    ("column", "model", "table"),
    [
        ("Device IID CIFAR10", "vgg11", TABLE_5),
        ("Device NonIID CIFAR100", "resnet20", TABLE_5),
        ("Device NonIID Tiny-ImageNet", "resnet34", TABLE_5),
        ("Silo IID CIFAR10", "vgg11", TABLE_6),
        ("Silo NonIID CIFAR100", "resnet20", TABLE_6 | {"work.epochs": 5}),
        ("Silo NonIID Tiny-ImageNet", "resnet34", TABLE_6),
    ],
)
def test_the_settings_are_those_of_tables_5_and_6(column, model, table):
    setup = TABLE1.setups[column]
    assert {key: setup.settings[key] for key in table} == table
    assert setup.settings["model.name"] == model
    alpha = 0.1 if column.startswith("Device") else 0.01
    assert f"FedDyn(alpha={alpha})" in setup.line("FedDyn→FedAvg").method


@pytest.mark.parametrize(("data", "beta"), [("CIFAR10", 0.5), ("CIFAR100", 0.1), ("Tiny-ImageNet", 0.1)])
@pytest.mark.parametrize("system", SYSTEMS)
def test_non_iid_data_are_drawn_as_section_4_1_says(system, data, beta):
    assert TABLE1.setups[f"{system} NonIID {data}"].settings["data.split"] == f"DirichletByClass({beta})"
    assert TABLE1.setups[f"{system} IID {data}"].settings["data.split"] == "IID"


def test_the_best_numbers_of_table_1_are_those_in_bold():
    best = {
        heading: max(("FedAvg", "FedDyn", "FedDyn→FedAvg"), key=lambda row: number(TABLE1, row, heading))
        for heading in (column.heading for column in TABLE1.columns)
    }
    bold_elsewhere = {heading: row for heading, row in best.items() if row != "FedDyn→FedAvg"}
    assert bold_elsewhere == {"Device NonIID CIFAR10": "FedDyn"}


def test_table_2_takes_its_ends_from_table_1_but_not_its_switch_at_75_percent():
    column = "Device IID CIFAR100"
    final = {row: number(TABLE2, row, "Final accuracy") for row in TABLE2.rows}
    assert final["0 (FedAvg)"] == number(TABLE1, "FedAvg", column)
    assert final["1000 (FedDyn)"] == number(TABLE1, "FedDyn", column)
    assert final["750"] == 67.13 != number(TABLE1, "FedDyn→FedAvg", column) == 67.18


def test_the_computation_cost_of_table_2_assumes_that_feddyn_costs_half_as_much_again():
    rounds = {"0 (FedAvg)": 0, "1000 (FedDyn)": 1000} | {
        row: int(row) for row in TABLE2.rows if row.isdigit()
    }
    for row, switch in rounds.items():
        assert number(TABLE2, row, "Computation cost") == pytest.approx(1 + 0.5 * switch / 1000)


def test_the_target_of_table_2_is_reached_after_the_switch_even_where_the_last_round_is_below_it():
    reached = {row: number(TABLE2, row, "Rounds to 67%") for row in TABLE2.rows}
    assert {row for row, rounds in reached.items() if rounds is not None} == {"600", "750", "900"}
    assert all(0 < reached[row] - int(row) <= 60 for row in ("600", "750", "900"))
    assert number(TABLE2, "600", "Final accuracy") < 67


def test_tables_1_2_and_4_agree_on_the_runs_that_they_share():
    column = "Device NonIID CIFAR100"
    assert number(TABLE4, "FedDyn (continuous)", "Accuracy") == number(TABLE1, "FedDyn", column)
    assert number(TABLE4, "FedAvg", "Accuracy") == number(TABLE1, "FedDyn→FedAvg", column)


def test_fedavg_in_table_3_has_the_features_of_figure_2b_and_feddyn_not_those_of_2c():
    ranges = {row: BY_NAME["figure2"].printed[row, "feature clusters"] for row in BY_NAME["figure2"].rows}
    assert abs(number(TABLE3, "FedAvg", "γ_corr = 0.5") - ranges["FedAvg, IID"].value) <= 5
    assert abs(number(TABLE3, "FedAvg", "γ_corr = 0.5") - ranges["FedAvg, Non-IID"].value) > 5
    assert abs(number(TABLE3, "FedDyn", "γ_corr = 0.5") - ranges["FedDyn, Non-IID"].value) > 5
    assert all(found.value <= 12 * 20 for found in TABLE3.printed.values())  # 12 models of 20 components


@pytest.mark.parametrize(
    ("name", "heading", "column"),
    [
        ("figure4", "accuracy, 10 clients", "Silo NonIID CIFAR100"),
        ("figure7", "final accuracy, IID", "Device IID CIFAR100"),
        ("figure7", "final accuracy, Non-IID", "Device NonIID CIFAR100"),
        ("figure12", "final accuracy", "Device IID CIFAR100"),
    ],
)
def test_figures_repeat_the_numbers_of_table_1_where_they_show_its_runs(name, heading, column):
    repeated = {row: found for (row, at), found in BY_NAME[name].printed.items() if at == heading}
    assert repeated == {row: TABLE1.printed[row, column] for row in repeated}
    assert {"FedAvg", "FedDyn→FedAvg"} <= set(repeated)


def test_only_two_claims_about_tables_are_contradicted_by_the_papers_own_numbers():
    found = {
        (recipe.name, claim.text): judge_in_paper(claim, recipe)
        for recipe in (TABLE1, TABLE2, TABLE3, TABLE4)
        for claim in recipe.claims
    }
    contradicted = [text for (_, text), finding in found.items() if finding != "holds"]
    assert contradicted == [
        "FedDyn→FedAvg is above FedDyn in every setting",
        "Cross-Silo: FedDyn does not clearly outperform FedAvg (by less than one point)",
    ]
    assert "contradict two claims" in TABLE1.assumptions[0]


def jobs(name, scale, tmp_path, setup, row):
    made = plan(BY_NAME[name], scale, tmp_path, seeds=1).jobs
    (job,) = [job for job in made if (job.key.setup, job.key.row) == (setup, row)]
    return job


@pytest.mark.parametrize("scale", [PAPER, CPU])
def test_figures_that_show_the_same_runs_share_them(scale, tmp_path: Path):
    same = [
        ("figure1", "full participation", "FedDyn→FedAvg"),
        ("figure4", "100 clients", "FedDyn→FedAvg"),
        ("figure6", "full participation", "FedDyn→FedAvg"),
    ], [
        ("table2", "runs", "1000 (FedDyn)"),
        ("figure11", "partial participation", "FedDyn"),
        ("figure12", "partial participation", "FedDyn"),
    ], [
        ("figure6", "full participation", "FedDyn"),
        ("figure10", "full participation", "α = 0.1"),
        ("figure11", "dynamics", "100 clients"),
        ("figure13", "full participation", "FedDyn"),
    ], [
        ("figure4", "10 clients", "FedDyn"),
        ("figure8", "FedDyn", "cross-silo"),
        ("figure11", "dynamics", "10 clients"),
    ]  # fmt: skip
    for group in same:
        assert len({jobs(name, scale, tmp_path, *key).directory for name, *key in group}) == 1


@pytest.mark.parametrize("scale", [PAPER, CPU, SMOKE])
def test_every_run_at_every_scale_is_an_experiment(scale, tmp_path: Path):
    for recipe in RECIPES:
        made = plan(recipe, scale, tmp_path, seeds=1)
        assert {job.key.row for job in made.jobs} == set(recipe.rows)


def test_the_learning_rate_ends_at_scale_cpu_where_it_does_in_the_paper():
    def last(settings):
        return settings["work.lr_decay"] ** settings["rounds"]

    pairs = [
        (printed.CPU_DEVICE, printed.DEVICE),
        (printed.CPU_FULL, printed.FULL),
        (printed.CPU_SILO, printed.SILO),
        (printed.CPU_FEATURES, printed.SILO),
    ]
    for small, paper in pairs:
        assert math.isclose(last(small), last(paper), rel_tol=0.05)


def test_rows_with_settings_of_their_own_are_small_at_scale_smoke(tmp_path: Path):
    silo = jobs("figure8", SMOKE, tmp_path, "FedDyn", "cross-silo").table
    assert (silo["rounds"], silo["data"]["name"], silo["model"]["name"]) == (20, "digits", "mlp")
    public = jobs("figure7", SMOKE, tmp_path, "IID", "public data→FedAvg").table
    assert public["model"]["init"].startswith("Pretrain(data='digits', epochs=1")
