"""Clients that fail: named where the run stops, and an empty slot where it goes on without them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import expect, play, session_of, tiny_net
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedkeel as fk
from fedkeel.core.algorithm import Cohort
from fedkeel.engines.client import ClientRunner
from fedkeel.running.clients import evaluate_clients
from fedkeel.running.round import memories_of, prepare
from fedkeel.running.session import Session
from fedkeel.tensors.records import leaves, transform

BROKEN = 777.0
WORK = fk.Work(epochs=2, batch_size=4, lr=0.05, last_batch="drop")
ALL_FAULTS = fk.Faults(drop=0.15, straggle=0.1, crash=0.1, corrupt=0.2, seed=3)
METHODS = [fk.FedAvg(), fk.SCAFFOLD(), fk.FedDyn(0.1)]


class Sensors(nn.Module):
    """A model that refuses the samples of a broken sensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and bool((x == BROKEN).any()):
            raise RuntimeError("sensor 7 is broken")
        return self.inner(x)


def federation(clients: int = 24, broken: tuple[int, ...] = (), value: float = BROKEN) -> fk.Federation:
    rng = torch.Generator().manual_seed(5)
    data = []
    for client in range(clients):
        n = 5 + client % 4
        x, y = torch.randn(n, 3, generator=rng), torch.arange(n) % 2
        if client in broken:
            x = x.clone()
            x[n // 2, 1] = value
        data.append((x, y))
    return fk.Federation.from_arrays(data, test=data[0])


def train(method: Any = None, engine: str = "serial", broken: tuple[int, ...] = (7,), **options: Any) -> Any:
    given = {"rounds": 3, "cohort": 19, "work": WORK, "engine": engine, "threads": 1}
    if engine == "processes":
        given |= {"workers": 2}
    task = fk.Task(Sensors, cross_entropy)
    method = fk.FedAvg() if method is None else method
    value = options.pop("value", BROKEN)
    return flat.train(task, federation(broken=broken, value=value), method, **(given | options))


def rows(result: Any) -> list[dict[str, Any]]:
    return [{name: x for name, x in row.items() if name != "seconds"} for row in result.history]


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_client_that_fails_is_named_with_its_round_and_its_cause(engine: str) -> None:
    told = r"round \d, client 7: RuntimeError: sensor 7 is broken; on_client_error='skip' goes on"
    with pytest.raises(fk.ClientFailed, match=told) as caught:
        train(engine=engine)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert str(caught.value.__cause__) == "sensor 7 is broken"
    assert caught.value.exit_code == 5
    assert caught.value.client == 7
    assert len(caught.value.result.history) == caught.value.round


def failing_batches(monkeypatch: pytest.MonkeyPatch, client: int) -> None:
    """Let the data of a client fail wherever it is read in this process."""
    batches = fk.Federation.batches

    def fail(self: Any, number: int, *rest: Any) -> Any:
        if number == client:
            raise OSError("the disk of this client is gone")
        return batches(self, number, *rest)

    monkeypatch.setattr(fk.Federation, "batches", fail)


def shifted(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.1 * torch.randn(x.shape, generator=generator)


@pytest.mark.parametrize("engine", ["serial", "stacked-uncompiled"])
def test_data_that_cannot_be_read_is_the_clients_failure(engine: str, monkeypatch: Any) -> None:
    failing_batches(monkeypatch, 2)
    data = [(torch.ones(4, 3), torch.arange(4) % 2)] * 4
    augmented = fk.Federation.from_arrays(data, augment=shifted)
    options: dict[str, Any] = {"rounds": 2, "cohort": 4, "work": WORK, "engine": engine}
    task = fk.Task(lambda: nn.Linear(3, 2))
    with pytest.raises(fk.ClientFailed, match="round 0, client 2: OSError: the disk of this client is gone"):
        flat.train(task, augmented, fk.FedAvg(), **options)
    result = flat.train(task, augmented, fk.FedAvg(), on_client_error="skip", **options)
    failure = {"client": 2, "reason": "OSError: the disk of this client is gone"}
    assert [row["skipped"] for row in result.history] == [[failure], [failure]]


def by_hand(session: Session, absent: set[int], weights: list[float]) -> tuple[Any, dict[int, Any]]:
    """Reduce a round in plain torch with some slots empty; return the server and the new memories."""
    context, state = session.context, session.state
    request = prepare(context, state)
    memories, kept = memories_of(context, state, session.store, request), {}
    total, weight = None, 0.0
    for start in range(0, len(request.clients), 8):
        chunk, chunk_weight = None, 0.0
        for client, memory in list(zip(request.clients, memories, strict=True))[start : start + 8]:
            if client in absent:
                continue
            result = ClientRunner(context.settings, context.oracle).run(request, client, memory)
            kept[client], w = result.memory.method, weights[client]
            chunk_weight += w
            if chunk is None:
                chunk = transform(lambda u, w=w: u * w, result.upload)
            else:
                chunk = transform(lambda a, u, w=w: a.add(u, alpha=w), chunk, result.upload)
        if chunk is not None:
            total = chunk if total is None else transform(lambda a, b: a + b, total, chunk)
            weight += chunk_weight
    mean = transform(lambda t: t / weight, total)
    accepted = [client for client in request.clients if client not in absent]
    share = sum(weights[client] for client in accepted) / sum(weights)
    cohort = Cohort(state.round, context.settings.rounds, len(accepted), share, None)  # type: ignore[arg-type]
    return request.algorithm.aggregate(state.server, mean.up, cohort), kept


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_a_left_out_client_is_an_empty_slot_to_the_bit(method: Any, weighting: Any) -> None:
    absent = {7, 11}
    data = federation(broken=tuple(absent))
    weights = [1.0] * len(data) if weighting == "uniform" else data.sizes.double().tolist()
    session = session_of(
        fk.Task(Sensors, cross_entropy),
        data,
        method,
        rounds=3,
        cohort=19,
        work=WORK,
        weighting=weighting,
        on_client_error="skip",
        engine="serial",
        threads=1,
    )
    with closing(session):
        rounds = session.rounds()
        while not session.finished:
            server, memories = by_hand(session, absent, weights)
            row = next(rounds)
            assert sorted(one["client"] for one in row.get("skipped", [])) == sorted(
                absent & set(row["cohort"])
            )
            for (name, mine), (_, found) in zip(leaves(server), leaves(session.state.server), strict=True):
                assert torch.equal(mine, found), name
            for client, memory in memories.items():
                kept = session.store[client].method if client in session.store else None
                for (name, mine), (_, found) in zip(leaves(memory), leaves(kept), strict=True):
                    assert torch.equal(mine, found), name
        assert not absent & set(session.store)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_every_engine_leaves_out_the_same_clients_with_the_same_result(method: Any) -> None:
    options: dict[str, Any] = {"on_client_error": "skip", "faults": ALL_FAULTS, "rounds": 4}
    options |= {"weighting": "samples", "max_upload_norm": 1e3, "probes": [fk.probes.Divergence()]}
    serial, processes = (train(method, engine, (7,), **options) for engine in ("serial", "processes"))
    assert rows(serial) == rows(processes)
    for (name, one), (_, other) in zip(leaves(serial.server), leaves(processes.server), strict=True):
        assert torch.equal(one, other), name
    reasons = {one["reason"] for row in serial.history for one in row["skipped"]}
    assert {"dropped out (simulated)", "took too long (simulated)"} < reasons
    assert any("RuntimeError: sensor 7" in reason for reason in reasons)
    assert any("it sent NaN or infinite values" in reason for reason in reasons)
    assert any("it sent shape" in reason for reason in reasons)
    assert "crashed in the middle of its work (simulated)" in reasons


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_the_stacked_engine_leaves_out_the_same_clients(method: Any) -> None:
    problem = tiny_net([5, 8, 6, 7, 4, 9, 5, 5, 6, 8])
    options: dict[str, Any] = {"rounds": 4, "cohort": 9, "work": WORK, "faults": ALL_FAULTS}
    options |= {"on_client_error": "skip"}
    serial, stacked = (
        play(problem, method, engine=engine, **options) for engine in ("serial", "stacked-uncompiled")
    )
    for one, other in zip(serial, stacked, strict=True):
        assert one.row.get("skipped") == other.row.get("skipped")
        assert one.memories.keys() == other.memories.keys()
        np.testing.assert_allclose(one.models["x"], other.models["x"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["FedAvg", "SCAFFOLD", "FedDyn"])
def test_the_reference_agrees_with_a_round_without_those_clients(name: str) -> None:
    problem = tiny_net([3, 8, 5, 11, 4])
    method: Any = {"FedAvg": fk.FedAvg(), "SCAFFOLD": fk.SCAFFOLD(), "FedDyn": fk.FedDyn(0.1)}[name]
    knobs = {"alpha": 0.1} if name == "FedDyn" else {}
    faults = fk.Faults(drop=0.3, crash=0.1, seed=1)
    options: dict[str, Any] = {"rounds": 5, "cohort": 4, "work": WORK}
    found = play(problem, method, faults=faults, on_client_error="skip", **options)
    expected = expect(
        problem, name, absent=lambda r, client: faults.of(r, client) is not None, **options, **knobs
    )
    assert any("skipped" in one.row for one in found)
    for mine, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.models["x"], reference["x"], rtol=1e-10, atol=1e-10)


def test_a_row_counts_accepted_clients_and_says_who_was_left_out() -> None:
    whole, without = train(broken=()), train(on_client_error="skip")
    for one, other in zip(rows(whole), rows(without), strict=True):
        assert one["cohort"] == other["cohort"]
        assert one["bytes_down"] == other["bytes_down"]
        if 7 in one["cohort"]:
            assert other["skipped"] == [{"client": 7, "reason": "RuntimeError: sensor 7 is broken"}]
            assert other["bytes_up"] == one["bytes_up"] // 19 * 18
            assert other["gradients"] < one["gradients"]
        else:
            assert "skipped" not in other
        assert "skipped" not in one
    assert any("skipped" in row for row in without.history)
    table = evaluate_clients(federation(), without.history, lambda data: {"loss": 0.0, "accuracy": 0.0})
    assert table.rows[7]["visits"] == 0


def test_too_few_clients_end_the_run_and_say_who_failed(tmp_path: Any) -> None:
    with pytest.raises(fk.TooFewClients) as caught:
        train(
            on_client_error="skip",
            min_clients=1.0,
            run_dir=tmp_path / "run",
            checkpoint_every=99,
            cohort=12,
            rounds=9,
        )
    told = str(caught.value)
    assert "11 of 12 clients answered, and min_clients = 1.0 asks for 12 (client 7: RuntimeError" in told
    done = len(caught.value.result.history)
    assert caught.value.exit_code == 5
    assert done == 0 or (tmp_path / "run" / "checkpoints" / f"round-{done:08d}").exists()


def test_a_run_whose_clients_all_diverge_has_diverged() -> None:
    with pytest.raises(fk.Diverged, match=r"round 0, client \d+: the loss or the model turned NaN"):
        train(
            broken=(),
            on_client_error="skip",
            work=fk.Work(steps=3, batch_size=4, lr=1e30, last_batch="drop"),
        )


def test_one_client_that_diverges_is_left_out_with_its_layer() -> None:
    result = train(value=1e38, on_client_error="skip", rounds=2)
    reasons = [one for row in result.history for one in row.get("skipped", [])]
    assert {one["client"] for one in reasons} == {7}
    assert reasons[0]["reason"].startswith("its loss or model turned NaN or infinite, first in inner.")


def test_a_norm_beyond_the_bound_is_refused() -> None:
    with pytest.raises(
        fk.TooFewClients, match=r"the norm of what it sent is .*, and max_upload_norm = 1e-09"
    ):
        train(broken=(), on_client_error="skip", max_upload_norm=1e-9)
    with pytest.raises(fk.ClientFailed, match=r"round 0, client \d+: the norm of what it sent is"):
        train(broken=(), max_upload_norm=1e-9)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_client_beyond_its_deadline_has_failed(engine: str) -> None:
    with pytest.raises(
        fk.ClientFailed, match=r"round 0, client \d+: took longer than client_seconds = 1e-09"
    ):
        train(engine=engine, broken=(), client_seconds=1e-9)
    with pytest.raises(fk.TooFewClients, match=r"0 of 19 clients answered.*took longer than client_seconds"):
        train(engine=engine, broken=(), client_seconds=1e-9, on_client_error="skip")


def test_clients_side_by_side_have_no_deadline() -> None:
    with pytest.raises(fk.ConfigError, match=r"engine = 'stacked-uncompiled': clients walk side by side"):
        fk.train(
            fk.Task(lambda: nn.Linear(3, 2)),
            federation(),
            fk.FedAvg(),
            rounds=1,
            cohort=2,
            work=WORK,
            execution=fk.Execution("stacked-uncompiled"),
            failures=fk.Failures(client_seconds=5.0),
        )


def test_faults_are_a_matter_of_seed_round_and_client_alone() -> None:
    faults = fk.Faults(drop=0.2, straggle=0.1, crash=0.3, corrupt=0.1)
    drawn = [faults.of(round, client) for round in range(50) for client in range(40)]
    for name in ("drop", "straggle", "crash", "corrupt"):
        assert drawn.count(name) / len(drawn) == pytest.approx(getattr(faults, name), abs=0.03)
    assert drawn == [faults.of(round, client) for round in range(50) for client in range(40)]
    other = fk.Faults(drop=0.2, straggle=0.1, crash=0.3, corrupt=0.1, seed=1)
    assert drawn != [other.of(round, client) for round in range(50) for client in range(40)]


def test_faults_change_no_other_randomness() -> None:
    plain = train(broken=())
    none = train(broken=(), faults=fk.Faults(), on_client_error="skip")
    assert rows(plain) == rows(none)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"faults": fk.Faults(drop=0.1)}, "clients fail on purpose: .*on_client_error='skip'"),
        ({"min_clients": 3}, "on_client_error='stop' asks for all clients"),
        ({"min_clients": 20, "on_client_error": "skip"}, "a round has 19 clients, so give 1 to 19"),
        ({"min_clients": 0, "on_client_error": "skip"}, "so give 1 to 19"),
        ({"min_clients": 1.5, "on_client_error": "skip"}, "a fraction lies above 0 and at most at 1"),
        ({"client_seconds": 0.0}, "client_seconds = 0.0: input should be greater than 0"),
        ({"on_client_error": "leave"}, "on_client_error = 'leave': input should be 'stop' or 'skip'"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(fk.ConfigError, match=told):
        train(broken=(), **options)


def test_probabilities_of_faults_sum_to_at_most_one() -> None:
    with pytest.raises(fk.ConfigError, match=r"Faults: drop \+ straggle \+ crash \+ corrupt = 1.2"):
        fk.Faults(drop=0.6, crash=0.6)
