"""What callbacks hear, how they end a run early, which model is the best, and what an exception leaves."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.running.run_directory import RunDirectory, read_manifest, read_rows
from fedkeel.running.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:the best round is selected on the test set")

WORK = fk.Work(epochs=1, batch_size=3, lr=0.1)


def train(**options: Any) -> fk.Result:
    problem = tiny_net([3, 8, 5, 11, 4, 7])
    task = fk.Task(problem.task.model, metrics={"accuracy": fk.accuracy, "f1": fk.accuracy})
    given = {"rounds": 6, "cohort": 3, "work": WORK, "engine": "serial"} | options
    return flat.train(task, problem.federation, fk.SCAFFOLD(), **given)


def weights(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


class Diary(fk.Callback):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_run_begin(self, rows: Sequence[dict[str, Any]]) -> None:
        self.heard.append(("run", len(rows)))

    def on_round_begin(self, round: int) -> None:
        self.heard.append(("begin", round))

    def on_round_end(self, row: dict[str, Any]) -> None:
        self.heard.append(("end", row["round"]))

    def on_run_end(self, result: fk.Result) -> None:
        self.heard.append(("over", len(result.history)))


def worsening(monkeypatch: pytest.MonkeyPatch, accuracies: Sequence[float]) -> None:
    """Let a run's evaluations be these, whatever its models are."""
    from fedkeel.running import round as module

    def evaluate(context: Any, state: Any) -> dict[str, Any]:
        if state.round % context.settings.eval_every:
            return {"loss": None, "accuracy": None, "f1": None}
        value = accuracies[state.round - 1]
        return {"loss": 1 - value, "accuracy": value, "f1": -value}

    monkeypatch.setattr(module, "evaluate", evaluate)


def test_an_object_hears_rounds_begin_and_end() -> None:
    diary, rows = Diary(), []
    train(rounds=2, callbacks=[diary, rows.append])
    assert diary.heard == [("run", 0), ("begin", 0), ("end", 0), ("begin", 1), ("end", 1), ("over", 2)]
    assert [row["round"] for row in rows] == [0, 1]


def test_methods_are_optional_and_the_base_class_is_too() -> None:
    class Counts:
        begun = 0

        def on_round_begin(self, round: int) -> None:
            self.begun += 1

    counts = Counts()
    train(rounds=3, callbacks=counts)
    assert counts.begun == 3


@pytest.mark.parametrize("value", [True, np.bool_(True)])
def test_a_function_that_returns_true_ends_the_run(value: Any) -> None:
    result = train(callbacks=lambda row: value if row["round"] == 2 else None)
    assert len(result.history) == 3
    assert result.stopped_by is not None
    assert torch.equal(weights(result.model), weights(train(rounds=3).model))


def test_other_values_of_a_function_are_passed_over() -> None:
    assert len(train(callbacks=lambda row: 1 + row["round"]).history) == 6


def test_early_stop_counts_evaluations_that_are_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    worsening(monkeypatch, [0.1, 0.3, 0.2, 0.3, 0.9, 0.9])
    result = train(callbacks=fk.EarlyStop(patience=2))
    assert len(result.history) == 4
    assert result.stopped_by == "EarlyStop(2)"
    assert (result.best.round, result.best.row["accuracy"]) == (1, 0.3)
    assert "stopped by" in str(result)


