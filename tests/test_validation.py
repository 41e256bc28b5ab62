"""Validation data: held out of every client's training, and what models and settings are selected by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import tiny_net
from selecting import slow
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.experiments.experiment import Experiment
from fedkeel.running.run_directory import read_manifest

SIZES = [3, 8, 5, 11, 1, 30]
PROBLEM = tiny_net(SIZES)
HELD = PROBLEM.federation.with_validation(0.3, seed=1)
SMALL = ["rounds=1", "cohort=2", "data.clients=5", "work.epochs=1", "engine=serial"]
ENGINES = ["serial", *slow("stacked-uncompiled", "processes")]


def train(federation: fk.Federation = HELD, task: fk.Task = PROBLEM.task, **options: Any) -> fk.Result:
    given = {"rounds": 3, "cohort": 3, "work": fk.Work(epochs=1, batch_size=3, lr=0.1), "engine": "serial"}
    return flat.train(task, federation, fk.SCAFFOLD(), **given | options)


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


def numbered(sizes: list[int]) -> fk.Federation:
    """Return clients whose samples are numbers, each another."""
    numbers = torch.arange(sum(sizes)).double()[:, None].split(sizes)
    return fk.Federation.from_arrays([(x, torch.zeros(len(x), dtype=torch.int64)) for x in numbers])


@pytest.mark.slow
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12).filter(lambda sizes: max(sizes) > 1),
    st.sampled_from([0.5, 0.9]),
    st.integers(0, 5),
)
def test_each_sample_is_trained_on_or_held_out_and_every_client_keeps_one(
    sizes: list[int], share: float, seed: int
) -> None:
    whole = numbered(sizes)
    held = whole.with_validation(share, seed=seed)
    for client, size in enumerate(sizes):
        kept, taken = held.rows(client).tolist(), held.validation.of(client).tolist()
        assert sorted(kept + taken) == whole.rows(client).tolist()
        assert kept == sorted(kept)
        assert abs(len(taken) - share * size) < 1 or len(kept) == 1
        assert kept
    again = whole.with_validation(share, seed=seed)
    assert again.index.tolist() == held.index.tolist()


def test_the_share_holds_on_average_for_clients_of_few_samples() -> None:
    held = numbered([4] * 500).with_validation(0.1)
    assert len(held.validation.rows) == pytest.approx(200, rel=0.2)


def test_the_seed_decides_what_is_held_out() -> None:
    torch.manual_seed(5)
    first, second = (PROBLEM.federation.with_validation(0.3, seed=seed) for seed in (1, 2))
    torch.manual_seed(6)
    assert first.validation.rows.tolist() == HELD.validation.rows.tolist()
    assert first.validation.rows.tolist() != second.validation.rows.tolist()


def test_validation_data_is_rows_of_the_pool_and_no_copy() -> None:
    assert HELD.x is PROBLEM.federation.x
    assert HELD.y is PROBLEM.federation.y
    assert torch.equal(HELD.pick(HELD.validation.of(5))[0], PROBLEM.federation.x[HELD.validation.of(5)])


def test_clients_that_are_held_out_keep_their_data() -> None:
    held = PROBLEM.federation.hold_out(1).with_validation(0.5)
    assert len(held.rows(5)) == 30
    later = PROBLEM.federation.with_validation(0.5).hold_out(1)
    assert len(later.validation.first(len(later))) < len(later.validation.rows)


class Notes(nn.Module):
    """A model that notes the samples it is trained on."""

    def __init__(self, seen: set[float]) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(1, 2).double(), seen

    def __deepcopy__(self, memo: Any) -> Notes:
        copied = Notes(self.seen)
        copied.load_state_dict(self.state_dict())
        return copied

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.update(x[:, 0].tolist())
        return self.layer(x * 0)


def test_nobody_trains_on_what_is_held_out() -> None:
    seen: set[float] = set()
    held = numbered([9, 4, 12]).with_validation(0.4)
    work = fk.Work(epochs=2, batch_size=3)
    fk.train(
        fk.Task(Notes(seen)),
        held,
        fk.FedAvg(),
        rounds=3,
        cohort=3,
        work=work,
        execution=fk.Execution("serial"),
    )
    assert seen == set(held.index.tolist())
    assert not seen & set(held.validation.rows.tolist())


def test_a_run_with_validation_is_that_of_the_clients_that_are_left() -> None:
    left = fk.Federation.from_arrays([HELD.samples(client) for client in range(len(SIZES))])
    plain, validated = train(left, weighting="samples"), train(weighting="samples")
    assert torch.equal(weights(plain.model), weights(validated.model))


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_of_validation_are_the_scores_of_what_is_held_out(engine: str) -> None:
    result = train(engine=engine)
    x, y = HELD.pick(HELD.validation.rows)
    expected = result.evaluate((x, y))
    row = result.history[-1]
    for name in ("loss", "accuracy"):
        assert row[f"validation_{name}"] == pytest.approx(expected[name], abs=1e-6)
        assert row[name] != row[f"validation_{name}"]


class Named(nn.Module):
    """A model of two named inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4).double()

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.layer(first + second)


