"""The commands that make many runs: they say what is there, go on, and refuse what does not fit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from children import interruptible
from pages import block, document_in

TINY = (
    "--clients",
    "6",
    "--cohort",
    "3",
    "--rounds",
    "4",
    "--set",
    "work.steps=1",
    "--set",
    "work.batch_size=8",
)
LOOK = (
    "study",
    "interaction",
    "--method",
    "fedavg",
    *TINY,
    "--every",
    "2",
    "--samples",
    "60",
    "--components",
    "5",
)


@pytest.mark.slow
def test_a_study_that_is_started_again_says_what_is_there(fedkeel: Callable, tmp_path: Path) -> None:
    first = fedkeel(*LOOK, "--out", "s", "--json")
    assert "already" not in first.stderr
    again = fedkeel(*LOOK, "--method", "scaffold", "--out", "s", "--json")
    assert "1 of 2 runs are there already in s" in again.stderr
    assert "FedAvg: kept from before" in again.stderr
    before, now = json.loads(first.stdout)["methods"], json.loads(again.stdout)["methods"]
    assert now["FedAvg"] == before["FedAvg"]
    assert list(now) == ["FedAvg", "SCAFFOLD"]
    chart = block(document_in(tmp_path / "s" / "page.html"), "features")
    assert list(chart.series[0].y) == [one["features"] for one in now["FedAvg"]]
    table = fedkeel(*LOOK, "--out", "s")
    assert "features by γ_corr" in table.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--seed", "1"), 6, "s belongs to another interaction study: its seed is 0, not 1"),
        (("--centre",), 6, "its centre is False, not True"),
        (("--every", "9"), 2, "every = 9, but the run has 4 rounds: give 1 to 4"),
        (("--method", "fedavg"), 2, "'fedavg' is given twice"),
        (("--method", "fedavvg"), 2, "did you mean 'FedAvg'?"),
        (("--out", "file"), 6, "file: Not a directory"),
    ],
)
def test_what_does_not_fit_is_refused(
    fedkeel: Callable, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "file").touch()
    fedkeel(*LOOK, "--out", "s")
    assert message in fedkeel(*LOOK, "--out", "s", *words, code=code).stderr


def test_a_mistake_binds_no_directory(fedkeel: Callable) -> None:
    assert "there are 6 clients" in fedkeel(*LOOK, "--cohort", "9", "--out", "s", code=2).stderr
    fedkeel(*LOOK, "--out", "s")


def test_one_study_does_not_write_into_another(fedkeel: Callable) -> None:
    fedkeel(*LOOK, "--out", "s")
    told = fedkeel("sweep", "--over", "work.lr", "--values", "0.1", *TINY, "--out", "s", code=6)
    assert "s holds an interaction study, not a sweep: choose another directory" in told.stderr


def test_stability_goes_on_with_more_pairs(fedkeel: Callable) -> None:
    words = ("study", "stability", "--method", "fedavg", *TINY, "--held-out", "2", "--out", "s", "--json")
    first = json.loads(fedkeel(*words, "--pairs", "1").stdout)["methods"]["FedAvg"]
    again = fedkeel(*words, "--pairs", "2")
    assert json.loads(again.stdout)["methods"]["FedAvg"]["curves"][0] == first["curves"][0]
    assert "--replace x: known: client, sample" in fedkeel(*words, "--replace", "x", code=2).stderr


@pytest.mark.slow(6)
def test_ctrl_c_ends_a_study_with_the_line_that_goes_on(tmp_path: Path) -> None:
    # serial: for so many rounds a step would be compiled first, which is of no use here
    words = [*LOOK, "--every", "500", "--rounds", "100000", "--engine", "serial", "--parallel", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedkeel", *words, "--out", "s"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,  # noqa: PLW1509
    )
    rows = tmp_path / "s" / "fedavg" / "run" / "metrics.jsonl"
    while not rows.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 100000 rounds" in told
    assert "resume with: fedkeel resume s" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("study", "stability", "--method", "fedavg", "--held-out", "2", "--pairs", "1", "--samples", "10"),
        (
            "study",
            "interaction",
            "--method",
            "fedavg",
            "--every",
            "1",
            "--samples",
            "10",
            "--components",
            "2",
        ),
    ],
    ids=lambda words: words[1],
)
def test_where_every_run_diverges_there_is_nothing_to_conclude(fedkeel: Callable, words: tuple) -> None:
    told = fedkeel(*words, *TINY, "--lr", "1e30", "--out", "s", code=4).stderr
    assert told.count("FedAvg: ") >= 1
    assert "diverged" in told


@pytest.mark.slow
def test_what_one_method_shows_stands_where_another_diverges(fedkeel: Callable) -> None:
    words = ("study", "stability", "--held-out", "2", "--pairs", "1", "--samples", "10", "--json")
    found = fedkeel(*words, "--method", "fedavg", "--method", "fedavg(lr=1e30)", *TINY, "--out", "s", code=4)
    assert list(json.loads(found.stdout)["methods"]) == ["FedAvg"]
    assert "1 of 2 runs diverged; FedAvg(lr=1e30): " in found.stderr
