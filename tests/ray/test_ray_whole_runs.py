"""What a run may ask for beside its method is on Ray what it is in serial, to the bit."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import flat
import pytest
import torch
from engine_runs import ROBUST, WORK, clients, net
from problems import tiny_net
from torch import Tensor

import fedkeel as fk
from fedkeel.engines.jobs import job
from fedkeel.engines.ray import dispatch
from fedkeel.running.run_reading import TIMINGS
from fedkeel.tensors.records import leaves

pytest.importorskip("ray", reason='needs Ray: pip install "fedkeel[ray]", or `make ray`')

PROBLEM = tiny_net([5, 12, 9, 1, 7, 3, 8, 4, 11, 6])


def train(engine: str, address: str | None, method: Any, **options: Any) -> fk.Result:
    federation = options.pop("federation", PROBLEM.federation)
    task = options.pop("task", PROBLEM.task)
    settings = {"rounds": 2, "cohort": 10, "work": WORK, "threads": 1, **options}
    return flat.train(task, federation, method, engine=engine, address=address, **settings)


def same(nodes: Any, method: Any, **options: Any) -> fk.Result:
    """Train in serial and on the nodes; all that is left is the same to the bit. Return the second."""
    serial = train("serial", None, method, **options)
    found = train("ray", nodes.address, method, **options)
    assert list(found.client_states) == list(serial.client_states)
    for ours, theirs in (
        (found.server, serial.server),
        *((found.client_states[client], serial.client_states[client]) for client in serial.client_states),
    ):
        for (name, left), (_, right) in zip(leaves(ours), leaves(theirs), strict=True):
            assert torch.equal(left, right), name
    rows = [
        [{name: value for name, value in row.items() if name not in TIMINGS} for row in one.history]
        for one in (found, serial)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == options.get("rounds", 2)
    return found


@pytest.fixture(params=[None, 0], ids=["summed here", "summed on the nodes"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where single clients' uploads are summed up."""
    if request.param is not None:
        monkeypatch.setattr(dispatch, "_LARGE", request.param)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("case", ROBUST, ids=lambda case: str(next(iter(case.values()))))
def test_robust_reducers_and_attacks_equal_serial(nodes: Any, case: dict[str, Any]) -> None:
    same(nodes, fk.SCAFFOLD(), **case)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("method", [fk.SCAFFOLD(), fk.relaxed(fk.FedNova(), 0.1)], ids=repr)
def test_private_updates_equal_serial(nodes: Any, method: Any) -> None:
    work = fk.Work(steps=3, batch_size=4, lr=0.1)
    found = same(nodes, fk.private(method, clip=0.05, noise=0.8, delta=1e-3), work=work)
    assert found.history[-1]["epsilon"] > 0


def test_a_rule_that_ends_a_stage_is_asked_here_and_clients_begin_anew(nodes: Any) -> None:
    asked = []

    def second_round(history: Sequence[Any]) -> bool:
        asked.append(len(history))  # a list of this process: nodes never ask
        return len(history) == 2

    method = fk.stages((fk.FedDyn(), second_round), (fk.SCAFFOLD(), 3), fk.relaxed(fk.SCAFFOLD(), 0.1))
    found = same(nodes, method, rounds=4, cohort=6)
    assert asked
    assert [row["stage"] for row in found.history] == [0, 0, 1, 2]


@pytest.mark.usefixtures("where")
def test_simulated_faults_leave_out_the_same_clients(nodes: Any) -> None:
    faults = fk.Faults(drop=0.2, straggle=0.1, crash=0.1, corrupt=0.2, seed=3)
    leave = {"on_client_error": "skip", "min_clients": 2, "max_upload_norm": 100.0}
    found = same(nodes, fk.SCAFFOLD(), faults=faults, rounds=3, **leave)
    reasons = {one["reason"] for row in found.history for one in row.get("skipped", ())}
    assert len(reasons) >= 3


def test_a_client_without_time_is_the_same_failure_as_in_serial(nodes: Any) -> None:
    told = []
    for engine, address in (("serial", None), ("ray", nodes.address)):
        with pytest.raises(fk.TooFewClients, match=r"took longer than client_seconds = 1e-09") as caught:
            train(engine, address, fk.FedAvg(), client_seconds=1e-9, on_client_error="skip")
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_a_client_that_never_ends_is_left_out_in_the_first_round_too(nodes: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(job, "OVERTIME_SECONDS", 0.5)

    def endless(x: Tensor, generator: torch.Generator) -> Tensor:
        if len(x) == 12:
            threading.Event().wait()
        return x

    federation = fk.Federation.from_arrays(clients(5), augment=endless)
    options = {"task": fk.Task(net()), "federation": federation, "cohort": 5, "rounds": 1}
    options |= {"work": fk.Work(epochs=1, batch_size=12), "client_seconds": 0.5}
    with pytest.warns(UserWarning, match="took longer than client_seconds = 0.5"):
        found = train("ray", nodes.address, fk.FedAvg(), on_client_error="skip", **options)
    reason = "its worker processes died again and again (took longer than client_seconds = 0.5)"
    assert found.history[0]["skipped"] == [{"client": 4, "reason": reason}]


def test_validation_data_and_the_best_model_equal_serial(nodes: Any) -> None:
    options = {"federation": PROBLEM.federation.with_validation(0.3, seed=1), "rounds": 4, "cohort": 4}
    options |= {"callbacks": fk.KeepBest("validation_loss")}
    best, expected = (
        same(nodes, fk.SCAFFOLD(), **options).best,
        train("serial", None, fk.SCAFFOLD(), **options).best,
    )
    assert best is not None
    assert expected is not None
    assert best.describe() == expected.describe()
    assert best.selected_on == "validation"
    for ours, theirs in zip(best.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_clients_that_are_loaded_when_needed_are_loaded_on_the_nodes(nodes: Any, tmp_path: Any) -> None:
    torch.save(clients(9), tmp_path / "clients.pt")

    def load(client: int) -> tuple[Tensor, Tensor]:
        (tmp_path / f"loaded-{client}-by-{os.getpid()}").touch()
        x, y = torch.load(tmp_path / "clients.pt")[client]
        return x, y

    sizes = [len(x) for x, _ in clients(9)]
    federation = fk.Federation.from_clients(9, load, sizes=sizes, classes=3)
    same(nodes, fk.FedDyn(), federation=federation, task=fk.Task(net()), cohort=9)
    loaders = {path.name.rpartition("-")[2] for path in tmp_path.glob("loaded-*")}
    assert loaders - {str(os.getpid())}


def test_all_memories_are_kept_where_that_is_asked(nodes: Any) -> None:
    found = same(nodes, fk.SCAFFOLD(), keep_client_states=True, cohort=3, rounds=3)
    assert len(found.client_states) > 3


def test_a_model_that_diverges_goes_back_as_in_serial(nodes: Any) -> None:
    work = fk.Work(steps=4, batch_size=4, lr=1e200)
    found = same(
        nodes, fk.FedAvg(), work=work, rounds=3, on_divergence="rollback", rollback_factor=1e-100, cohort=4
    )
    assert found.history[0]["rolled_back"]
