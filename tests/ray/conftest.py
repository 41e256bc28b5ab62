"""Clusters of several nodes on this machine, as few as possible: a node takes seconds to start."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

# before Ray is imported: on loopback alone, with a token, without telling anybody
os.environ.update(
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN="0123456789abcdef" * 4,
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_worker_niceness="0",
    FEDKEEL_RAY_STORE=str(200 * 2**20),
)

import pytest

if importlib.util.find_spec("ray") is not None:  # else the files with tests say so and are skipped
    from ray.cluster_utils import Cluster as LocalCluster

from fedkeel.engines.ray.cluster import connect
from fedkeel.engines.serial import threads

STORE = 100 * 2**20
PATIENT = {"health_check_timeout_ms": 120_000}  # a busy machine is no dead node


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    with threads(1):
        yield


class Nodes:
    """A head without room for clients, and nodes that each run one client at a time."""

    def __init__(self, count: int) -> None:
        self.local = LocalCluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "object_store_memory": STORE,
                "include_dashboard": False,
                "_system_config": PATIENT,
            },
        )
        self.workers = [self.add() for _ in range(count)]
        self.address: str = self.local.address

    def add(self) -> object:
        """Start a node; it ends with the thread that starts it."""
        return self.local.add_node(num_cpus=1, object_store_memory=STORE)

    def unplug(self, node: object | None = None) -> None:
        """Lose a node, by default the oldest one, as when its plug is pulled."""
        lost = self.workers[0] if node is None else node
        self.workers.remove(lost)
        self.local.remove_node(lost, allow_graceful=False)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Two nodes beside the head; the connection is kept for all tests."""
    made = Nodes(2)
    connection = connect(made.address)
    try:
        yield made
    finally:
        connection.close()
        made.local.shutdown()