@pytest.mark.parametrize(
    ("stop", "rounds"),
    [
        (fk.EarlyStop(2, "loss"), 4),
        (fk.EarlyStop(2, "accuracy", "max"), 4),
        (fk.EarlyStop(2, "f1", "min"), 4),
        (fk.EarlyStop(2, "f1", "max"), 3),
        (fk.EarlyStop(2, min_delta=0.5), 3),
        (fk.EarlyStop(3), 6),
    ],
    ids=repr,
)
def test_early_stop_goes_by_a_column(
    stop: fk.EarlyStop, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worsening(monkeypatch, [0.1, 0.3, 0.2, 0.3, 0.9, 0.9])
    for _ in range(2):  # it begins anew with every run
        assert len(train(callbacks=stop).history) == rounds


def test_rounds_without_evaluation_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    worsening(monkeypatch, [0.1, 0.9, 0.1, 0.5, 0.1, 0.4, 0.1, 0.4])
    assert len(train(callbacks=fk.EarlyStop(2), rounds=8, eval_every=2).history) == 6


def test_the_best_model_is_that_of_the_best_round(monkeypatch: pytest.MonkeyPatch) -> None:
    third = train(rounds=3)
    worsening(monkeypatch, [0.1, 0.3, 0.8, 0.8, 0.2, 0.7])
    result = train()
    assert result.best.round == 2
    assert result.best.row is result.history[2]
    assert torch.equal(weights(result.best.model), weights(third.model))
    assert not torch.equal(weights(result.model), weights(third.model))
    assert not result.best.model.training
    assert train(callbacks=fk.KeepBest("f1", "max")).best.round == 0


def test_a_task_without_accuracy_has_its_best_round_by_loss() -> None:
    problem = tiny_net([3, 8, 5])
    task = fk.Task(problem.task.model, metrics={})
    result = fk.train(task, problem.federation, fk.FedAvg(), rounds=5, cohort=2, work=WORK)
    assert result.best.row["loss"] == min(row["loss"] for row in result.history)


def test_an_early_stop_is_a_normal_end_of_a_run_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worsening(monkeypatch, [0.1, 0.3, 0.2, 0.3, 0.9, 0.8])
    stop = fk.EarlyStop(2)
    result = train(run_dir=tmp_path, callbacks=stop)
    assert (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "best.safetensors").exists()
    best = {"round": 1, "column": "accuracy", "selected_on": "test"}
    end = {"rounds": 4, "stopped_by": "EarlyStop(2)", "best": best}
    told = read_manifest(tmp_path)["end"]
    assert {name: told[name] for name in end} == end
    again = train(run_dir=tmp_path, resume=True, callbacks=stop)  # it is over
    assert len(again.history) == 4
    assert torch.equal(weights(again.best.model), weights(result.best.model))
    whole = train(run_dir=tmp_path, resume=True)  # without the callback it goes on
    assert len(read_rows(tmp_path)) == len(whole.history) == 6
    assert whole.best.round == 4
    assert read_manifest(tmp_path)["end"]["stopped_by"] is None
    assert torch.equal(weights(whole.model), weights(train().model))


def test_a_run_that_was_stopped_goes_on_with_its_best_model_and_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worsening(monkeypatch, [0.1, 0.3, 0.2, 0.2, 0.2, 0.9])

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt

    stop = fk.EarlyStop(3, "accuracy")
    with pytest.raises(fk.Stopped):
        train(run_dir=tmp_path, callbacks=[stop, interrupt])
    with pytest.raises(fk.ConfigError, match="has kept its best model by 'accuracy'"):
        train(run_dir=tmp_path, resume=True, callbacks=fk.KeepBest("loss"))
    result = train(run_dir=tmp_path, resume=True, callbacks=stop)
    assert len(result.history) == 5
    assert torch.equal(weights(result.best.model), weights(train(rounds=2).model))


def test_runs_lists_an_early_stop_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedkeel.cli.runs import runs

    train(run_dir=tmp_path / "a", callbacks=lambda row: row["round"] == 1)
    runs(tmp_path, as_json=True)
    (line,) = json.loads(capsys.readouterr().out)
    assert line["state"].startswith("stopped early by ")
    assert (line["rounds"], line["rounds_planned"]) == (2, 6)


class Mistake(Exception):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Mistake])
def test_what_ends_a_run_carries_what_there_is(kind: type[BaseException], tmp_path: Path) -> None:
    def fail(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise kind

    for run_dir in (None, tmp_path):
        with pytest.raises(fk.Stopped if kind is KeyboardInterrupt else kind) as caught:
            train(callbacks=fail, run_dir=run_dir)
        result = caught.value.result
        assert isinstance(result, fk.Result)
        assert len(result.history) == 3
        assert torch.equal(weights(result.model), weights(train(rounds=3).model))
        assert result.best is not None
    assert (tmp_path / "checkpoints" / "round-00000003").is_dir()
    told = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "after 3 of 6 rounds; the last good checkpoint is" in told
    resumed = train(run_dir=tmp_path, resume=True)
    assert torch.equal(weights(resumed.model), weights(train().model))


def test_divergence_carries_what_there_is() -> None:
    problem = tiny_net([3, 8, 5])
    with pytest.raises(fk.Diverged) as caught:
        fk.train(problem.task, problem.federation, fk.FedAvg(lr=1e200), rounds=9, cohort=2, work=WORK)
    assert len(caught.value.result.history) == caught.value.round


def test_an_exception_after_the_last_round_carries_the_whole_result() -> None:
    class Fails(fk.Callback):
        def on_run_end(self, result: fk.Result) -> None:
            raise Mistake

    with pytest.raises(Mistake) as caught:
        train(callbacks=Fails())
    assert len(caught.value.result.history) == 6


def test_a_mistake_in_the_first_round_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    def mistaken(row: dict[str, Any]) -> float:
        return float(row["acuracy"])

    with pytest.raises(KeyError):
        train(run_dir=tmp_path, callbacks=mistaken)
    result = train(run_dir=tmp_path, resume=True)
    assert len(read_rows(tmp_path)) == 6
    assert torch.equal(weights(result.model), weights(train().model))


class Misspelled(fk.Callback):
    def on_round_ended(self, row: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: train(callbacks=Misspelled()), "nobody calls 'on_round_ended'; did you mean 'on_round_end'"),
        (lambda: train(callbacks=3), "callbacks: 3: give a function of a round's row"),
        (lambda: train(callbacks=fk.EarlyStop), "callbacks: EarlyStop: that is a class"),
        (lambda: fk.EarlyStop(0), "patience = 0: give a number of evaluations"),
        (lambda: fk.EarlyStop(2, min_delta=-1), "min_delta = -1: give a number from 0 on"),
        (lambda: fk.EarlyStop(2, "f1"), "metric = 'f1': say which is better: mode='max'"),
        (lambda: fk.EarlyStop(2, "f1", "up"), "mode = 'up': give 'max'"),
        (lambda: fk.EarlyStop(2, mode="max"), "mode = 'max' without a metric"),
        (
            lambda: train(callbacks=fk.EarlyStop(2, "acuracy", "max")),
            "no such column; did you mean 'accuracy'",
        ),
        (
            lambda: train(callbacks=fk.KeepBest("cohort", "max")),
            "metric = 'cohort': that column holds no number",
        ),
    ],
)
def test_mistakes_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(fk.ConfigError, match=re.escape(message)):
        make()


