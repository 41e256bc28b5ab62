"""Real SuperLink, real SuperNodes, TLS and node authentication, on loopback: `make flower`.

Starting them takes half a minute and every message some seconds, so runs share one SuperLink and go side by
side, and these tests are no part of `make test`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors.torch import load_file

import fedkeel as fk
from fedkeel.errors import StorageError

if importlib.util.find_spec("flwr") is None:
    pytest.skip('Flower is not installed: pip install "fedkeel[flower]"', allow_module_level=True)
if not os.environ.get("FEDKEEL_FLOWER"):
    pytest.skip("minutes with real processes: `make flower` runs them", allow_module_level=True)

from fedkeel.flower.rehearsal.following import RunFailed, follow
from fedkeel.flower.rehearsal.keys import make_certificates, make_node_key
from fedkeel.flower.rehearsal.rehearsal import Rehearsal, read_processes, take_down
from fedkeel.flower.status import read_status
from fedkeel.running.run_directory import read_rows

TRIAL = Path(__file__).with_name("trial")
WORK = fk.Work(epochs=1, batch_size=10, lr=0.1)
METHODS = {
    "fedavg": fk.FedAvg(),
    "scaffold": fk.SCAFFOLD(),
    "feddyn(0.1)": fk.FedDyn(0.1),
    "fedinit(0.1)": fk.FedInit(0.1),
    "fedsagd": fk.FedSAGD(),
    "stages((feddyn(0.1), 1), fedavg)": fk.stages((fk.FedDyn(0.1), 1), fk.FedAvg()),
}
BAD = {"train 0 0": "nan", "train 1 1": "shape", "train 0 2": "extra", "train 1 3": "count"}
HELD = {"train 1 1": "hold"}


class Submitted(NamedTuple):
    """A run of a rehearsal."""

    run_id: str
    run_dir: Path


def simulated(method: Any, rounds: int = 2) -> fk.Result:
    sys.path.insert(0, str(TRIAL))
    try:
        from trial.app import drawn, network
    finally:
        sys.path.remove(str(TRIAL))
    clients = [drawn(client, 30 + 7 * client) for client in range(2)]
    federation = fk.Federation.from_arrays(clients, test=drawn(100, 60), classes=3)
    options = {"rounds": rounds, "cohort": 2, "seed": 3, "threads": 1, "engine": "serial"}
    return fk.train(fk.Task(network), federation, method, work=WORK, **options)


def assert_equals_simulation(run_dir: Path, method: Any, **options: int) -> None:
    expected = simulated(method, **options)
    timings = ("seconds",)
    told = [
        [{k: v for k, v in row.items() if k not in timings} for row in rows]
        for rows in (read_rows(run_dir), json.loads(json.dumps(expected.history)))
    ]
    assert told[0] == told[1]
    found = load_file(run_dir / "model.safetensors")
    for name, tensor in expected.model.state_dict().items():
        assert found[name].equal(tensor), name


def submit(
    rehearsal: Rehearsal, name: str, mischief: dict[str, str] | None = None, **settings: Any
) -> Submitted:
    run_dir = rehearsal.app / "runs" / name
    lines = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    lines.append(f"deploy.run_dir={json.dumps(str(run_dir))}")
    told = "; ".join(f"{when} {what}" for when, what in (mischief or {}).items())
    return Submitted(rehearsal.submit({"set": "\n".join(lines), "mischief": told}), run_dir)


def wait_until(condition: Any, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deployed") / "trial"
    shutil.copytree(TRIAL, path, ignore=shutil.ignore_patterns("__pycache__"))
    return path


@pytest.fixture(scope="module")
def rehearsal(app: Path) -> Iterator[Rehearsal]:
    with Rehearsal(app) as up:
        yield up
    assert not [one for one in read_processes(app) if one.alive]


@pytest.fixture(scope="module")
def runs(rehearsal: Rehearsal) -> dict[str, Submitted]:
    """All runs that need nothing but nodes, side by side."""
    found = {method: submit(rehearsal, f"equal-{n}", method=method) for n, method in enumerate(METHODS)}
    found["bad"] = submit(rehearsal, "bad", BAD, method="scaffold", rounds=4)
    found["version"] = submit(rehearsal, "version", {"query 1 None": "version"})
    found["held"] = submit(rehearsal, "held", HELD, method="scaffold")
    return found


@pytest.mark.parametrize("method", METHODS)
def test_a_real_deployment_equals_the_simulation_to_the_bit(
    rehearsal: Rehearsal, runs: dict[str, Submitted], method: str
) -> None:
    follow(rehearsal, *runs[method])
    assert_equals_simulation(runs[method].run_dir, METHODS[method])


def test_a_node_killed_mid_round_and_restarted_keeps_its_memory(
    rehearsal: Rehearsal, app: Path, runs: dict[str, Submitted]
) -> None:
    held = app / ".deploy/nodes/1/state.held"
    wait_until(held.exists)
    assert len(read_rows(runs["held"].run_dir)) == 1
    (node,) = [one for one in rehearsal.processes if one.name == "node1"]
    os.killpg(node.pid, signal.SIGKILL)
    kept = sorted(path.name for path in (app / ".deploy/nodes/1/state").rglob("*.safetensors"))
    assert "00000001.safetensors" in kept
    held.unlink()
    rehearsal.start_node(1)
    follow(rehearsal, *runs["held"])
    assert_equals_simulation(runs["held"].run_dir, fk.SCAFFOLD())


def test_nodes_that_send_nonsense_are_left_out_and_the_run_ends_well(
    rehearsal: Rehearsal, runs: dict[str, Submitted]
) -> None:
    follow(rehearsal, *runs["bad"])
    told = [row["left_out"] for row in read_rows(runs["bad"].run_dir)]
    assert [[one["client"] for one in left_out] for left_out in told] == [[0], [1], [0], [1]]
    reasons = [left_out[0]["reason"] for left_out in told]
    assert "NaN or infinite" in reasons[0]
    assert "has shape (1,), not" in reasons[1]
    assert "it sent gift, which nobody asked for" in reasons[2]
    assert "its samples is -30, not 37" in reasons[3]
    assert (runs["bad"].run_dir / "model.safetensors").exists()


def test_a_node_with_another_version_of_fedkeel_is_named(
    rehearsal: Rehearsal, runs: dict[str, Submitted]
) -> None:
    with pytest.raises(RunFailed, match=r"its node runs fedkeel 0\.0\.9, the server") as caught:
        follow(rehearsal, *runs["version"])
    assert caught.value.exit_code == 3


def test_a_node_that_is_not_registered_is_refused(rehearsal: Rehearsal, app: Path) -> None:
    stranger = make_node_key(app / ".deploy/keys", "stranger")
    node = rehearsal.start_process("stranger", rehearsal.node_command(2, key=stranger), app)
    wait_until(lambda: not node.alive or "error" in node.last_words().lower(), 120)
    found = json.loads(rehearsal.flwr("supernode", "list", "loop", "--format", "json"))
    assert len([one for one in found["nodes"] if one["status"] == "online"]) == rehearsal.nodes
    rehearsal.end_process("stranger")


def test_a_server_with_another_certificate_is_refused(
    rehearsal: Rehearsal, app: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path, ["127.0.0.1"])
    command = rehearsal.node_command(2, key=app / ".deploy/keys/node0", authority=tmp_path / "ca.crt")
    node = rehearsal.start_process("mistrustful", command, app)
    wait_until(lambda: "certificate" in Path(node.log).read_text().lower(), 120)
    rehearsal.end_process("mistrustful")


def test_what_is_up_is_not_started_twice(rehearsal: Rehearsal, app: Path) -> None:
    with pytest.raises(StorageError, match="is up already"), Rehearsal(app):
        pass
    assert all(one.alive for one in rehearsal.processes)


def test_a_server_killed_and_resumed_ends_in_the_same_model(rehearsal: Rehearsal, app: Path) -> None:
    _, run_dir = submit(rehearsal, "killed", method="scaffold", rounds=3)
    wait_until(lambda: len(read_rows(run_dir)) >= 1)
    os.killpg(rehearsal.processes[0].pid, signal.SIGKILL)
    rehearsal.stop()
    assert len(read_rows(run_dir)) < 3
    with Rehearsal(app) as again:
        follow(again, *submit(again, "killed", method="scaffold", rounds=3))
    assert_equals_simulation(run_dir, fk.SCAFFOLD(), rounds=3)
    status = read_status(run_dir)
    assert status is not None
    assert status.state == "finished"
    assert not [one for one in read_processes(app) if one.alive]


def test_a_killed_rehearsal_is_taken_down_by_another_process(app: Path) -> None:
    up = Rehearsal(app, nodes=1)
    up.__enter__()
    up._lock.close()  # as if this process had been killed
    with pytest.raises(StorageError, match="fedkeel deploy down"), Rehearsal(app):
        pass
    assert {one.name for one in take_down(app)} == {"superlink", "node0"}
    assert not [one for one in read_processes(app) if one.alive]
