"""`compare` and `demo`: a table, a verdict, a page; resumable and never repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedkeel.cli import demo
from fedkeel.common.jsonfiles import sealed
from fedkeel.common.tomlfile import dump
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.folders import method_folder
from fedkeel.experiments.planned_run import changes
from fedkeel.experiments.shown_runs import RunsDisplay
from fedkeel.studies.comparison import Comparison

TINY = ("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "3")


def methods(*names: str) -> list[str]:
    return [word for name in names for word in ("--method", name)]


def test_compare_ends_with_table_verdict_and_page(fedkeel):
    result = fedkeel(
        "compare", *methods("fedavg", "scaffold"), *TINY, "--seeds", "2", "--target", "0.05", "--out", "c"
    )
    for part in (
        "FedAvg",
        "SCAFFOLD",
        "±",
        "rounds to 5 %",
        "95 % interval",
        "Page: c/page.html",
    ):
        assert part in result.stdout
    assert "<svg" in Path("c/page.html").read_text()
    assert Path("c/scaffold/seed-1/model.safetensors").exists()


def test_compare_json_has_lines_verdict_and_runs(fedkeel):
    result = fedkeel("compare", *methods("fedavg", "feddyn"), *TINY, "--seeds", "2", "--out", "c", "--json")
    found = json.loads(result.stdout)
    assert [(line["method"], line["model"]) for line in found["methods"]] == [
        ("FedAvg", "x"),
        ("FedDyn", "x"),
        ("FedDyn", "gamma"),
    ]
    assert found["verdict"]["winner"] in {"FedAvg", "FedDyn"}
    assert len(found["verdict"]["differences"]) == 1
    assert len(found["runs"]) == 4
    assert found["target"] is not None


def test_finished_runs_are_not_repeated_and_more_methods_and_seeds_are_added(fedkeel):
    fedkeel("compare", *methods("fedavg"), *TINY, "--seeds", "1", "--out", "c")
    before = Path("c/fedavg/seed-0/model.safetensors").stat().st_mtime_ns
    result = fedkeel("compare", *methods("FedAvg()", "fedprox(mu=0.1)"), *TINY, "--seeds", "2", "--out", "c")
    assert result.stderr.count("kept from before") == 1
    result = fedkeel("compare", *methods("fedavg", "fedprox(mu=0.1)"), *TINY, "--seeds", "2", "--out", "c")
    assert result.stderr.count("kept from before") == 4
    assert Path("c/fedavg/seed-0/model.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_comparison_that_was_stopped_goes_on(fedkeel, monkeypatch):
    real, played = RunsDisplay.row, []

    def stop_at_five(self, run, row):
        real(self, run, row)
        played.append(row)
        if len(played) == 5:
            raise KeyboardInterrupt

    whole = json.loads(
        fedkeel("compare", *methods("fedavg", "fedcm"), *TINY, "--seeds", "2", "--out", "w", "--json").stdout
    )
    monkeypatch.setattr(RunsDisplay, "row", stop_at_five)
    result = fedkeel("compare", *methods("fedavg", "fedcm"), *TINY, "--seeds", "2", "--out", "c", code=130)
    assert "resume with: fedkeel resume c" in result.stderr
    monkeypatch.setattr(RunsDisplay, "row", real)
    shown = fedkeel("show", "c").stdout
    assert "1 of 2 unfinished" in shown
    assert "diverged" not in shown
    again = json.loads(fedkeel("resume", "c", "--json").stdout)
    assert [run["accuracy"] for run in again["runs"]] == [run["accuracy"] for run in whole["runs"]]
    assert again["verdict"] == whole["verdict"]
    assert json.loads(fedkeel("show", "c", "--json").stdout)["verdict"] == whole["verdict"]


def test_a_comparison_goes_on_that_ended_before_its_file_was_there(fedkeel):
    Path("c").mkdir()
    Path("c/.study.json.tmp").write_text("half of")
    fedkeel("compare", *methods("fedavg", "scaffold"), *TINY, "--seeds", "1", "--out", "c")
    fedkeel("show", "c")


def test_a_run_that_ended_amid_its_last_files_is_made_whole(fedkeel):
    line = ("compare", *methods("fedavg"), *TINY, "--seeds", "1", "--client-tests", "0.2", "--out", "c")
    fedkeel(*line)
    run = Path("c/fedavg/seed-0")
    told = (run / "clients.jsonl").read_bytes()
    (run / "clients.jsonl").unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["end"], manifest["sha256"]
    (run / "manifest.json").write_text(json.dumps(sealed(manifest)))
    fedkeel(*line)
    assert (run / "clients.jsonl").read_bytes() == told


def test_other_settings_in_the_same_directory_are_refused(fedkeel):
    fedkeel("compare", *methods("fedavg"), *TINY, "--seeds", "1", "--out", "c")
    result = fedkeel(
        "compare", *methods("fedavg"), *TINY, "--lr", "0.3", "--seeds", "1", "--out", "c", code=6
    )
    assert "c belongs to another comparison: its work.lr is 0.1, not 0.3" in result.stderr


def test_a_method_that_diverges_does_not_stop_the_others(fedkeel):
    result = fedkeel(
        "compare", *methods("fedavg(lr=1e30)", "fedavg"), *TINY, "--seeds", "2", "--out", "c", code=4
    )
    assert "2 of 2 diverged" in result.stdout
    assert "FedAvg reached" in result.stdout
    assert "2 of 4 runs diverged" in result.stderr


def test_mistakes_leave_nothing_behind(fedkeel):
    for args, code in (
        (["--method", "scafold"], 2),
        (["--method", "FedAvg()"], 2),
        (["--cohort", "99"], 2),
        (["--data", "digit"], 3),
    ):
        fedkeel("compare", *methods("fedavg"), *args, code=code)
    assert not Path("runs").exists()


def test_one_seed_says_that_it_gives_no_interval(fedkeel):
    result = fedkeel("compare", *methods("fedavg", "fedcm"), *TINY, "--seeds", "1", "--out", "c")
    assert "with one seed no interval can be given" in result.stdout


def test_the_command_on_the_page_makes_the_same_comparison():
    base = Experiment().with_settings(["rounds=7", "work.steps=3", "data.split=IID(lognormal=0.3)"])
    made = Comparison.of(base, methods=["fedavg", "relaxed(scaffold, beta=0.2)"], seeds=2)
    assert made.line() == (
        "fedkeel compare --method FedAvg --method 'relaxed(SCAFFOLD, beta=0.2)' --seeds 2 --set rounds=7 "
        "--set 'data.split=IID(lognormal=0.3)' --set work.steps=3"
    )
    assert Experiment().with_settings(changes(base)) == base


def test_folders_are_readable_and_differ_where_methods_do():
    assert method_folder("FedAvg") == "fedavg"
    one, other = method_folder("FedProx(mu=0.1)"), method_folder("FedProx(mu=0.10000001)")
    assert one.startswith("fedprox-mu-0.1-")
    assert one != other


@pytest.mark.slow
def test_the_demo_is_three_methods_on_three_seeds(fedkeel, monkeypatch):
    monkeypatch.setattr(demo, "_SETTINGS", (*demo._SETTINGS, "rounds=2", "work.steps=1"))
    result = fedkeel("demo", "--out", "d")
    for part in ("FedAvg", "SCAFFOLD", "FedInit", "3 seeds", "Page: d/page.html"):
        assert part in result.stdout
    assert len(list(Path("d").rglob("model.safetensors"))) == 9


@pytest.mark.parametrize("rounds", ["5"])
def test_resume_with_more_rounds_goes_on_with_every_run(fedkeel, rounds):
    fedkeel("compare", *methods("fedavg", "fedcm"), *TINY, "--seeds", "1", "--out", "c")
    found = json.loads(fedkeel("resume", "c", "--rounds", rounds, "--json").stdout)
    assert [run["rounds"] for run in found["runs"]] == [5, 5]


def test_a_comparison_of_version_0_1_is_shown_and_resumed(fedkeel):
    """Its file is another one, and does not say where the methods' runs are kept: that follows from them."""
    fedkeel("compare", *methods("fedavg", "fedprox(mu=0.1)"), *TINY, "--seeds", "1", "--out", "c")
    before = json.loads(fedkeel("show", "c", "--json").stdout)
    plan = json.loads(Path("c/study.json").read_text())["plan"]
    for name in ("study.json", "result.json"):
        Path("c", name).unlink()
    old = {"methods": plan["methods"], "seeds": [0], "experiment": plan["experiment"]}
    Path("c/comparison.toml").write_text(dump(old))
    assert json.loads(fedkeel("show", "c", "--json").stdout) == before
    assert fedkeel("resume", "c").stderr.count("kept from before") == 2
    Path("c/study.json").unlink()
    Path("c/comparison.toml").write_text("methods = ['FedAvg']\nseeds = [0]\n")
    assert "comparison.toml: cannot be read: it lacks 'experiment'" in fedkeel("show", "c", code=6).stderr