def test_trees_and_data_that_is_loaded_when_needed_are_held_out_alike() -> None:
    x, y = zip(*PROBLEM.clients, strict=True)
    named = [({"first": part, "second": part}, targets) for part, targets in zip(x, y, strict=True)]
    tests = [named[1], *[None] * (len(SIZES) - 1)]
    whole = fk.Federation.from_arrays(named, client_tests=tests)
    loaded = fk.Federation.from_clients(len(SIZES), named.__getitem__, sizes=SIZES, classes=4)
    task = fk.Task(Named)
    rows = []
    for federation in (whole, loaded):
        held = federation.with_validation(0.3, seed=1)
        assert held.index.tolist() == HELD.index.tolist()
        result = train(held, task)
        rows.append([(row["validation_loss"], row["train_loss"]) for row in result.history])
        table = result.per_client(held)
        assert [row["evaluated_on"] for row in table.rows].count("test") == (federation is whole)
    assert rows[0] == rows[1]


def test_validation_needs_no_test_set_and_follows_eval_every() -> None:
    bare = fk.Federation.from_arrays(PROBLEM.clients).with_validation(0.3)
    rows = train(bare, eval_every=2).history
    assert [row["validation_loss"] is None for row in rows] == [True, False, False]
    assert [row["loss"] for row in rows] == [None] * 3


def test_further_models_are_validated_too() -> None:
    given = {"rounds": 1, "cohort": 3, "work": fk.Work(steps=1), "engine": "serial"}
    result = flat.train(PROBLEM.task, HELD, fk.FedDyn(), **given)
    assert {"validation_loss", "validation_loss/gamma", "validation_accuracy/gamma"} <= set(result.history[0])


def test_without_validation_there_are_no_columns_of_it() -> None:
    assert not [name for name in train(PROBLEM.federation).history[0] if name.startswith("validation")]


def opposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test set and validation data disagree about which round is best."""
    from fedkeel.running import round as module

    def evaluate(context: Any, state: Any) -> dict[str, Any]:
        test, held = 0.1 * state.round, 0.9 - 0.1 * state.round
        scores = {"loss": 1 - test, "accuracy": test}
        if context.settings.federation.validation is None:
            return scores
        return {**scores, "validation_loss": 1 - held, "validation_accuracy": held}

    monkeypatch.setattr(module, "evaluate", evaluate)


@pytest.mark.parametrize("column", [None, "accuracy", "loss", "validation_accuracy"])
def test_the_best_round_and_an_early_stop_go_by_validation(
    column: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opposed(monkeypatch)
    result = train(rounds=5, callbacks=fk.EarlyStop(2, column))
    assert len(result.history) == 3
    assert (result.best.round, result.best.selected_on) == (0, "validation")
    assert result.best.column == f"validation_{(column or 'accuracy').removeprefix('validation_')}"
    assert "flatter" not in str(result)
    assert re.search(r"best +validation (accuracy|loss) \S+( %)? after round 1\n", str(result))


def test_without_validation_it_is_said_that_the_test_set_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    opposed(monkeypatch)
    result = train(PROBLEM.federation)
    assert (result.best.round, result.best.selected_on) == (2, "test")
    assert "accuracy 30.0 % after round 3 (selected on the test set; federation.with_validation" in str(
        result
    )
    with pytest.warns(UserWarning, match=r"selected on the test set.*with_validation\(0.1\)") as caught:
        train(PROBLEM.federation, callbacks=[fk.EarlyStop(2), fk.KeepBest("loss")])
    assert len(caught) == 1


def test_columns_of_training_and_all_clients_data_need_no_warning() -> None:
    assert train(PROBLEM.federation, callbacks=fk.KeepBest("train_loss")).best.selected_on is None
    result = train(PROBLEM.federation, callbacks=fk.KeepBest("loss"), evaluate_on="clients")
    assert result.best.selected_on == "clients"


def test_the_best_value_of_a_sweep_goes_by_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    opposed(monkeypatch)
    for federation, best, told in (
        (HELD, 1, "Best: 1 (selected on validation data: mean accuracy 80.0 %)"),
        (
            PROBLEM.federation,
            3,
            "Best: 3 (selected on the test set, whose mean accuracy of 30.0 % then flatters",
        ),
    ):
        found = fk.sweep(
            lambda rounds, seed, f=federation: train(f, rounds=rounds, seed=seed), [1, 3], seeds=2
        )
        assert found.best == best
        assert told in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "best", "column"), [(0.2, 0.1, "validation_accuracy"), (None, 0.5, "accuracy")]
)
def test_tune_goes_by_validation(
    share: float | None, best: float, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedkeel.running import round as module
    from fedkeel.studies.tune import knob, tune

    def evaluate(context: Any, state: Any) -> dict[str, Any]:
        lr, held = context.settings.work.lr, context.settings.federation.validation is not None
        scores = {"loss": 0.0, "accuracy": lr}
        return scores | ({"validation_loss": 0.0, "validation_accuracy": 1 - lr} if held else {})

    monkeypatch.setattr(module, "evaluate", evaluate)
    base = Experiment().with_settings([*SMALL, *([f"data.validation={share}"] if share else [])])
    found = tune(base, [knob("work.lr=choice(0.1, 0.5)")], tmp_path / "tune", trials=5)
    assert found.best == {"work.lr": best}
    assert found.column == column


@pytest.mark.slow
def test_tune_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    from fedkeel.studies.tune import knob, tune

    base = Experiment().with_settings([*SMALL, "evaluate_on=nothing"])
    with pytest.raises(fk.ConfigError, match="this run evaluates nothing"):
        tune(base, [knob("work.lr=choice(0.1, 0.5)")], tmp_path / "tune", trials=1)


def test_a_file_and_the_line_hold_out_validation_data(tmp_path: Path) -> None:
    experiment = Experiment().with_settings([*SMALL, "data.validation=0.2", "data.seed=4"])
    assert Experiment.from_table(experiment.table()) == experiment
    assert "validation" not in Experiment().table()["data"]
    made = experiment.federation()
    plain = Experiment().with_settings([*SMALL, "data.seed=4"]).federation()
    assert made.index.tolist() == plain.with_validation(0.2, seed=4).index.tolist()
    result = experiment.train(tmp_path)
    assert result.history[-1]["validation_accuracy"] is not None
    data = read_manifest(tmp_path)["data"]
    assert data["validation"] == 0.2
    assert data["samples"] + data["validation_samples"] == len(plain.index)
    with pytest.raises(fk.StorageError, match="belongs to another experiment: its federation is"):
        Experiment().with_settings([*SMALL, "data.seed=4"]).train(tmp_path, resume=True)


def test_a_run_with_validation_resumes(tmp_path: Path) -> None:
    whole = train(rounds=4, run_dir=tmp_path / "whole")
    train(rounds=2, run_dir=tmp_path / "parts", keep_client_states=True)
    parts = train(rounds=4, run_dir=tmp_path / "parts", resume=True)
    assert torch.equal(weights(whole.model), weights(parts.model))
    assert parts.best.round == whole.best.round
    loaded = fk.load(tmp_path / "parts", PROBLEM.task)
    assert loaded.best.selected_on == "validation"
    assert str(loaded) == str(parts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PROBLEM.federation.with_validation(1.5), "validation = 1.5: give a share of each client's"),
        (lambda: PROBLEM.federation.with_validation(True), "validation = True: give a share"),
        (lambda: HELD.with_validation(0.1), "the clients' samples are held out already"),
        (lambda: numbered([1, 1]).with_validation(0.5), "give a larger share"),
        (lambda: Experiment().with_settings(["data.validation=1.5"]), "data.validation = 1.5"),
        (lambda: fk.Task(nn.Linear(1, 1), metrics={"validation_f1": fk.accuracy}), "'validation_f1'"),
        (
            lambda: train(PROBLEM.federation, callbacks=fk.EarlyStop(2, "validation_accuracy")),
            "metric = 'validation_accuracy': there is no validation data: hold some out",
        ),
        (
            lambda: fk.data.add_noise(
                fk.Federation.from_arrays([(torch.zeros(9, 1, 2, 2), [0, 1, 2] * 3)]).with_validation(0.3),
                fk.data.ClassBrightness(),
            ),
            "add the noise first",
        ),
    ],
)
def test_mistakes_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(fk.FedkeelError, match=re.escape(message)):
        make()


def test_validation_shows_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"validation +1[0-9] samples of the clients", str(HELD))
    train(fk.Federation.from_arrays(PROBLEM.clients).with_validation(0.3), progress=True)
    assert "validation accuracy" in capsys.readouterr().err
