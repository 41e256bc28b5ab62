"""The papers' reporting rules: columns and measures of comparisons and sweeps, kept with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import block, document_in, texts

from fedkeel.experiments.experiment import Experiment
from fedkeel.studies.comparison import Comparison
from fedkeel.studies.sweep import Sweep

TINY = ("--clients", "4", "--cohort", "2", "--steps", "2", "--batch-size", "8", "--rounds", "4")
COMPARE = ("compare", "--method", "fedavg", *TINY, "--seeds", "2", "--out", "c")
SWEEP = ("sweep", "--over", "work.lr", "--values", "0.1,0.2", *TINY, "--parallel", "1", "--out", "s")
RULES = (
    "top,last:2,smoothed:50,rounds_to_target,bytes_to_target,gradients_to_target,seconds_to_target,"
    "mean:0.5:1 of diversity (min)"
)
HEADINGS = (
    "top accuracy",
    "mean accuracy of the last 2 rounds",
    "smoothed top accuracy of the last 50 rounds",
    "rounds to 100 %",
    "sent to 100 %",
    "gradient steps to 100 %",
    "seconds to 100 %",
    "mean diversity after the first 50 % of rounds",
)


def words(text: str) -> str:
    """Return a table's text without the line breaks of its headings."""
    return " ".join(text.split())


def test_the_rules_are_columns_of_table_page_and_json_and_stay_with_the_comparison(fedkeel: Callable) -> None:
    made = fedkeel(*COMPARE, "--target", "1", "--probe", "diversity", "--columns", RULES).stdout
    table = block(document_in(Path("c/page.html")), "scores")
    assert set(HEADINGS) <= set(table.headings)
    assert "final accuracy" not in table.headings
    for text in (made, " ".join(texts(table.rows))):
        assert "4+" in text  # rounds
        assert "16+" in text  # gradients: 4 rounds of 2 clients with 2 steps
    line = made.splitlines()[[row.startswith("FedAvg ") for row in made.splitlines()].index(True)]
    assert line.count("±") == 4  # every score over two seeds
    assert json.loads(Path("c/study.json").read_text())["plan"]["columns"] == RULES.split(",")
    shown = fedkeel("show", "c").stdout
    assert shown.strip() in made
    (found,) = json.loads(fedkeel("show", "c", "--json").stdout)["methods"]
    assert (found["reached"], found["missed"], found["seeds"]) == (0, 2, 2)
    assert (found["limits"]["rounds"], found["limits"]["gradients"]) == (4, 16)
    assert found["rounds"] is found["gradients"] is found["spreads"] is None
    assert set(found["others"]) == {"top", "last:2", "smoothed:50", "mean:0.5:1 of diversity (min)"}


def test_a_target_that_was_reached_has_its_spread(fedkeel: Callable) -> None:
    columns = "rounds_to_target,bytes_to_target,gradients_to_target"
    found = json.loads(fedkeel(*COMPARE, "--target", "0.001", "--columns", columns, "--json").stdout)
    (line,) = found["methods"]
    assert (line["reached"], line["missed"], line["limits"]) == (2, 0, None)
    assert (line["rounds"], line["gradients"]) == (1, 4)
    assert line["spreads"] == {**line["spreads"], "rounds": 0, "bytes": 0, "gradients": 0}
    assert "1 ± 0" in fedkeel("show", "c").stdout


def test_other_columns_are_shown_of_the_same_runs_and_kept_by_resume(fedkeel: Callable) -> None:
    fedkeel(*COMPARE)
    assert "rounds to" in fedkeel("show", "c").stdout
    other = fedkeel("show", "c", "--columns", "top,seconds").stdout
    assert "rounds to" not in other
    assert "top accuracy" in other
    assert "rounds to" in fedkeel("show", "c").stdout
    assert "top accuracy" in fedkeel("resume", "c", "--columns", "top,seconds").stdout
    assert "rounds to" not in fedkeel("show", "c").stdout
    assert "rounds to" not in fedkeel("resume", "c").stdout


def test_the_command_of_a_comparison_and_of_a_sweep_has_its_rules() -> None:
    base = Experiment().with_settings(["rounds=60", 'probes=["drift"]'])
    rules = {"measure": "mean:0.5:1 of drift (min)", "columns": "score,top"}
    told = "--measure 'mean:0.5:1 of drift (min)' --columns=score,top --set rounds=60"
    assert told in Comparison.of(base, methods=["fedavg"], seeds=2, **rules).line()
    sweep = Sweep.of(base, over="method=FedInit(beta={})", values=["-0.1", "0"], seeds=2, **rules)
    assert sweep.line().startswith("fedkeel sweep --over 'method=FedInit(beta={})' --values=-0.1,0 --seeds 2")
    assert told in sweep.line()


