"""Independent runs over a cluster, and what a cluster is fit for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli import app
from fedkeel.directories.kinds import STUDIES as KINDS
from fedkeel.engines.ray.cluster import Demand, connect
from fedkeel.experiments import on_ray
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.placement import Placement
from fedkeel.studies.base import play
from fedkeel.studies.sweep import Sweep
from fedkeel.studies.tune import knob, tune

pytest.importorskip("ray", reason='needs Ray: pip install "fedkeel[ray]", or `make ray`')

SMALL = ("data.clients=6", "cohort=2", "work.epochs=1", "engine=serial", "threads=1", "rounds=3")
BASE = Experiment().with_settings(SMALL)


def fedkeel(*words: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == code, found.output
    return found.output if "--json" not in words else found.stdout


@pytest.fixture
def small() -> list[str]:
    return [word for setting in SMALL for word in ("--set", setting)]


def timeless(directory: Path) -> list[str]:
    return [(path / "metrics.jsonl").read_text() for path in sorted(directory.rglob("seed-*"))]


def test_a_comparison_over_the_cluster_equals_one_made_here(nodes, tmp_path, small):
    line = ["compare", "--method", "fedavg", "--method", "scaffold", "--seeds", "2", *small, "--json"]
    there = ["--on", "ray", "--address", nodes.address, "--out", str(tmp_path / "there")]
    found = json.loads(fedkeel(*line, *there))
    fedkeel(*line, "--out", str(tmp_path / "here"))
    assert timeless(tmp_path / "there") == timeless(tmp_path / "here")
    assert len(found["runs"]) == 4
    again = fedkeel(*line[:-1], *there)
    assert again.count("kept from before") == 4, "finished runs are not repeated"


def test_a_sweep_and_a_search_over_the_cluster_equal_those_made_here(nodes, tmp_path):
    cluster = Placement(2, "ray", nodes.address)
    sweep = Sweep.of(BASE, over="work.lr", values=["0.05", "0.1"], seeds=1)
    for place, name in ((cluster, "there"), (Placement(), "here")):
        play(sweep, tmp_path / name, placement=place)
    assert timeless(tmp_path / "there") == timeless(tmp_path / "here")
    knobs = [knob("work.lr=log(0.01, 1)")]
    found = [
        tune(BASE, knobs, tmp_path / f"tune-{index}", trials=4, at_once=2, placement=place)
        for index, place in enumerate((cluster, Placement()))
    ]
    assert found[0] == found[1]


STUDIES = {
    "robustness study": "study robustness --method fedavg --reducer median --attack SignFlip(0.34) --seeds 1",
    "stability study": "study stability --method fedavg --method scaffold --held-out 2 --pairs 1 "
    "--samples 10",
    "interaction study": "study interaction --method fedavg --every 1 --samples 10 --components 2 --seeds 2",
    "constants study": "study constants --pilot-rounds 2 --pilot-points 2 --pilot-clients 2 "
    "--pilot-samples 10",
    "costs study": "costs --method fedavg --counted 2",
}


def test_every_kind_is_made_on_a_cluster():
    assert {*STUDIES, "comparison", "sweep", "search", "recipe"} == {*KINDS}, "those have tests of their own"


@pytest.mark.parametrize("kind", STUDIES)
def test_a_study_over_the_cluster_equals_one_made_here(kind, nodes, tmp_path, small):
    line = [*STUDIES[kind].split(), *small, "--json"]
    there = json.loads(
        fedkeel(*line, "--on", "ray", "--address", nodes.address, "--out", str(tmp_path / "there"))
    )
    here = json.loads(fedkeel(*line, "--parallel", "1", "--out", str(tmp_path / "here")))
    assert untimed(there) == untimed(here)


def untimed(value):
    """Return numbers without times and places."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if "second" not in key}
        return {
            key: untimed(part) for key, part in kept.items() if key not in ("directory", "page", "command")
        }
    return [untimed(part) for part in value] if isinstance(value, list) else value


def test_a_recipe_over_the_cluster(nodes, tmp_path):
    line = ["reproduce", "fedinit/figure1b", "--scale", "smoke", "--seeds", "1", "--json"]
    cluster = ["--on", "ray", "--address", nodes.address]
    there = json.loads(fedkeel(*line, *cluster, "--out", str(tmp_path / "there")))
    here = json.loads(fedkeel(*line, "--parallel", "1", "--out", str(tmp_path / "here")))
    assert untimed({**there, "text": ""}) == untimed({**here, "text": ""})


def test_a_run_whose_worker_dies_goes_on_from_its_checkpoint(nodes, tmp_path):
    experiment = BASE.with_settings(["rounds=4", "checkpoint_every=1"])
    calls = {"the run": (experiment.table(), str(tmp_path / "run"))}
    found: list[object] = []
    take: Callable[..., None] = lambda _, rounds: found.append(rounds)  # noqa: E731
    with pytest.warns(UserWarning, match=r"the run: goes on elsewhere from its last checkpoint"):
        on_ray.run_on_ray(mortal_run, calls, take, address=nodes.address, demand=Demand(), out=tmp_path)
    assert found == [[3]], "three rounds were there"
    experiment.train(tmp_path / "whole")
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == (
        tmp_path / "whole" / "metrics.jsonl"
    ).read_text()


def mortal_run(table: dict[str, object], directory: str) -> list[int]:
    """Train; die after three rounds the first time. Return the rounds that were played now."""
    import os
    import signal

    played: list[int] = []
    first = not Path(directory).exists()

    def told(row: dict[str, object]) -> None:
        played.append(row["round"])
        if first and row["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    Experiment.from_table(table).train(directory, resume=True, callbacks=told)
    return played


def test_a_directory_that_nodes_do_not_share_is_refused(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "sees", lambda path: False)
    cluster = connect(nodes.address)
    try:
        with pytest.raises(fk.StorageError, match=r"127.0.0.1 cannot see or write it: give --out on"):
            on_ray.check_shared(cluster, tmp_path / "out", Demand())
    finally:
        cluster.close()


def test_ray_inside_ray_is_refused(nodes):
    line = ["compare", "--method", "fedavg", "--on", "ray", "--engine", "ray"]
    assert "leave one of them out" in CliRunner().invoke(app, line).stderr


def test_the_check_of_a_cluster_tells_what_its_nodes_have(nodes, small):
    found = json.loads(fedkeel("cluster", "check", *small, "--address", nodes.address, "--json"))
    assert found["fit"]
    assert found["slots"] == len(found["nodes"]) == len(nodes.workers)
    assert all(node["versions"] == found["here"] for node in found["nodes"])
    assert all(node["steps_per_second"] > 0 and node["lacks_data"] is None for node in found["nodes"])
    assert found["seconds"] > 0
    table = fedkeel("cluster", "check", *small, "--address", nodes.address)
    assert table.count("the same") == len(nodes.workers)
    assert "3 rounds take about" in table


def test_a_node_with_other_versions_is_shown_and_ends_the_check(nodes, small, monkeypatch):
    from fedkeel.experiments import cluster_check

    monkeypatch.setattr(cluster_check, "versions", lambda: {**on_ray.versions(), "numpy": "1.0"})
    table = fedkeel("cluster", "check", *small, "--address", nodes.address, code=2)
    assert table.count("differ") == len(nodes.workers)
