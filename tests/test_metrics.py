"""What is evaluated and how it is accumulated, what a regression has, and which names metrics may have."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from one_round import WORK, federation, linear, train
from problems import tiny_net
from torch import Tensor, nn
from torch.nn import functional

import fedkeel as fk
from fedkeel.common.columns import ATTACK_SUCCESS, EVENT_COLUMNS, RUN_COLUMNS, reserved_names
from fedkeel.core import evaluation
from fedkeel.core.metrics import is_mean_over_samples

RNG = np.random.default_rng(1)


class Largest:
    """An accumulator that was used before, and says how often it is updated."""

    def __init__(self) -> None:
        self.value, self.updates = 1e9, 7

    def update(self, output: Tensor, target: Tensor) -> None:
        self.value, self.updates = max(self.value, float(output.max())), self.updates + 1

    def compute(self) -> float:
        return self.value

    def reset(self) -> None:
        self.value, self.updates = -1e9, 0


def test_an_accumulator_starts_afresh_in_every_evaluation_and_the_users_own_is_left_alone() -> None:
    mine, problem = Largest(), tiny_net([3, 8, 5])
    task = fk.Task(problem.task.model, metrics={"largest": mine})
    probe = fk.probes.ClientAccuracy(metric="largest", every=1)
    result = fk.train(
        task,
        problem.federation,
        fk.FedAvg(),
        rounds=2,
        cohort=2,
        work=WORK,
        probes=[probe],
        execution=fk.Execution("serial"),
    )
    with torch.no_grad():
        each = [float(result.model(torch.as_tensor(x)).max()) for x, _ in problem.clients]
    assert result.history[-1]["largest"] == pytest.approx(each[0])
    assert result.history[-1]["clients/largest"] == pytest.approx(np.mean(each))
    assert (mine.value, mine.updates) == (1e9, 7)


def test_torchmetrics_just_work() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    y = np.sort(RNG.integers(3, size=2500))
    data = federation([0, 1, 2, 0], test=(RNG.normal(size=(2500, 4)), y))
    metrics = {
        "f1": torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro"),
        "auroc": torchmetrics.AUROC(task="multiclass", num_classes=3),
    }
    result = fk.train(fk.Task(linear(3), metrics=metrics), data, fk.FedAvg(), rounds=2, cohort=2, work=WORK)
    with torch.no_grad():
        output = result.model(data.test[0])
    for name, metric in metrics.items():
        assert result.history[-1][name] == pytest.approx(float(metric(output, data.test[1])), rel=1e-6)


def test_what_is_known_to_be_a_mean_over_samples() -> None:
    cross_entropy, weight = functional.cross_entropy, torch.ones(3)
    means = [
        fk.accuracy,
        fk.metrics.mse,
        cross_entropy,
        functional.mse_loss,
        partial(cross_entropy, label_smoothing=0.1),
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(ignore_index=0),  # a batch weighs what of its targets is no padding
        partial(cross_entropy, ignore_index=0),
        partial(fk.accuracy, ignore_index=0),
        nn.BCEWithLogitsLoss(pos_weight=weight),
        nn.KLDivLoss(reduction="batchmean"),
        fk.mean_over_samples(lambda output, target: (output - target).abs().mean()),
    ]
    others = [
        fk.metrics.r2,
        lambda output, target: cross_entropy(2 * output, target),
        partial(cross_entropy, weight=weight),
        partial(cross_entropy, reduction="sum"),
        nn.CrossEntropyLoss(weight=weight),
        nn.MSELoss(reduction="sum"),
        Largest(),
    ]
    assert all(is_mean_over_samples(one) for one in means)
    assert not any(is_mean_over_samples(one) for one in others)
    assert pickle.loads(pickle.dumps(fk.accuracy)) is fk.accuracy


@pytest.mark.parametrize("mark", [int, 3, Largest()])
def test_only_functions_are_marked(mark: Any) -> None:
    with pytest.raises(fk.ConfigError, match=r"mean_over_samples: .* is not a function"):
        fk.mean_over_samples(mark)


def test_a_budget_bounds_the_outputs_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation([0, 1, 2, 0], test=(RNG.normal(size=(50, 4)), RNG.integers(3, size=50)))

    def spread(output: Tensor, target: Tensor) -> Tensor:
        return output.std()

    monkeypatch.setattr(evaluation, "OUTPUT_BYTES", 50 * 3 * 8)
    assert train(fk.Task(linear(3), metrics={"spread": spread}), data)["spread"] > 0
    monkeypatch.setattr(evaluation, "OUTPUT_BYTES", 50 * 3 * 8 - 1)
    told = r"the metric 'spread' is computed from the outputs of all 50 samples.*fk.mean_over_samples.*update"
    with pytest.raises(fk.ConfigError, match=told):
        train(fk.Task(linear(3), metrics={"spread": spread}), data)
    with pytest.raises(fk.ConfigError, match=r"the loss is computed from the outputs of all 50 samples"):
        train(fk.Task(linear(3), partial(functional.cross_entropy, reduction="sum")), data)
    train(fk.Task(linear(3), metrics={"spread": fk.mean_over_samples(spread), "largest": Largest()}), data)


def test_a_metric_for_which_two_samples_are_too_few_is_tried_on_all() -> None:
    def fussy(output: Tensor, target: Tensor) -> float:
        if len(target.unique()) < 3:
            raise KeyError("one class only")
        return 0.25

    data = federation([0, 0, 1, 2])
    assert train(fk.Task(linear(3), metrics={"fussy": fussy}), data)["fussy"] == 0.25
    with pytest.raises(fk.DataError, match=r"the metric 'fussy' does not take outputs .*one class only"):
        train(fk.Task(linear(3), metrics={"fussy": fussy}), federation([0, 0, 1, 1]))


def test_a_regression_has_its_own_defaults() -> None:
    x, test = RNG.normal(size=(40, 4)), RNG.normal(size=(1500, 4))
    slope = np.array([[1.0], [-2.0], [0.5], [0.0]])
    data = federation(x @ slope, x, test=(test, test @ slope))
    work = fk.Work(steps=200, lr=0.1)
    row = train(fk.Task.regression(linear(1)), data, rounds=3, work=work)
    assert row["loss"] == row["mse"] == pytest.approx(0, abs=1e-6)
    assert row["mae"] == pytest.approx(0, abs=1e-3)
    assert row["r2"] == pytest.approx(1, abs=1e-6)
    assert row["accuracy"] is None


def test_r2_is_the_mean_over_outputs_and_nothing_where_targets_are_constant() -> None:
    from sklearn.metrics import r2_score

    y, found = RNG.normal(size=(30, 2)), RNG.normal(size=(30, 2))
    value = fk.metrics.r2(torch.from_numpy(found), torch.from_numpy(y))
    assert float(value) == pytest.approx(r2_score(y, found))
    assert fk.metrics.r2(torch.zeros(3), torch.ones(3)).isnan()


@pytest.mark.parametrize("name", reserved_names())
def test_a_metric_may_not_have_the_name_of_a_column(name: str) -> None:
    told = rf"a metric may not be called '{name}': a run or a probe writes that column; .*taken: round, stage"
    with pytest.raises(fk.ConfigError, match=told):
        fk.Task(linear(3), metrics={name: fk.accuracy})


def test_these_are_all_columns() -> None:
    """Of a run with every probe; names with a slash are of probes and of further models.

    Faults, attacks and private updates have columns of their own.
    """
    problem = tiny_net([3, 8, 5])
    probes = [make() for make in fk.probes.PROBES if make is not fk.probes.Switching]
    row = fk.train(
        problem.task, problem.federation, fk.FedDyn(), rounds=1, cohort=3, work=WORK, probes=probes
    )
    names = {name for name in row.history[0] if "/" not in name} - {"accuracy"}
    assert names == set(reserved_names()) - {*EVENT_COLUMNS, "hostile", ATTACK_SUCCESS, "epsilon"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": {"loss/gamma": fk.accuracy}}, r"'loss/gamma': .*'/' in their names; .*'loss_gamma'"),
        ({"metrics": {3: fk.accuracy}}, r"a metric is called 3"),
        ({"metrics": [fk.accuracy]}, r"give them by name, as in \{'accuracy': fk.accuracy\}"),
        ({"metrics": {"largest": Largest}}, r"'largest' is the class Largest: make one, as in Largest\(\)"),
        (
            {"metrics": {"best": 3}},
            r"the metric 'best' is 3: give a function of \(output, target\), or an obj",
        ),
        ({"loss": nn.MSELoss}, r"loss is the class MSELoss: make one, as in MSELoss\(\)"),
        ({"loss": Largest()}, r"loss is a Largest, which accumulates: it is a metric"),
        ({"loss": "mse"}, r"loss = 'mse': give a function"),
    ],
)
def test_what_no_loss_or_metric_is(options: Any, message: str) -> None:
    with pytest.raises(fk.ConfigError, match=message):
        fk.Task(linear(3), **options)


@pytest.mark.parametrize("name", ["norm", "mine"])
def test_a_probe_may_not_take_the_column_of_the_run_or_of_a_metric(name: str) -> None:
    class Own(fk.probes.Probe):
        every = 1

        def names(self, layout: Any) -> tuple[str, ...]:
            return (name,)

        def report(self, state: Any, seen: Any) -> Any:
            return {name: 0.0}, state

    assert "norm" in RUN_COLUMNS
    with pytest.raises(fk.ConfigError, match=rf"reports '{name}', which is a column of (the run|a metric)"):
        train(fk.Task(linear(3), metrics={"mine": fk.accuracy}), federation([0, 1, 2, 0]), probes=[Own()])
