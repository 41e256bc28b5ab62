"""Real SuperLink, real SuperNodes, TLS and node authentication, on loopback: `make flower`.

Every message is a new Python process that imports torch, so these tests are no part of `make test`. The runs
share one SuperLink and its nodes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flat
import pytest
from safetensors.torch import load_file

import fedkeel as fk
from fedkeel.common.errors import StorageError

if importlib.util.find_spec("flwr") is None:
    pytest.skip('Flower is not installed: pip install "fedkeel[flower]"', allow_module_level=True)
if not os.environ.get("FEDKEEL_FLOWER"):
    pytest.skip("minutes with real processes: `make flower` runs them", allow_module_level=True)

from fedkeel.flower.rehearsal import processes
from fedkeel.flower.rehearsal.following import RunFailed, follow, forget_status
from fedkeel.flower.rehearsal.keys import make_certificates, make_node_key
from fedkeel.flower.rehearsal.rehearsal import Rehearsal, find_command
from fedkeel.flower.status import read_status
from fedkeel.running.run_directory import read_rows

TRIAL = Path(__file__).with_name("trial")
WORK = fk.Work(epochs=1, batch_size=10, lr=0.1)
CLIENTS = 3
# Two rounds of each method, so that each goes on from what its clients remember; a start of any of Flower's
# processes takes seconds, so a run plays several.
SCHEDULES = {
    "stages((scaffold, 2), (feddyn(0.1), 4), fedavg)": fk.stages(
        (fk.SCAFFOLD(), 2), (fk.FedDyn(0.1), 4), fk.FedAvg()
    ),
    "stages((fedinit(0.1), 2), (fedsagd, 4), fedavg)": fk.stages(
        (fk.FedInit(0.1), 2), (fk.FedSAGD(), 4), fk.FedAvg()
    ),
}
BAD = "train 0 0 nan; train 1 0 shape; train 0 1 extra; train 1 1 count"
HELD = "train 1 1 hold"

# Flower starts a ServerApp anew that has not reported within 30 seconds. Many at once on two cores take
# longer, and those that are started anew make it worse.
SIDE_BY_SIDE = 2


class Wanted(NamedTuple):
    """A run: settings, and what its nodes do wrong on purpose (tests/flower/trial/trial/app.py)."""

    settings: dict[str, Any]
    mischief: str = ""


WANTED = {
    **{schedule: Wanted({"method": schedule, "rounds": 5}) for schedule in SCHEDULES},
    "bad": Wanted({"method": "scaffold", "cohort": CLIENTS, "min_clients": 1}, BAD),
    "version": Wanted({}, "query 1 None version"),
}


class Submitted(NamedTuple):
    """A run of a rehearsal."""

    run_id: str
    run_dir: Path


class Runs:
    """Runs that need nothing but nodes, side by side: one is followed, the next ones are under way."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal, self.submitted = rehearsal, dict[str, Submitted]()

    def follow(self, name: str) -> Path:
        """Wait for the end of a run; return its directory."""
        names = list(WANTED)
        first = names.index(name)
        for one in names[first : first + SIDE_BY_SIDE]:
            if one not in self.submitted:
                self.submitted[one] = submit(self.rehearsal, f"run-{names.index(one)}", WANTED[one])
        follow(self.rehearsal, *self.submitted[name])
        return self.submitted[name].run_dir


def submit(rehearsal: Rehearsal, name: str, wanted: Wanted) -> Submitted:
    run_dir = rehearsal.app / "runs" / name
    lines = [f"{key}={json.dumps(value)}" for key, value in wanted.settings.items()]
    lines.append(f"deploy.run_dir={json.dumps(str(run_dir))}")
    given = {"set": "\n".join(lines), "mischief": wanted.mischief}
    return Submitted(rehearsal.submit(given), run_dir)


def simulated(method: Any, **options: int) -> fk.Result:
    sys.path.insert(0, str(TRIAL))
    try:
        from trial.app import drawn, network
    finally:
        sys.path.remove(str(TRIAL))
    clients = [drawn(client, 30 + 7 * client) for client in range(CLIENTS)]
    federation = fk.Federation.from_arrays(clients, test=drawn(100, 60), classes=3)
    settings: dict[str, Any] = {"rounds": 2, "cohort": 2, "seed": 3, "threads": 1, "engine": "serial"}
    return flat.train(fk.Task(network), federation, method, work=WORK, **settings | options)


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


def wait_until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.2)


def restart(rehearsal: Rehearsal, client: int) -> None:
    """Start a killed node until it stays, as a supervisor does: while it counts as online it is refused."""
    node = rehearsal.start_node(client)

    def stays() -> bool:
        nonlocal node
        told = Path(node.log).read_text()
        if "Exit Code: 305" in told:
            node = rehearsal.start_node(client)
        return "SuperNode ID" in told

    wait_until(stays)


def left_running(app: Path) -> list[str]:
    """Return every process of this machine that works for an app, by what Flower's programs are told."""
    home = f"FLWR_HOME={app.resolve() / '.deploy/flwr'}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if home in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_text().replace("\0", " "))
        except OSError:  # ended meanwhile
            continue
    return found


