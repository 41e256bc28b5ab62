"""What a run promises, whatever the method."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import Problem, play, settings_of, tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.running.population import Population
from fedkeel.running.run_directory import read_rows, read_timings

SIZES = [3, 8, 5, 11, 4, 7]
WORK = fk.Work(epochs=1, batch_size=3, lr=0.1)


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


def train(algorithm: Any = None, **options: Any) -> fk.Result:
    problem = tiny_net(SIZES)
    given = {"rounds": 4, "cohort": 3, "work": WORK} | options
    return flat.train(problem.task, problem.federation, algorithm or fk.SCAFFOLD(), **given)


def test_a_row_tells_what_the_round_was() -> None:
    result = train()
    assert [row["round"] for row in result.history] == [0, 1, 2, 3]
    for row in result.history:
        assert {"round", "cohort", "loss", "accuracy", "seconds", "bytes_down", "bytes_up"} <= set(row)
        assert len(row["cohort"]) == len(set(row["cohort"])) == 3
        assert all(type(client) is int and 0 <= client < 6 for client in row["cohort"])
        d = sum(p.numel() for p in result.model.parameters())
        assert row["bytes_down"] == row["bytes_up"] == 3 * 2 * d * 8


def test_the_result_is_the_servers_model() -> None:
    result = train()
    assert torch.equal(nn.utils.parameters_to_vector(result.model.parameters()), result.server.x)
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}
    frame = result.to_pandas()
    assert list(frame["round"]) == [0, 1, 2, 3]


def test_evaluation_is_of_the_trained_model_on_the_test_set() -> None:
    problem = tiny_net(SIZES)
    result = train()
    x, y = (torch.as_tensor(part) for part in problem.clients[0])
    with torch.no_grad():
        output = result.model(x)
    assert result.history[-1]["loss"] == pytest.approx(float(nn.functional.cross_entropy(output, y)))
    assert result.history[-1]["accuracy"] == pytest.approx(float((output.argmax(1) == y).double().mean()))


def test_models_are_evaluated_on_all_clients_data_where_that_is_asked_for() -> None:
    problem = tiny_net(SIZES)
    federation = fk.Federation.from_arrays(problem.clients)
    options: dict[str, Any] = {"rounds": 1, "cohort": 2, "work": WORK, "evaluate_on": "clients"}
    result = flat.train(problem.task, federation, fk.FedAvg(), **options)
    x, y = (torch.as_tensor(np.concatenate(parts)) for parts in zip(*problem.clients, strict=True))
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(result.model(x), y))
    assert result.history[0]["loss"] == pytest.approx(loss)


def test_the_result_depends_on_the_seed_alone(tmp_path: Path) -> None:
    """Not on evaluation, logging, the global random state, or what ran before."""
    plain = train()
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    seen: list[Any] = []
    varied = train(eval_every=3, run_dir=tmp_path / "run", callbacks=seen.append, checkpoint_every=1)
    assert torch.equal(plain.server.x, varied.server.x)
    assert torch.equal(plain.server.c, varied.server.c)
    assert [row["cohort"] for row in seen] == [row["cohort"] for row in plain.history]
    assert not torch.equal(plain.server.x, train(seed=1).server.x)


def test_dropout_is_keyed_too() -> None:
    problem = tiny_net(SIZES)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)).double()
    results = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        results.append(
            fk.train(fk.Task(model), problem.federation, fk.FedSAM(), rounds=3, cohort=3, work=WORK)
        )
    assert torch.equal(results[0].server.x, results[1].server.x)


def test_batch_statistics_travel_beside_the_method() -> None:
    """Float buffers are averaged over the cohort, counted in the bytes, and used when models are judged."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(6, 3)) + i, rng.integers(0, 2, 6)) for i in range(3)]
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()
    federation = fk.Federation.from_arrays(clients, test=clients[0])
    work = fk.Work(steps=1, lr=0.1)
    result = fk.train(fk.Task(model), federation, fk.FedAvg(), rounds=1, cohort=3, work=work)
    with torch.no_grad():
        hidden = [model[0](torch.as_tensor(x)) for x, _ in clients]
    mean = torch.stack([0.1 * h.mean(0) for h in hidden]).mean(0)
    variance = torch.stack([0.9 + 0.1 * h.var(0) for h in hidden]).mean(0)
    torch.testing.assert_close(result.model[1].running_mean, mean)
    torch.testing.assert_close(result.model[1].running_var, variance)
    d = sum(p.numel() for p in model.parameters())
    assert result.history[0]["bytes_up"] == 3 * (d + 8) * 8
    assert torch.equal(model[1].running_mean, torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize("algorithm", [fk.FedAvg(), fk.FedSAM()], ids=repr)
def test_counters_of_batches_start_anew_with_every_client(algorithm: Any) -> None:
    """BatchNorm(momentum=None) averages over its batches: the count must not leak to the next client."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(6, 3)) + i, rng.integers(0, 2, 6)) for i in range(3)]
    model = nn.Sequential(nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2)).double()
    federation = fk.Federation.from_arrays(clients)
    work = fk.Work(steps=2, lr=0.1)
    result = fk.train(fk.Task(model), federation, algorithm, rounds=1, cohort=3, work=work)
    means = torch.stack([torch.as_tensor(x).mean(0) for x, _ in clients]).mean(0)
    torch.testing.assert_close(result.model[0].running_mean, means)


def test_stages_carry_memories_only_where_they_are_alike() -> None:
    changes = fk.stages((fk.relaxed(fk.FedAvg(), 0.1), 2), fk.relaxed(fk.FedAvg(), fk.Adaptive()))
    assert not changes.carries(0)
    train(changes, rounds=4)
    assert fk.stages((fk.FedDyn(), 2), fk.FedDyn(compensate=False)).carries(0)
    assert not fk.stages((fk.relaxed(fk.FedDyn()), 2), fk.relaxed(fk.SCAFFOLD())).carries(0)


def test_convolutions_do_not_depend_on_how_a_model_reshapes() -> None:
    """A model that flattens with view() cannot run channels-last; it falls back, to the same numbers."""

    class Views(nn.Module):
        def __init__(self, how: Any) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head, self.how = nn.Conv2d(2, 3, 3), nn.Linear(3 * 4 * 4, 2), how

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.how(self.conv(x).relu()))

    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(5, 2, 6, 6)), rng.integers(0, 2, 5)) for _ in range(3)]
    federation = fk.Federation.from_arrays(clients)
    results = [
        fk.train(fk.Task(Views(how).double()), federation, fk.FedAvg(), rounds=2, cohort=2, work=WORK)
        for how in (lambda h: h.view(h.shape[0], -1), lambda h: h.flatten(1))
    ]
    torch.testing.assert_close(results[0].server.x, results[1].server.x, rtol=1e-12, atol=1e-12)


def test_frozen_and_tied_parameters() -> None:
    problem = tiny_net(SIZES)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 4)).double()
    model[2].weight = model[0].weight
    model[3].bias.requires_grad_(False)
    result = fk.train(fk.Task(model), problem.federation, fk.FedAvg(), rounds=2, cohort=3, work=WORK)
    assert len(result.server.x) == 9 + 3 + 3 + 12
    assert result.model[2].weight is result.model[0].weight
    assert torch.equal(result.model[3].bias, model[3].bias)


@pytest.mark.parametrize("cohort", [3, 0.5])
def test_a_cohort_is_a_count_or_a_fraction(cohort: Any) -> None:
    assert {len(row["cohort"]) for row in train(cohort=cohort).history} == {3}


def bernoulli(problem: Problem, cohort: int) -> Population:
    options: dict[str, Any] = {"rounds": 1, "cohort": cohort, "work": WORK, "sampling": "bernoulli"}
    return Population.of(settings_of(problem.task, problem.federation, fk.FedAvg(), **options))


@pytest.mark.slow
def test_bernoulli_cohorts_are_never_empty() -> None:
    problem = tiny_net(SIZES)
    drawn = bernoulli(problem, cohort=1)
    history = train(fk.FedAvg(), sampling="bernoulli", cohort=1, rounds=60).history
    assert [row["cohort"] for row in history] == [drawn.draw(round) for round in range(60)]
    sizes = [len(drawn.draw(round)) for round in range(4000)]
    assert min(sizes) == 1
    p = 1 / 6  # a size is binomial, given that it is not 0
    mean = 6 * p / (1 - (1 - p) ** 6)
    second = (6 * p * (1 - p) + (6 * p) ** 2) / (1 - (1 - p) ** 6)
    assert np.mean(sizes) == pytest.approx(mean, abs=3 * np.sqrt((second - mean**2) / len(sizes)))


def test_bernoulli_cohorts_are_right_on_average() -> None:
    clients, size, rounds = 50, 10, 4000
    drawn = bernoulli(tiny_net([1] * clients), cohort=size)
    cohorts = [drawn.draw(round) for round in range(rounds)]
    sizes, p = np.array([len(cohort) for cohort in cohorts]), size / clients
    variance = clients * p * (1 - p)
    assert sizes.mean() == pytest.approx(size, abs=3 * np.sqrt(variance / rounds))
    assert sizes.var() == pytest.approx(variance, abs=3 * variance * np.sqrt(2 / rounds))
    drawn_in = np.bincount(np.concatenate(cohorts), minlength=clients) / rounds
    assert np.abs(drawn_in - p).max() < 4 * np.sqrt(p * (1 - p) / rounds)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (fk.Drop(at=2, factor=0.5), [1, 1, 0.5, 0.5]),
        (fk.Drop(at=0.75), [1, 1, 1, 0.1]),
        (fk.Drop(at=1), [1, 0.1, 0.1, 0.1]),
        (fk.Drop(at=1.0), [1] * 4),
        (fk.InverseTime(), [1, 1 / 2, 1 / 3, 1 / 4]),
        (fk.InverseRoot(), [0.5] * 4),
        (None, [1.0] * 4),
    ],
)
def test_schedules(schedule: Any, factors: list[float]) -> None:
    work = fk.Work(steps=1, lr=0.1, lr_decay=0.9, schedule=schedule)
    rates = [row["lr"] for row in train(work=work).history]
    assert rates == pytest.approx([0.1 * 0.9**r * factor for r, factor in enumerate(factors)])


def test_a_run_whose_rate_drops_at_a_fraction_of_its_rounds_cannot_be_made_longer(tmp_path: Path) -> None:
    work = fk.Work(steps=1, lr=0.1, schedule=fk.Drop(at=0.5))
    train(work=work, rounds=2, run_dir=tmp_path / "run")
    with pytest.raises(fk.StorageError, match="its rounds is 2, not 4"):
        train(work=work, rounds=4, run_dir=tmp_path / "run", resume=True)


def test_a_client_does_not_see_who_else_was_drawn() -> None:
    """A client's walk does not depend on who else was drawn: it is keyed by (seed, round, client)."""
    few = play(tiny_net(SIZES), fk.FedInit(0.0), rounds=1, cohort=2, work=WORK)
    many = play(tiny_net(SIZES), fk.FedInit(0.0), rounds=1, cohort=6, work=WORK)
    for client, memory in few[0].memories.items():
        assert torch.equal(memory.last, many[0].memories[client].last)


def test_relaxed_warns_where_the_model_may_grow_without_bound() -> None:
    with pytest.warns(UserWarning, match=r"beta·C/N = 0.4·6 > 1"):
        train(fk.FedInit(0.4), cohort=1)


def test_stages_switch_by_rule_and_the_rows_say_when() -> None:
    result = train(fk.stages((fk.FedDyn(), lambda rows: len(rows) >= 3), fk.FedAvg()), rounds=5)
    assert [row["stage"] for row in result.history] == [0, 0, 0, 1, 1]


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    train(rounds=2, run_dir=tmp_path, keep_client_states=True)
    longer = train(rounds=5, run_dir=tmp_path, resume=True)
    whole = train(rounds=5)
    assert torch.equal(longer.server.x, whole.server.x)
    assert timeless(longer.history) == timeless(whole.history) == timeless(read_rows(tmp_path))


def test_resume_starts_where_nothing_is_held(tmp_path: Path) -> None:
    assert torch.equal(train(run_dir=tmp_path / "new", resume=True).server.x, train().server.x)


def test_median_resists_one_wild_upload() -> None:
    """A reducer may ask for each upload: the contract leaves room for robust ones."""
    ups = [torch.tensor([1.0, 2.0]), torch.tensor([1.1, 2.2]), torch.tensor([1e9, -1e9])]
    first, second, third = (fk.FedAvg.Up(up) for up in ups)
    median = fk.Median()
    parts = median.add(median.add(None, 1.0, first), 1.0, second), median.add(None, 1.0, third)
    merged = median.merge(parts)
    torch.testing.assert_close(merged.delta, torch.tensor([1.1, 2.0]))
    train(reducer=fk.Median())


def test_clients_may_be_torch_datasets() -> None:
    problem = tiny_net(SIZES)
    datasets = [torch.utils.data.TensorDataset(*map(torch.as_tensor, pair)) for pair in problem.clients]
    for federation in (
        fk.Federation.from_datasets(datasets, test=datasets[0]),
        fk.Federation.from_arrays(datasets, test=datasets[0]),
    ):
        result = fk.train(problem.task, federation, fk.SCAFFOLD(), rounds=4, cohort=3, work=WORK)
        assert torch.equal(result.server.x, train().server.x)


def test_float_precisions_may_differ_between_clients() -> None:
    clients = [
        (np.ones((4, 3), np.float32), [0, 1, 2, 3]),
        (torch.ones(4, 3, dtype=torch.float64), [0, 1, 2, 3]),
    ]
    federation = fk.Federation.from_arrays(clients, test=(np.ones((2, 3), np.float32), [0, 1]))
    result = fk.train(tiny_net(SIZES).task, federation, fk.FedAvg(), rounds=1, cohort=2, work=WORK)
    assert result.server.x.dtype == torch.float64


def test_what_watching_took_is_kept_beside_the_timings(tmp_path: Path) -> None:
    train(rounds=2, run_dir=tmp_path, keep_client_states=True)
    train(rounds=4, run_dir=tmp_path, resume=True)
    for place, timing in enumerate(read_timings(tmp_path)):
        assert timing["round"] == place
        assert 0 < timing["evaluation"] + timing["probes"] < timing["seconds"]