def test_a_comparison_by_a_probe_still_counts_rounds_to_an_accuracy(fedkeel: Callable) -> None:
    told = fedkeel(
        *COMPARE, "--probe", "drift", "--measure", "last:2 of drift (min)", "--target", "0.001"
    ).stdout
    assert "mean drift of the last 2 rounds" in words(told)
    assert "rounds to 0.1 %" in told
    page = document_in(Path("c/page.html"))
    assert block(page, "explorer").metrics[0] == "drift"
    assert "on the test set" not in block(page, "scores").note


def test_a_sweep_by_a_measure_of_any_column(fedkeel: Callable) -> None:
    rules = ("--probe", "drift", "--measure", "last:2 of drift (min)", "--columns", "score,final,seconds")
    made = fedkeel(*SWEEP, "--seeds", "2", *rules).stdout
    for part in ("mean drift of the last 2", "95 % interval", "above the best (interval)", "final accuracy"):
        assert part in made
    assert "selected by its mean drift of the last 2 rounds" in made
    found = json.loads(Path("s/result.json").read_text())["numbers"]
    assert (found["measure"], found["best"], found["best_by"]) == ("last:2 of drift (min)", "0.1", "drift")
    means = {line["label"]: line["score"] for line in found["table"]}
    assert found["best_score"] == min(means.values()) == means["0.1"]
    page = document_in(Path("s/page.html"))
    assert block(page, "sweep-plot").title == "mean drift of the last 2 rounds against work.lr"
    mean = block(page, "sweep-plot").series[0]
    assert {f"{x:g}": y for x, y in zip(mean.x, mean.y, strict=True)} == pytest.approx(means, rel=1e-5)
    assert block(page, "scores").headings[:3] == (
        "work.lr",
        "mean drift of the last 2 rounds",
        "final accuracy",
    )
    assert fedkeel("show", "s").stdout == made


@pytest.mark.slow
def test_a_sweep_is_shown_with_other_columns(fedkeel: Callable) -> None:
    fedkeel(*SWEEP, "--seeds", "2", "--target", "1")
    told = fedkeel("show", "s", "--columns", "top,rounds_to_target")
    assert told.stdout.splitlines()[0].split("  ")[-1] == "rounds to 100 %"
    assert "4+" in told.stdout
    assert "95 % interval" not in told.stdout.partition("Best:")[0]
    found = json.loads(fedkeel("show", "s", "--columns", "top", "--json").stdout)
    assert found["columns"] == ["top"]
    assert [set(line["others"]) for line in found["table"]] == [{"top"}, {"top"}]


@pytest.mark.slow
def test_a_sweep_chosen_by_validation_with_a_measure(fedkeel: Callable) -> None:
    line = (*SWEEP, "--seeds", "2", "--measure", "top of loss (min)", "--validation", "0.3", "--json")
    found = json.loads(fedkeel(*line).stdout)
    assert found["best_by"] == "validation_loss"
    assert found["verdict"]["measure"] == "top of validation_loss (min)"
    assert "above the best in" in fedkeel("show", "s").stdout
    assert "validation (interval)" in fedkeel("show", "s").stdout


def test_a_sweep_with_a_value_that_diverges_ends_as_a_comparison_does(fedkeel: Callable) -> None:
    line = ["1e30,0.1" if word == "0.1,0.2" else word for word in SWEEP]
    told = fedkeel(*line, "--seeds", "1", code=4)
    assert "1 of 1 diverged" in told.stdout
    assert "Best: 0.1" in told.stdout
    assert "1 of 2 runs diverged; 1e30, seed 0:" in told.stderr
    assert "1e30, seed 0: " in fedkeel("show", "s", "--columns", "top").stdout


@pytest.mark.parametrize("width", [60, 200])
def test_a_wide_table_is_not_cut(fedkeel: Callable, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fedkeel(*COMPARE, "--target", "1", "--columns", RULES.rpartition(",")[0])
    monkeypatch.setattr("fedkeel.common.progress._PLAIN_WIDTH", width)
    told = fedkeel("show", "c").stdout
    assert "…" not in told
    for heading in HEADINGS[:-1]:
        assert heading.split()[0] in told
