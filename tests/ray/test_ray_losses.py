"""What a cluster loses changes no bit of the result, and is told; a cluster without room ends the run."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from engine_runs import WORK, assert_equal, clients, net
from problems import session_of
from torch import Tensor

import fedkeel as fk
from fedkeel.engines.ray import dispatch
from fedkeel.running.session import Session

pytest.importorskip("ray", reason='needs Ray: pip install "fedkeel[ray]", or `make ray`')


ENGINE = "^engine = 'ray': "


class MortalOnce:
    """Kills the worker that varies a client's samples for the first time, so many times in all."""

    def __init__(self, directory: Path, deaths: int) -> None:
        self.directory, self.deaths = directory, deaths

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        marker = self.directory / hashlib.sha256(x.numpy().tobytes()).hexdigest()[:16]
        if not marker.exists() and len(list(self.directory.iterdir())) < self.deaths:
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x


class EndlessOnce:
    """Waits for ever where a marker lies, and takes it away."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self.marker.exists():
            self.marker.unlink(missing_ok=True)
            threading.Event().wait()
        return x


class Unhurried:
    """Takes its time over a client's samples, so that a round lasts; tells which nodes have begun."""

    def __init__(self, begun: Path, seconds: float) -> None:
        self.begun, self.seconds = begun, seconds

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        import ray

        (self.begun / ray.get_runtime_context().get_node_id()).touch()
        time.sleep(self.seconds)
        return x


def unchanged(x: Tensor, generator: torch.Generator) -> Tensor:
    return x


def opened(augment: object, address: str | None = None, **options: object) -> Session:
    """Open a session of SCAFFOLD on the nodes, or a serial one where no address is given."""
    federation = fk.Federation.from_arrays(clients(), augment=augment)
    engine = {"engine": "serial"} if address is None else {"engine": "ray", "address": address}
    settings = {"rounds": 2, "cohort": 16, "work": WORK, "threads": 1, **engine, **options}
    return session_of(fk.Task(net()), federation, fk.SCAFFOLD(), **settings)


def play(augment: object, address: str | None = None, **options: object) -> Session:
    with closing(opened(augment, address, **options)) as session:
        list(session.rounds())
    return session


@pytest.mark.parametrize("large", [False, True], ids=["summed here", "summed on the nodes"])
def test_workers_killed_ten_times_mid_round_are_invisible(nodes, tmp_path, monkeypatch, large):
    if large:
        monkeypatch.setattr(dispatch, "_LARGE", 0)
    with pytest.warns(UserWarning, match=ENGINE) as told:
        found = play(MortalOnce(tmp_path, deaths=10), nodes.address)
    assert any("run again elsewhere (its worker process died)" in str(one.message) for one in told)
    assert sum(len(row["lost_workers"]) for row in found.history if "lost_workers" in row) >= 10
    assert len(list(tmp_path.iterdir())) == 10
    assert_equal(found, play(unchanged))


def test_a_worker_that_hangs_is_replaced(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "HANG_SECONDS", 2.0)
    marker = tmp_path / "waits"
    with closing(opened(EndlessOnce(marker), nodes.address, rounds=3)) as session:
        rounds = session.rounds()
        next(rounds)
        marker.touch()  # now it is known how long a job takes
        with pytest.warns(UserWarning, match=ENGINE) as told:
            next(rounds)
        next(rounds)
    assert any("run again elsewhere (it took longer than" in str(one.message) for one in told)
    assert_equal(session, play(unchanged, rounds=3))


@pytest.mark.slow(90)
def test_nodes_removed_five_times_mid_round_are_invisible(nodes, tmp_path):
    nodes.workers.append(nodes.add())  # three of them

    def unplug() -> None:
        while not (busy := [node for node in nodes.workers if (tmp_path / node.node_id).exists()]):
            time.sleep(0.01)
        nodes.unplug(busy[0])

    with closing(opened(Unhurried(tmp_path, seconds=0.2), nodes.address, rounds=5)) as session:
        rounds = session.rounds()
        for _ in range(5):
            for begun in tmp_path.iterdir():
                begun.unlink()
            killer = threading.Thread(target=unplug)
            killer.start()
            with pytest.warns(UserWarning, match=ENGINE) as told:
                next(rounds)
            assert any(" was lost" in str(one.message) for one in told)
            killer.join()
            nodes.workers.append(nodes.add())
    nodes.unplug()
    assert_equal(session, play(unchanged, rounds=5))


def test_a_client_that_kills_every_worker_is_named(nodes):
    class Deadly:
        def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
            os.kill(os.getpid(), signal.SIGKILL)
            return x

    with (
        pytest.warns(UserWarning, match=ENGINE),
        pytest.raises(fk.TooFewClients, match=r"round 0, client \d+: 3 worker processes died over it"),
    ):
        play(Deadly(), nodes.address, cohort=1)


def test_a_client_that_kills_every_worker_is_left_out_where_that_is_asked(nodes, monkeypatch):
    monkeypatch.setattr(dispatch, "_LARGE", 0)

    class Deadly:
        def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
            if len(x) == 12:
                os.kill(os.getpid(), signal.SIGKILL)
            return x

    with pytest.warns(UserWarning, match=ENGINE):
        found = play(Deadly(), nodes.address, cohort=5, rounds=1, on_client_error="skip")
    told = "its worker processes died again and again"
    skipped = found.history[0]["skipped"]
    assert skipped
    assert all(len(clients()[one["client"]][0]) == 12 and told in one["reason"] for one in skipped)


def test_a_cluster_without_room_ends_the_run_with_what_to_do(nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "EMPTY_SECONDS", 0.5)

    def unplug() -> None:
        while not list(tmp_path.iterdir()):
            time.sleep(0.01)
        while nodes.workers:
            nodes.unplug()

    killer = threading.Thread(target=unplug)
    killer.start()
    with (
        pytest.warns(UserWarning, match=ENGINE),
        pytest.raises(fk.TooFewClients, match=r"no node of the cluster has had room .*then resume the run"),
    ):
        play(Unhurried(tmp_path, seconds=0.2), nodes.address, rounds=6)
    killer.join()
    nodes.workers += [nodes.add(), nodes.add()]
