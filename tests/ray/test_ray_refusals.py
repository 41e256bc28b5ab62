"""What does not fit is said with what, where and the next step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import flat
import pytest
import torch
from engine_runs import WORK, clients, net
from torch import Tensor

import fedkeel as fk
from fedkeel.engines.ray import engine as ray_engine
from fedkeel.engines.ray import tasks

pytest.importorskip("ray", reason='needs Ray: pip install "fedkeel[ray]", or `make ray`')

CONNECT = """
import sys
from fedkeel.engines.ray.cluster import connect
from fedkeel.common.errors import ConfigError
try:
    connect(sys.argv[1])
except ConfigError as problem:
    print(problem)
"""


def train(address: str | None, **options: object) -> fk.Result:
    augment = options.pop("augment", None)
    federation = fk.Federation.from_arrays(clients(), augment=augment)
    settings = {"rounds": 1, "cohort": 4, "work": WORK, "engine": "ray", "address": address, **options}
    return flat.train(fk.Task(net()), federation, fk.FedAvg(), **settings)


def connect_elsewhere(address: str, **environment: str) -> str:
    command = [sys.executable, "-c", CONNECT, address]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout


def test_another_token_is_refused(nodes):
    told = connect_elsewhere(nodes.address, RAY_AUTH_TOKEN="f" * 64)
    assert told.startswith(f"address = '{nodes.address}': no connection to Ray (")
    assert "is the token that of the cluster (RAY_AUTH_MODE=token with RAY_AUTH_TOKEN" in told


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:1", r"^address = '127.0.0.1:1': nobody answers there .*ray start --head --port=1"),
        ("ray://127.0.0.1:10001", r"Ray's client protocol is not used here: run fedkeel on a machine of the"),
        ("somewhere", r"^address = 'somewhere': give HOST:PORT, as in head:6379, or auto"),
    ],
)
def test_an_address_where_no_cluster_is(address, told):
    found = connect_elsewhere(address)
    assert re.search(told, found), found


def test_the_cluster_of_this_machine_is_named_where_nobody_answers() -> None:
    found = connect_elsewhere("auto", RAY_ADDRESS="127.0.0.1:1")
    assert found.startswith("address = 'auto', which is 127.0.0.1:1: nobody answers"), found


def test_a_second_cluster_in_one_process_is_refused(nodes):
    with pytest.raises(fk.ConfigError, match=r"this process is connected to 127\.0\.0\.1:\d+: end what uses"):
        train("127.0.0.1:1")


def test_other_versions_on_a_node_are_refused(nodes, monkeypatch):
    other = {**tasks.versions(), "torch": "1.0.0"}
    monkeypatch.setattr(ray_engine, "versions", lambda: other)
    with pytest.raises(
        fk.ConfigError,
        match=r"node \S+ has torch \S+ instead of 1.0.0: install the same versions .*cluster check",
    ):
        train(nodes.address)


def test_more_than_any_node_has_is_refused(nodes):
    with pytest.raises(fk.ConfigError, match=r"num_cpus=64: the cluster at .* no node with so much .*1 CPUs"):
        train(nodes.address, num_cpus=64)
    with pytest.raises(fk.ConfigError, match=r"num_cpus=1, num_gpus=0.5: .*0 GPUs.*: ask for less"):
        train(nodes.address, num_gpus=0.5)


def test_what_cannot_be_sent_is_named(nodes):
    lock = threading.Lock()

    def locked(x: Tensor, generator: torch.Generator) -> Tensor:
        return x + lock.locked()

    with pytest.raises(fk.ConfigError, match=r"engine = 'ray': Federation.augment cannot be sent"):
        train(nodes.address, augment=locked)


def test_clients_take_what_they_are_given_of_a_node(nodes):
    assert train(nodes.address, num_cpus=0.25).history
