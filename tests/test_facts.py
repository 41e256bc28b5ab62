"""A method sees what is known of each client: its number of samples, and its weight among all clients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from problems import play, runner_of, settings_of, tiny_net

import fedkeel as fk
from fedkeel.engines.contract import RoundRequest

SIZES = [3, 8, 5, 11, 4]
WORK = fk.Work(epochs=1, batch_size=3, lr=0.05)


@fk.method
class Noting(fk.Algorithm):
    """FedAvg whose clients keep what `plan` and `finish` are told of them; a plan uses both facts."""

    class Client(NamedTuple):
        samples: fk.Vector
        weight: fk.Vector

    def init_client(self, x0: fk.Vector) -> Client:
        return self.Client(x0[:1], x0[:1])

    def plan(self, down: fk.Algorithm.Server, client: Client, facts: fk.Facts) -> fk.Plan:
        return fk.Plan(start=down.x, push=1e-3 * facts.samples * facts.weight * down.x)

    def finish(
        self, walk: fk.Walk, down: fk.Algorithm.Server, client: Client, facts: fk.Facts
    ) -> tuple[fk.Algorithm.Up, Client]:
        return self.Up(walk.end - down.x), self.Client(*facts)


def test_every_engine_tells_a_method_the_samples_and_the_weight_of_each_client() -> None:
    problem, models = tiny_net(SIZES), {}
    for engine in ("serial", "stacked-uncompiled", "processes"):
        after = play(problem, Noting(), rounds=2, cohort=4, work=WORK, engine=engine, threads=1)[-1]
        models[engine] = after.models["x"]
        assert len(after.memories) >= 4
        for client, (samples, weight) in after.memories.items():
            assert samples.tolist() == [SIZES[client]]
            assert weight.tolist() == [SIZES[client] / np.mean(SIZES)]
    assert np.array_equal(models["processes"], models["serial"])
    np.testing.assert_allclose(models["stacked-uncompiled"], models["serial"], rtol=1e-10)


def test_the_weight_is_exactly_one_where_all_clients_have_equally_many_samples() -> None:
    for dtype in (torch.float32, torch.float64):
        for count in (3, 7, 49):
            federation = tiny_net([count] * 3).federation
            facts = fk.Facts.of(federation.size(1), federation.mean_size, torch.zeros(5, dtype=dtype))
            assert torch.equal(facts.weight, torch.ones(1, dtype=dtype))


def test_a_stacked_cohort_has_a_row_of_facts_per_client() -> None:
    facts = fk.Facts.of([2, 6], 4.0, torch.zeros(2, 5))
    assert facts.samples.tolist() == [[2.0], [6.0]]
    assert facts.weight.tolist() == [[0.5], [1.5]]


def test_held_out_clients_and_held_out_samples_do_not_count() -> None:
    federation = tiny_net([20, 40, 60, 200]).federation.hold_out(1).with_validation(0.5)
    assert [federation.size(client) for client in range(3)] == federation.sizes.tolist() == [10, 20, 30]
    assert federation.mean_size == 20.0


def test_facts_of_a_lazy_federation_load_no_client() -> None:
    loaded = []

    def load(client: int) -> tuple[np.ndarray, np.ndarray]:
        loaded.append(client)
        return np.zeros((1 + 2 * (client % 2), 3)), np.zeros(1 + 2 * (client % 2), dtype=int)

    federation = fk.Federation.from_clients(1000, load, sizes=[1, 3] * 500, classes=4)
    loaded.clear()
    settings = settings_of(tiny_net(SIZES).task, federation, fk.FedAvg(), rounds=1, cohort=2, work=WORK)
    request = RoundRequest(fk.FedAvg(), 0, 0.1, None, torch.zeros(0), [], [])
    facts = runner_of(settings).facts(request, [0, 999])
    assert facts.weight.tolist() == [[0.5], [1.5]]
    assert loaded == []


@pytest.mark.parametrize(
    ("name", "function", "given", "wanted"),
    [
        ("plan", lambda self, down, client: None, "self, down, client", "self, down, client, facts"),
        (
            "finish",
            lambda self, walk, down, client: None,
            "self, walk, down, client",
            "self, walk, down, client, facts",
        ),
    ],
)
def test_a_method_written_without_facts_is_refused_where_its_class_is_made(
    name: str, function: Any, given: str, wanted: str
) -> None:
    told = rf"^Mine\.{name}\({given}\): fedkeel calls it with {name}\({wanted}\)"
    with pytest.raises(fk.ConfigError, match=told):
        type("Mine", (fk.Algorithm,), {name: function})


def test_a_method_may_gather_its_arguments() -> None:
    @fk.method
    class Mine(fk.FedProx):
        def plan(self, *given: Any) -> fk.Plan:
            return super().plan(*given)._replace(gain=0.5)

    play(tiny_net(SIZES), Mine(), rounds=1, cohort=2, work=WORK)
