"""`fedkeel runs` lists a comparison, a sweep or a study as one entry; `show` reads a sweep back."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from fedkeel.common.jsonfiles import sealed

TINY = ("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "3")
SWEEP = ("sweep", "--over", "work.lr", "--values", "0.1,0.2", *TINY, "--parallel", "1", "--out", "runs/s")


@pytest.fixture
def several(fedkeel: Callable) -> Callable:
    """A comparison of two methods × two seeds, and a run whose directory looks like markup."""
    methods = ("--method", "fedavg", "--method", "fedprox(mu=0.1)")
    fedkeel("compare", *methods, *TINY, "--seeds", "2", "--out", "runs/c")
    fedkeel("run", *TINY, "--out", "runs/[bold]x")
    return fedkeel


def test_a_comparison_is_one_entry(several: Callable) -> None:
    lines = several("runs").stdout.splitlines()
    assert len(lines) == 3
    assert "runs/[bold]x" in lines[1]
    for part in ("runs/c", "comparison: FedAvg, FedProx(mu=0.1)", "2 seeds", "4 of 4 runs finished"):
        assert part in lines[2]


def test_all_unfolds_it_and_so_does_its_own_directory(several: Callable) -> None:
    unfolded = several("runs", "--all").stdout
    assert unfolded.count("finished") == 5
    assert "runs/c/fedavg/seed-1" in unfolded
    assert several("runs", "runs/c").stdout.count("finished") == 4


@pytest.mark.slow
def test_the_entry_has_its_runs_and_the_best_mean(several: Callable) -> None:
    run, group = json.loads(several("runs", "--json").stdout)
    assert (run["kind"], group["kind"]) == ("run", "comparison")
    assert group["seeds"] == [0, 1]
    means = {
        name: statistics.fmean(one["accuracy"] for one in group["runs"] if one["name"] == name)
        for name in group["methods"]
    }
    assert group["best"] == {"name": max(means, key=means.__getitem__), "accuracy": max(means.values())}
    assert [one["kind"] for one in json.loads(several("runs", "--all", "--json").stdout)] == ["run"] * 5


@pytest.mark.slow
def test_runs_that_are_missing_from_a_comparison_are_counted(several: Callable) -> None:
    Path("runs/c/fedavg/seed-1/model.safetensors").unlink()
    Path("runs/c/fedavg/seed-0/manifest.json").unlink()
    assert "2 of 4 runs finished" in several("runs").stdout


@pytest.mark.slow
def test_a_sweep_gives_intervals_and_is_shown_again(fedkeel: Callable) -> None:
    table = fedkeel(*SWEEP, "--seeds", "3").stdout
    for part in ("95 % interval", "below the best", "the intervals hold for all pairs together"):
        assert part in table
    assert fedkeel("show", "runs/s").stdout == table
    found = json.loads(fedkeel("show", "runs/s", "--json").stdout)
    for line in found["table"]:
        low, high = line["interval"]
        assert 0 <= low <= line["score"] <= high <= 1
    (line,) = fedkeel("runs").stdout.splitlines()[1:]
    assert "sweep: FedAvg" in line
    assert "6 of 6 runs finished" in line


def test_a_sweep_with_one_seed_says_that_there_is_no_interval(fedkeel: Callable) -> None:
    told = fedkeel(*SWEEP, "--seeds", "1").stdout
    assert "with one seed there is no interval, so this may be chance: take --seeds 3 or more" in told
    assert json.loads(fedkeel("show", "runs/s", "--json").stdout)["table"][0]["interval"] is None


def test_resume_says_how_a_sweep_of_an_older_version_goes_on(fedkeel: Callable) -> None:
    fedkeel(*SWEEP, "--seeds", "1")
    file = Path("runs/s/study.json")
    described = json.loads(file.read_text())
    file.write_text(json.dumps(sealed({key: described[key] for key in ("study", "settings")})))
    told = fedkeel("resume", "runs/s", code=6).stderr
    assert "runs/s: holds a sweep: go on with the same `fedkeel sweep` line and --out runs/s" in told
    Path("runs/s/sweep.json").write_text("{}")
    assert "run the same `fedkeel sweep` line again" in fedkeel("show", "runs/s", code=6).stderr
