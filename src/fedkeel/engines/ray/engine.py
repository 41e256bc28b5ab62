"""The Ray engine: jobs as stateless tasks on the nodes of a cluster.

The settings and the data are put once per run, a round's request once per round; client states travel
with their jobs. The result is the serial engine's to the bit, whatever the number of nodes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.core.oracle import Oracle
from fedkeel.engines.jobs.engine import JobEngine
from fedkeel.engines.jobs.job import Job, Shared
from fedkeel.engines.jobs.pickles import UNPICKLABLE, Known, Packed, pack
from fedkeel.engines.jobs.queue import JobQueue
from fedkeel.engines.jobs.switches import torch_switches
from fedkeel.engines.ray.cluster import Cluster, Demand, connect
from fedkeel.engines.ray.dispatch import Dispatch
from fedkeel.engines.ray.tasks import RunSource, module_paths, versions
from fedkeel.engines.serial import threads
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings


class RayEngine(JobEngine):
    """Runs the clients of a cohort on a Ray cluster."""

    name = "ray"
    together = 0.01

    def __init__(self, settings: RunSettings, oracle: Oracle, execution: Execution) -> None:
        if oracle.device.type != "cpu":
            raise ConfigError(
                f"engine = 'ray': device = {str(oracle.device)!r}: the main process stays on the CPU; "
                "clients compute on GPUs with num_gpus=1, or a fraction for several clients per GPU"
            )
        super().__init__(settings, oracle)
        self.threads = execution.threads or 1
        cpus, gpus = execution.num_cpus, execution.num_gpus or 0.0
        demand = Demand(float(self.threads) if cpus is None else cpus, gpus)
        self._known: Known = {}
        self._cluster = connect(execution.address, num_cpus=execution.workers)
        try:
            _check_room(self._cluster, demand, execution.address)
            self._dispatch = self._prepared(demand)
            self.workers = self._dispatch.workers
        except BaseException:
            self._cluster.close()
            raise

    def execute(
        self, shared: Shared, jobs: Sequence[Job], take: Callable[[Any, Any], None], together: float = 0.0
    ) -> None:
        """Let workers run jobs, or raise the failure that serial would meet first."""
        queue, packed = (
            JobQueue(jobs, together, skips_failed=self.settings.skips_failed),
            self._packed(shared),
        )
        with threads(self.threads):
            self._dispatch.run(queue, shared, packed, take)
        self.workers = self._dispatch.workers
        queue.check()

    def lost_workers(self) -> Sequence[str]:
        """Return what was lost since the last call, each in a line."""
        lost, self._dispatch.incidents = self._dispatch.incidents, []
        return lost

    def close(self) -> None:
        """Let go of the cluster, and of what was put there."""
        self._dispatch.release()
        self._cluster.close()

    def _prepared(self, demand: Demand) -> Dispatch:
        """Put the settings where nodes find them."""
        settings = self._cluster.put(self._packed(self.settings, define=True))
        source = RunSource(
            key=secrets.token_hex(8),
            versions=versions(),
            channels_last=self.oracle.channels_last,
            switches=torch_switches(),
            threads=self.threads,
            device="cuda" if demand.num_gpus else "cpu",
            paths=module_paths(),
        )
        dispatch = Dispatch(self._cluster, source, settings, demand, self._known)
        dispatch.client_seconds = self.settings.client_seconds
        return dispatch

    def _packed(self, value: Any, *, define: bool = False) -> Packed:
        try:
            return pack(value, self._known, define=define)
        except UNPICKLABLE as problem:
            raise self.unsendable(problem) from None


def _check_room(cluster: Cluster, demand: Demand, address: str | None) -> None:
    """Refuse a demand that no node can ever meet."""
    nodes = cluster.nodes()
    if not any(node.slots(demand) for node in nodes):
        found = "; ".join(f"{node.address}: {node.cpus:g} CPUs, {node.gpus:g} GPUs" for node in nodes)
        where = "this machine's Ray" if address is None else f"the cluster at {address}"
        raise ConfigError(
            f"engine = 'ray', {demand}: {where} has no node with so much ({found or 'no nodes'}): "
            "ask for less"
        )