def test_a_signal_at_the_end_of_a_round_loses_neither_its_row_nor_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the round is taken over, so no callback hears of that round's end."""
    worsening(monkeypatch, [0.1, 0.9, 0.2, 0.2, 0.2, 0.2])
    expected, heard, commit = train(), list[int](), Store.commit

    def interrupted(self: Store, memories: Any) -> None:
        commit(self, memories)
        if len(heard) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    options: dict[str, Any] = {"run_dir": tmp_path / "run", "checkpoint_every": 100}
    monkeypatch.setattr(Store, "commit", interrupted)
    with pytest.raises(fk.Stopped) as caught:
        train(callbacks=lambda row: heard.append(row["round"]), **options)
    assert heard == [0]
    assert caught.value.result.best.round == 1
    monkeypatch.setattr(Store, "commit", commit)
    resumed = train(resume=True, **options)
    assert resumed.best.round == expected.best.round == 1
    assert torch.equal(weights(resumed.best.model), weights(expected.best.model))


def test_a_callback_finds_the_rows_of_its_round_and_at_the_end_a_directory_that_is_free(
    tmp_path: Path,
) -> None:
    class Reads(fk.Callback):
        rows: list[int] = []  # noqa: RUF012

        def on_round_end(self, row: dict[str, Any]) -> None:
            self.rows.append(len(read_rows(tmp_path)))

        def on_run_end(self, result: fk.Result) -> None:
            assert read_manifest(tmp_path)["end"]["rounds"] == 2
            RunDirectory(tmp_path).close()

    train(rounds=2, run_dir=tmp_path, callbacks=Reads())
    assert Reads.rows == [1, 2]
