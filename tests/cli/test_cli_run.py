"""`run`, `resume`, `runs`, `show`: a run from the command line and what is told of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import interruptible

from fedkeel.experiments.experiment import Experiment

LONG = [
    *("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8"),
    *("--rounds", "150", "--method", "scaffold", "--eval-every", "5"),
]


def lasting(row: dict) -> dict:
    return {key: value for key, value in row.items() if key != "seconds"}


def test_run_tells_accuracy_and_directory_in_few_plain_lines(tiny):
    result = tiny("--out", "run", "--rounds", "40", "--target", "0.99")
    assert "round 4/40" in result.stdout
    assert "target 99.0 % not reached" in result.stdout
    assert "fedkeel show run" in result.stdout
    assert len(result.stdout.splitlines()) < 20
    assert Path("run/model.safetensors").exists()


def test_run_json_is_all_that_is_on_stdout(tiny):
    found = json.loads(tiny("--json", "--out", "run", "--method", "feddyn").stdout)
    assert found["rounds"] == 3
    assert found["method"].startswith("FedDyn(")
    assert found["last_row"]["round"] == 2
    assert set(found["accuracies"]) == {"accuracy/gamma"}
    assert found["bytes_up"] > 0


def test_the_default_directory_is_new_each_time(tiny):
    first = json.loads(tiny("--json").stdout)["directory"]
    second = json.loads(tiny("--json").stdout)["directory"]
    assert first != second
    assert first.startswith("runs/")


def test_file_options_and_settings_apply_in_that_order(fedkeel):
    Path("e.toml").write_text(
        "method = 'fedprox(mu=0.5)'\nrounds = 2\ncohort = 2\n"
        "[data]\nclients = 4\n[work]\nsteps = 1\nlr = 0.3\n"
    )
    fedkeel("run", "e.toml", "--rounds", "3", "--lr", "0.2", "--set", "work.lr=0.05", "--out", "run")
    kept = Experiment.load("run")
    assert (kept.method, kept.rounds, kept.work.lr, kept.work.steps) == ("fedprox(mu=0.5)", 3, 0.05, 1)


def test_the_directory_holds_an_experiment_that_gives_the_same_run_again(tiny, fedkeel):
    first = json.loads(tiny("--json", "--seed", "3", "--cohort", "0.5", "--out", "a").stdout)
    again = json.loads(fedkeel("run", "a/experiment.toml", "--json", "--out", "b").stdout)
    assert lasting(first["last_row"]) == lasting(again["last_row"])
    assert Path("a/experiment.toml").read_text() == Path("b/experiment.toml").read_text()


def test_resume_goes_on_with_a_finished_run(tiny, fedkeel):
    whole = json.loads(tiny("--json", "--rounds", "6", "--out", "whole").stdout)
    tiny("--out", "run")
    found = json.loads(fedkeel("resume", "run", "--rounds", "6", "--json").stdout)
    assert lasting(found["last_row"]) == lasting(whole["last_row"])
    again = json.loads(fedkeel("resume", "run", "--json").stdout)
    assert again["last_row"] == found["last_row"]


def test_a_finished_run_goes_on_with_its_clients_memories_where_they_were_kept(tiny, fedkeel):
    tiny("--method", "scaffold", "--out", "without")
    told = fedkeel("resume", "without", "--rounds", "6", code=2).stderr
    assert "its client states were not kept" in told
    assert "--keep-client-states" in told
    tiny("--method", "scaffold", "--out", "with", "--keep-client-states")
    found = json.loads(fedkeel("resume", "with", "--rounds", "6", "--json").stdout)
    assert found["rounds"] == 6


@pytest.mark.slow(7, thorough=False)
def test_ctrl_c_checkpoints_and_resume_gives_the_uninterrupted_run(fedkeel):
    whole = json.loads(fedkeel("run", *LONG, "--json", "--out", "whole").stdout)
    command = [sys.executable, "-m", "fedkeel", "run", *LONG, "--out", "cut"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=interruptible,  # noqa: PLW1509
    )
    rows = Path("cut/metrics.jsonl")
    while process.poll() is None and not (rows.exists() and rows.read_text().count("\n") >= 3):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, problem = process.communicate(timeout=60)
    assert process.returncode == 130, problem
    assert "resume with: fedkeel resume cut" in problem
    assert "last good checkpoint is cut/checkpoints/round-" in problem
    assert "Traceback" not in problem
    assert "unfinished" in fedkeel("runs", ".").stdout
    found = json.loads(fedkeel("resume", "cut", "--json").stdout)
    assert lasting(found["last_row"]) == lasting(whole["last_row"])
    assert Path("cut/metrics.jsonl").read_bytes() == Path("whole/metrics.jsonl").read_bytes()


def test_runs_lists_and_show_tells(tiny, fedkeel):
    tiny("--out", "runs/a")
    tiny("--out", "runs/deep/b", "--method", "scaffold", "--eval-every", "2")
    Path("runs/torn").mkdir()
    Path("runs/torn/manifest.json").write_text("{")
    listed = fedkeel("runs").stdout
    for part in ("runs/a", "runs/deep/b", "finished", "scaffold", "unreadable"):
        assert part in listed
    found = json.loads(fedkeel("runs", "--json").stdout)
    assert [line["state"][:10] for line in found] == ["finished", "finished", "unreadable"]
    shown = fedkeel("show", "runs/deep/b").stdout
    for part in ("SCAFFOLD(lr=1.0", "3 of 3, finished", "sent", "curve", "torch"):
        assert part in shown
    assert len(json.loads(fedkeel("show", "runs/a", "--json").stdout)["rows"]) == 3


def test_no_runs_yet(fedkeel):
    Path("runs").mkdir()
    assert "start one with: fedkeel run" in fedkeel("runs").stdout
    assert json.loads(fedkeel("runs", "--json").stdout) == []
