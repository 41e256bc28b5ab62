"""What commands say of a run's evaluations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

TINY = ("--clients=4", "--cohort=2", "--steps=1", "--batch-size=8", "--rounds=2")


def test_a_run_without_evaluation_says_its_training_loss(tiny: Callable) -> None:
    done = tiny("--evaluate-on", "nothing")
    assert re.search(r"^  train loss \d", done.stdout, re.MULTILINE)
    assert "accuracy" not in done.stdout


def test_a_sweep_says_what_its_best_value_was_selected_on(fedkeel: Callable) -> None:
    line = ("sweep", "--over=work.lr", "--values=0.1", "--seeds=1", "--parallel=1", *TINY)
    assert (
        "Best: 0.1 (selected on validation data: mean accuracy" in fedkeel(*line, "--validation=0.2").stdout
    )
    assert "Best: 0.1 (selected on the test set, whose mean accuracy" in fedkeel(*line).stdout
    assert "Best: none (nothing is best" in fedkeel(*line, "--evaluate-on=nothing").stdout


def test_a_search_says_what_it_selected_on(fedkeel: Callable) -> None:
    line = ("tune", "--over=work.lr=choice(0.1)", "--trials=1", *TINY)
    assert "selected on validation data: mean accuracy" in fedkeel(*line, "--validation=0.2").stdout
    assert "selected on the test set" in fedkeel(*line).stdout


@pytest.mark.slow
def test_show_has_a_table_per_client(fedkeel: Callable) -> None:
    for more, told in (
        (("--client-tests=0.3",), "on a test set of its own"),
        ((), "on its own training data"),
    ):
        out = f"runs/{len(more)}"
        fedkeel("run", *TINY, *more, "--out", out)
        shown = fedkeel("show", out, "--per-client").stdout
        assert shown.startswith(f"4 clients, each {told}\naccuracy: mean ")
        rows = json.loads(fedkeel("show", out, "--per-client", "--json").stdout)
        assert [row["client"] for row in rows] == [0, 1, 2, 3]
        assert sum(row["visits"] for row in rows) == 4


def test_a_comparison_draws_its_clients(fedkeel: Callable) -> None:
    fedkeel("compare", "--method=fedavg", "--seeds=1", *TINY, "--client-tests=0.3", "--out", "runs/c")
    assert "Client by client" in Path("runs/c/page.html").read_text()


def test_the_best_round_of_a_run_says_what_it_was_selected_on(fedkeel: Callable) -> None:
    for more, told in ((("--validation=0.2",), "validation data"), ((), "the test set")):
        out = f"runs/{len(more)}"
        ran = fedkeel("run", *TINY, *more, "--out", out).stdout
        assert f"(selected on {told})" in ran
        assert f"(selected on {told})" in fedkeel("show", out).stdout
    found = json.loads(fedkeel("run", *TINY, "--validation=0.2", "--json").stdout)["best"]
    assert (found["column"], found["selected_on"]) == ("validation_accuracy", "validation")
