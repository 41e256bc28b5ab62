"""What a run evaluates: the test set, all clients' data where that is asked for, else nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from older_run import make_older
from problems import tiny_net
from selecting import slow
from torch import nn

import fedkeel as fk
from fedkeel.experiments.experiment import Experiment
from fedkeel.report import Trial, find_verdict
from fedkeel.report.explosion import find_explosion

PROBLEM = tiny_net([3, 8, 5, 11])
BARE = fk.Federation.from_arrays(PROBLEM.clients)
SMALL = ["rounds=2", "data.clients=5", "cohort=2", "work.epochs=1", "engine=serial"]


def train(federation: fk.Federation = BARE, method: Any = None, **options: Any) -> fk.Result:
    given = {"rounds": 2, "cohort": 2, "work": fk.Work(steps=2, batch_size=3), "engine": "serial"} | options
    return flat.train(PROBLEM.task, federation, method or fk.FedAvg(), **given)


def weights(result: fk.Result) -> torch.Tensor:
    return nn.utils.parameters_to_vector(result.model.parameters())


@pytest.mark.parametrize("engine", ["serial", *slow("stacked-uncompiled", "processes")])
def test_without_a_test_set_nothing_is_evaluated(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = train(evaluate_on="clients", engine=engine)
    monkeypatch.setattr(fk.Federation, "everything", property(lambda self: pytest.fail("all were gathered")))
    result = train(engine=engine)
    assert [(row["loss"], row["accuracy"]) for row in result.history] == [(None, None)] * 2
    assert [row["train_loss"] for row in result.history] == [row["train_loss"] for row in asked.history]
    assert torch.equal(weights(result), weights(asked))
    assert asked.history[-1]["loss"] is not None


def test_a_test_set_is_evaluated_unless_nothing_shall_be() -> None:
    assert train(PROBLEM.federation).history[-1]["loss"] is not None
    assert train(PROBLEM.federation, evaluate_on="nothing").history[-1]["loss"] is None
    both = [train(PROBLEM.federation, evaluate_on=what).history[-1] for what in ("test", "clients")]
    assert both[0]["loss"] == train(PROBLEM.federation).history[-1]["loss"] != both[1]["loss"]


def test_what_is_evaluated_is_in_the_manifest(tmp_path: Path) -> None:
    for what, told in ((None, "nothing"), ("clients", "all clients' data")):
        manifest = train(evaluate_on=what, run_dir=tmp_path / str(what)).manifest
        assert manifest["data"]["evaluated_on"] == told


def test_a_run_goes_on_as_it_was_begun(tmp_path: Path) -> None:
    train(evaluate_on="clients", run_dir=tmp_path)
    longer = train(rounds=3, run_dir=tmp_path, resume=True)
    assert longer.history[-1]["loss"] is not None
    with pytest.raises(fk.StorageError, match="its evaluate_on is 'clients', not 'nothing'"):
        train(rounds=4, run_dir=tmp_path, resume=True, evaluate_on="nothing")


def test_a_run_from_before_there_was_the_setting_goes_on_too(tmp_path: Path) -> None:
    train(evaluate_on="clients", run_dir=tmp_path)
    manifest = make_older(tmp_path)
    del manifest["identity"]["evaluate_on"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert train(rounds=3, run_dir=tmp_path, resume=True).history[-1]["loss"] is not None


def test_files_and_the_line_say_it_too() -> None:
    from fedkeel.cli.options import experiment_options

    experiment = Experiment().with_settings([*SMALL, "evaluate_on=nothing"])
    assert Experiment.from_table(experiment.table()) == experiment
    assert "evaluate_on" not in Experiment().table()
    assert experiment.train().history[-1]["loss"] is None
    (option,) = [one for one in experiment_options() if one.key == "evaluate_on"]
    assert (option.name, option.setting("clients")) == ("evaluate-on", 'evaluate_on="clients"')


def test_a_run_without_evaluation_prints_and_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedkeel.cli.show import show

    result = train(run_dir=tmp_path, progress=True)
    loss = result.history[-1]["train_loss"]
    assert f"round 2/2, train loss {loss:.4f}" in capsys.readouterr().err
    assert result.best is None
    for one in (result, fk.load(tmp_path, PROBLEM.task)):
        assert f"{loss:.4f}; nothing was evaluated" in str(one)
    show(tmp_path)
    assert "evaluated_on nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    "callback",
    [fk.EarlyStop(2), fk.EarlyStop(2, "loss"), fk.KeepBest("accuracy")],
    ids=lambda one: type(one).__name__,
)
def test_what_needs_an_evaluation_is_refused_before_the_first_round(callback: Any, tmp_path: Path) -> None:
    with pytest.raises(fk.ConfigError, match=r"this run evaluates nothing: .*evaluate_on='clients'"):
        train(callbacks=callback, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_training_loss_needs_no_evaluation() -> None:
    result = train(rounds=4, callbacks=fk.EarlyStop(1, "train_loss", min_delta=9.0))
    assert len(result.history) == 2
    assert result.best.column == "train_loss"


def test_a_test_set_that_is_not_there_cannot_be_asked_for() -> None:
    with pytest.raises(fk.ConfigError, match="evaluate_on = 'test': the federation has no test set"):
        train(evaluate_on="test")
    with pytest.raises(fk.ConfigError, match="Evaluation: on = 'all'"):
        train(evaluate_on="all")


def test_a_comparison_without_evaluation_says_what_is_missing() -> None:
    found = fk.compare(lambda method, seed: train(method=method, seed=seed), [fk.FedAvg()], seeds=2)
    assert found.best is None
    assert found.verdict.sentence.startswith("FedAvg(lr=1.0) has no accuracy: give the data a test set")
    assert "did not finish" not in str(found)


def test_an_explosion_is_seen_in_the_training_loss() -> None:
    rows = [{"round": r, "loss": None, "train_loss": loss, "norm": 1.0} for r, loss in enumerate([1.0, 99.0])]
    assert find_explosion(rows) == "the loss ended at 99, after 1 at first"
    assert find_verdict([Trial("a", 0, rows)]).ranking[0].diverged == 1
