"""`--init`: initial weights from a file, from a run, or from pre-training that all runs share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedkeel.experiments import pretraining
from fedkeel.experiments.experiment import Experiment

PRETRAIN = 'Pretrain("digits", epochs=1, batch_size=200)'
SERIAL = (
    *("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "3"),
    *("--engine", "serial"),
)


def metrics(directory: str) -> bytes:
    return Path(directory, "metrics.jsonl").read_bytes()


def test_an_option_and_a_file_give_the_same_run(tiny, fedkeel):
    tiny("--out", "before")
    fedkeel("run", *SERIAL, "--init", "before", "--out", "option")
    Path("e.toml").write_text('[model]\ninit = "before/model.safetensors"')
    fedkeel("run", "e.toml", *SERIAL, "--out", "file")
    fedkeel("run", *SERIAL, "--out", "plain")
    assert metrics("option") == metrics("file") != metrics("plain")
    assert Experiment.load("option").model.init == "before"


def test_show_says_what_a_run_begins_with(tiny, fedkeel):
    tiny("--out", "before")
    tiny("--init", "before", "--out", "after")
    assert "begins    with weights from before\n" in fedkeel("show", "after").stdout
    assert "begins" not in fedkeel("show", "before").stdout


def test_json_stays_alone_on_the_standard_output(tiny):
    told = tiny("--init", PRETRAIN.replace("200", "201"), "--json")
    assert json.loads(told.stdout)["rounds"] == 3
    assert "pre-training mlp on digits: epoch 1 of 1, accuracy" in told.stderr


@pytest.mark.slow
def test_the_runs_of_comparisons_and_sweeps_share_a_pretraining(
    fedkeel, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    done = []
    real = pretraining.run

    def counted(*given, **options):
        done.append(1)
        return real(*given, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pretraining, "run", counted)
    fedkeel(
        "compare", *SERIAL, "--method", "fedavg", "--method", "feddyn", "--init", PRETRAIN, "--seeds", "2"
    )
    over = ("--over", "model.init", "--values", f"none;{PRETRAIN}", "--seeds", "1", "--parallel", "1")
    fedkeel("sweep", *SERIAL, *over, "--out", "sweep")
    assert len(done) == 1
    begun = [json.loads(path.read_text()) for path in Path("sweep").rglob("manifest.json")]
    assert sorted("initial_weights" in one for one in begun) == [False, True]


@pytest.mark.slow
def test_a_comparison_that_was_stopped_goes_on_without_the_file(fedkeel):
    lines = ("compare", *SERIAL, "--method", "fedavg", "--method", "scaffold", "--seeds", "1")
    fedkeel("run", *SERIAL, "--out", "before")
    fedkeel(*lines, "--init", "before", "--out", "whole")
    fedkeel(*lines, "--init", "before", "--rounds", "2", "--keep-client-states", "--out", "cut")
    Path("before").rename("elsewhere")
    fedkeel("resume", "cut", "--rounds", "3")
    for method in ("fedavg", "scaffold"):
        assert metrics(f"cut/{method}/seed-0") == metrics(f"whole/{method}/seed-0")