def fedkeel(*words: str | Path) -> subprocess.Popen[str]:
    command = [find_command("fedkeel"), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a process, and what it has printed."""
    told, _ = process.communicate()
    return process.returncode, told


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deployed") / "trial"
    shutil.copytree(TRIAL, path, ignore=shutil.ignore_patterns("__pycache__"))
    return path


@pytest.fixture(scope="module")
def rehearsal(app: Path) -> Iterator[Rehearsal]:
    with Rehearsal(app) as up:
        yield up
    assert not left_running(app)


@pytest.fixture(scope="module")
def runs(rehearsal: Rehearsal) -> Runs:
    return Runs(rehearsal)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_real_deployment_equals_the_simulation_to_the_bit(runs: Runs, schedule: str) -> None:
    assert_equals_simulation(runs.follow(schedule), SCHEDULES[schedule], rounds=5)


def test_nodes_that_send_nonsense_are_left_out_and_the_run_ends_well(runs: Runs) -> None:
    run_dir = runs.follow("bad")
    told = [row["skipped"] for row in read_rows(run_dir)]
    assert [[one["client"] for one in skipped] for skipped in told] == [[0, 1], [0, 1]]
    nan, shape, extra, count = (one["reason"] for skipped in told for one in skipped)
    assert "NaN or infinite" in nan
    assert "has shape (1,), not" in shape
    assert "it sent gift, which nobody asked for" in extra
    assert "its samples is -30, not 37" in count
    assert (run_dir / "model.safetensors").exists()


def test_a_node_with_another_version_of_fedkeel_is_named(runs: Runs) -> None:
    with pytest.raises(RunFailed, match=r"its node runs fedkeel 0\.0\.9, the server") as caught:
        runs.follow("version")
    assert caught.value.exit_code == 3


def test_a_node_killed_mid_round_and_restarted_keeps_its_memory(rehearsal: Rehearsal, app: Path) -> None:
    run = submit(rehearsal, "held", Wanted({"method": "scaffold", "cohort": CLIENTS}, HELD))
    wait_until((app / ".deploy/nodes/1/state.held").exists)
    assert len(read_rows(run.run_dir)) == 1
    (node,) = [one for one in rehearsal.processes if one.name == "node1"]
    processes.kill(node)
    kept = sorted(path.name for path in (app / ".deploy/nodes/1/state").rglob("*.safetensors"))
    assert "00000001.safetensors" in kept
    restart(rehearsal, 1)
    follow(rehearsal, *run)
    assert_equals_simulation(run.run_dir, fk.SCAFFOLD(), cohort=CLIENTS)


def test_a_node_that_is_not_registered_is_refused(rehearsal: Rehearsal, app: Path) -> None:
    stranger = make_node_key(app / ".deploy/keys", "stranger")
    node = rehearsal.start_process("stranger", rehearsal.node_command(CLIENTS, key=stranger), app)
    wait_until(lambda: not node.alive or "error" in node.last_words().lower(), 120)
    found = json.loads(rehearsal.flwr("supernode", "list", "loop", "--format", "json"))
    assert len([one for one in found["nodes"] if one["status"] == "online"]) == rehearsal.nodes
    rehearsal.end_process("stranger")


def test_a_server_with_another_certificate_is_refused(
    rehearsal: Rehearsal, app: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path, ["127.0.0.1"])
    command = rehearsal.node_command(CLIENTS, key=app / ".deploy/keys/node0", authority=tmp_path / "ca.crt")
    node = rehearsal.start_process("mistrustful", command, app)
    wait_until(lambda: "certificate" in Path(node.log).read_text().lower(), 120)
    rehearsal.end_process("mistrustful")


def test_what_is_up_is_not_started_twice(rehearsal: Rehearsal, app: Path) -> None:
    with pytest.raises(StorageError, match="is up already"), Rehearsal(app):
        pass
    assert all(one.alive for one in rehearsal.processes)


def test_a_server_that_is_killed_and_stopped_ends_in_the_same_model(rehearsal: Rehearsal, app: Path) -> None:
    run_dir = submit(rehearsal, "killed", Wanted({"method": "scaffold", "rounds": 3})).run_dir
    wait_until(lambda: len(read_rows(run_dir)) >= 1)
    processes.kill(rehearsal.processes[0])
    rehearsal._lock.close()  # as if `deploy up` had been killed with it
    assert len(read_rows(run_dir)) < 3
    project = app / "pyproject.toml"  # now an app as users have them
    lines = project.read_text().splitlines(keepends=True)
    project.write_text("".join(line for line in lines if not line.startswith("mischief")))
    same_line = ("deploy", "up", app, "--run-dir", run_dir, "--set", "method=scaffold", "--set", "rounds=3")

    code, told = ended(fedkeel(*same_line))
    assert "fedkeel deploy down" in told
    assert code == 6
    code, told = ended(fedkeel("deploy", "down", app))
    assert {*told.strip().removeprefix("ended ").split(", ")} == {"node0", "node1", "node2"}
    assert not left_running(app)

    forget_status(run_dir)  # what the killed server said
    stopped = fedkeel(*same_line)
    wait_until(lambda: (now := read_status(run_dir)) is not None and now.state == "running")
    stopped.send_signal(signal.SIGINT)
    code, told = ended(stopped)
    assert "everything is taken down" in told
    assert code == 130
    assert not left_running(app)

    code, told = ended(fedkeel(*same_line))
    assert code == 0, told
    assert_equals_simulation(run_dir, fk.SCAFFOLD(), rounds=3)
    assert not left_running(app)
    code, told = ended(fedkeel("report", run_dir, "--out", app / "page.html"))
    assert code == 0, told
    assert (app / "page.html").exists()
