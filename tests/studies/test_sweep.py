"""Sweeps and searches: every run is the one the settings say, none is done twice, the best is the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import block, document_in
from run_events import Heard
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.placement import Placement
from fedkeel.report.tables import Trial
from fedkeel.studies.base import StudyResult, play
from fedkeel.studies.comparison import in_order
from fedkeel.studies.sweep import Sweep
from fedkeel.studies.tune import (
    ChoiceRange,
    IntegerRange,
    LogRange,
    SearchedSetting,
    UniformRange,
    knob,
    tune,
)

BASE = Experiment().with_settings(
    ["rounds=2", "cohort=2", "data.clients=5", "work.epochs=1", "work.batch_size=50", "engine=serial"]
)

ENDS = ("FedAvg", "FedDyn")


def timeless(rows: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def trials_of(found: StudyResult, out: Path) -> list[Trial]:
    assert isinstance(found.study, Sweep)
    return in_order(found.study.runs(out), found.results, found.study.values)


@pytest.mark.slow
def test_a_sweep_over_the_switch_goes_from_one_method_to_the_other(tmp_path: Path) -> None:
    """0 and 0.0 are no round, 1 is one round, 2 of 2 and 1.0 are all rounds."""
    values = ["0", "0.0", "1", "0.5", "2", "1.0"]
    sweep = Sweep.of(BASE, over="method=stages((FedDyn, {}), FedAvg)", values=values, seeds=1)
    trials = trials_of(play(sweep, tmp_path / "s"), tmp_path / "s")
    found = {trial.label: timeless(trial.rows) for trial in trials}
    plain = {name: timeless(BASE.with_settings([f"method={name}"]).train().history) for name in ENDS}
    assert found["0"] == found["0.0"] == plain["FedAvg"]
    assert found["2"] == found["1.0"] == plain["FedDyn"]
    assert found["1"] == found["0.5"] not in plain.values()


def test_a_sweep_runs_what_its_settings_say_and_names_the_best(tmp_path: Path) -> None:
    sweep = Sweep.of(BASE, over="method=FedInit(beta={})", values=["-0.1", "0", "0.1"], seeds=2)
    heard = Heard()
    made = play(sweep, tmp_path / "s", events=heard)
    trials = trials_of(made, tmp_path / "s")
    assert [(t.label, t.seed) for t in trials] == [(v, s) for v in ("-0.1", "0", "0.1") for s in (0, 1)]
    assert heard.kept == [False] * 6
    direct = BASE.with_settings(["method=FedInit(beta=0.1)", "seed=1"]).train()
    assert timeless(trials[-1].rows) == timeless(direct.history)
    found = made.numbers
    means = {
        value: sum(t.rows[-1]["accuracy"] for t in trials if t.label == value) / 2 for value in sweep.values
    }
    assert found["best"] == max(means, key=lambda value: means[value])
    plot = block(made.document, "sweep-plot").series[0]
    assert plot.x == (-0.1, 0.0, 0.1)
    assert list(plot.y) == pytest.approx(list(means.values()), rel=1e-5)


@pytest.mark.slow(7)
def test_a_sweep_goes_on_where_it_stopped_and_in_parallel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Sweep.of(BASE, over="work.epochs", values=["1"], seeds=1)
    (once,) = trials_of(play(first, tmp_path / "s"), tmp_path / "s")
    more = Sweep.of(BASE, over="work.epochs", values=["1", "2"], seeds=1)
    one, two = trials_of(play(more, tmp_path / "s", placement=Placement(2)), tmp_path / "s")
    assert timeless(one.rows) == timeless(once.rows)
    alone = BASE.with_settings(["work.epochs=2", "seed=0"]).train()
    assert timeless(two.rows) == timeless(alone.history)
    monkeypatch.setattr(Experiment, "train", None)
    assert len(play(more, tmp_path / "s", placement=Placement(2)).results) == 2
    for other, message in (
        (
            Sweep.of(BASE, over="work.batch_size", values=["50"], seeds=1),
            "its over is 'work.epochs', not 'work.batch_size'",
        ),
        (
            Sweep.of(BASE.with_settings(["work.lr=0.2"]), over="work.epochs", values=["1"], seeds=1),
            "its work.lr is 0.1, not 0.2",
        ),
    ):
        with pytest.raises(fk.StorageError, match=f"belongs to another sweep: {message}"):
            play(other, tmp_path / "s")


@pytest.mark.parametrize(
    ("over", "values", "message"),
    [
        ("work.lrr", ["1"], "there is no key 'work.lrr'"),
        ("method=FedInit(0.1)", ["1"], "put {} where the value belongs"),
        ("work.lr", [], "no values: give them"),
        ("work.lr", ["0.1", ""], "value 2 of 2 is empty"),
        ("work.lr", ["0.1", "0.1"], "0.1 is given twice"),
    ],
)
def test_a_wrong_sweep_is_refused_before_it_runs(over: str, values: list[str], message: str) -> None:
    with pytest.raises(fk.ConfigError, match=message):
        Sweep.of(BASE, over=over, values=values, seeds=1)


def test_ranges_are_read() -> None:
    assert knob("work.lr=log(0.001, 1)") == SearchedSetting("work.lr", "{}", (LogRange(0.001, 1.0),))
    read = knob("method=FedInit(beta={uniform(0, 0.2)})")
    assert read == SearchedSetting("method", "FedInit(beta={})", (UniformRange(0.0, 0.2),))
    assert read.setting({"method": 0.1}) == "method=FedInit(beta=0.1)"
    assert knob("work.epochs=integer(1, 5)").ranges == (IntegerRange(1, 5),)
    assert knob("cohort=choice(2, 3)").ranges == (ChoiceRange((2, 3)),)
    two = knob("method=FedSAGD(lam={log(0.01, 1)}, mu={log(0.001, 1)})")
    assert two.setting({"method[0]": 0.1, "method[1]": 0.2}) == "method=FedSAGD(lam=0.1, mu=0.2)"
    for text, message in (
        ("work.lr", "write a key and a range"),
        ("work.lr=log(0, 1)", "starts above 0"),
        ("work.lr=uniform(1, 0)", "must rise"),
        ("work.lr=gauss(0, 1)", "there is no range 'gauss'"),
    ):
        with pytest.raises(fk.ConfigError, match=message):
            knob(text)


@pytest.mark.slow
def test_a_search_finds_keeps_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    knobs = [knob("work.lr=log(0.0001, 0.5)")]
    seen: dict[int, tuple[float, float]] = {}

    def told(number: int, state: str, value: float | None, chosen: Any) -> None:
        assert value is not None
        assert state == "complete"
        seen[number] = value, chosen["work.lr"]

    tune(BASE, knobs, tmp_path / "t", trials=3, told=told)
    found = tune(BASE, knobs, tmp_path / "t", trials=5, told=told)
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert found.trials == 5
    accuracy, lr = max(seen.values())
    assert found.score == accuracy
    assert found.settings == [f"work.lr={lr}"]
    assert BASE.with_settings(found.settings).train().history[-1]["accuracy"] == accuracy
    assert len({lr for _, lr in seen.values()}) == 5  # what was tried before is not tried again
    assert tune(BASE, knobs, tmp_path / "whole", trials=5) == found
    with pytest.raises(fk.StorageError, match="belongs to another search"):
        tune(BASE, [knob("work.lr=log(0.001, 0.5)")], tmp_path / "t", trials=6)


def test_directories_of_others_stay_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(fk.StorageError, match=r"holds mine.txt and no study"):
        play(Sweep.of(BASE, over="work.lr", values=["0.1"], seeds=1), tmp_path)
    pytest.importorskip("optuna")
    with pytest.raises(fk.StorageError, match=r"holds mine.txt and no study"):
        tune(BASE, [knob("work.lr=log(0.001, 0.5)")], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def run(*words: str) -> dict[str, Any]:
    shared = [
        "rounds=2",
        "cohort=3",
        "data.clients=8",
        "work.epochs=1",
        "work.batch_size=50",
        "engine=serial",
    ]
    options = [part for setting in shared for part in ("--set", setting)]
    ran = CliRunner().invoke(app, [*words, *options, "--json"])
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    swept = run(
        *("sweep", "--over", "work.lr", "--values", "0.1,0.2", "--seeds", "1", "--parallel", "1"),
        *("--out", str(tmp_path / "a")),
    )
    assert {line["label"] for line in swept["table"]} == {"0.1", "0.2"}
    assert block(document_in(tmp_path / "a" / "page.html"), "sweep-plot").x.label == "work.lr"
    stable = run(
        *("study", "stability", "--method", "fedavg", "--method", "scaffold", "--pairs", "1"),
        *("--held-out", "2", "--out", str(tmp_path / "b")),
    )
    assert set(stable["methods"]) == {"FedAvg", "SCAFFOLD"}
    assert len(stable["methods"]["FedAvg"]["mean"]) == 3
    assert stable["methods"]["FedAvg"]["clients"] == stable["methods"]["SCAFFOLD"]["clients"]
    page = document_in(tmp_path / "b" / "page.html")
    assert list(block(page, "parting").series[0].y) == pytest.approx(
        stable["methods"]["FedAvg"]["mean"], rel=1e-5
    )
    local = stable["methods"]["FedAvg"]["local"][0]["distances"]
    assert list(block(page, "local").series[0].y) == pytest.approx(local, rel=1e-5)
    seen = run(
        *("study", "interaction", "--method", "fedavg", "--every", "2", "--samples", "80"),
        *("--out", str(tmp_path / "c")),
    )
    assert seen["methods"]["FedAvg"][0]["features"] >= 20
    assert (tmp_path / "c" / "result.json").exists()
    together = tmp_path / "all.html"
    ran = CliRunner().invoke(
        app, ["report", *(str(tmp_path / name) for name in "abc"), "--out", str(together)]
    )
    assert ran.exit_code == 0, ran.output
    titles = [section.title for section in document_in(together).sections]
    assert {"Curves", "Against the value", "Study in b: Stability", "Study in c: Interaction"} <= set(titles)
    assert {one.method for one in document_in(together).runs} == {"work.lr=0.1", "work.lr=0.2"}


@pytest.mark.slow
def test_the_command_that_tunes(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    wrong = CliRunner().invoke(app, ["tune", "--over", "work.lrr=log(0.1, 1)", "--out", str(tmp_path)])
    assert wrong.exit_code == 2
    assert list(tmp_path.iterdir()) == []
    found = run("tune", "--over", "work.lr=log(0.01, 0.5)", "--trials", "2", "--out", str(tmp_path))
    assert found["trials"] == 2
    assert (tmp_path / "journal.log").exists()
