"""The processes engine: jobs on worker processes of this machine, one thread each.

The data lies in shared memory once per run; a round's request is written there once per round, and so are
models that are evaluated. The result is the serial engine's to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import current_process
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.core.oracle import Oracle
from fedkeel.engines.contract import Unsuited
from fedkeel.engines.jobs.engine import JobEngine
from fedkeel.engines.jobs.job import Job, Shared
from fedkeel.engines.jobs.pickles import UNPICKLABLE, Known, Spans
from fedkeel.engines.jobs.queue import JobQueue
from fedkeel.engines.jobs.switches import torch_switches
from fedkeel.engines.pool.forkserver import start_fork_server
from fedkeel.engines.pool.pool import WorkerPool
from fedkeel.engines.pool.sharing import SharedFile
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import available_cores
from fedkeel.settings.run_settings import RunSettings


class Processes(JobEngine):
    """Runs the clients of a cohort on worker processes."""

    name = "processes"
    together = 0.003

    def __init__(self, settings: RunSettings, oracle: Oracle, workers: int | None = None) -> None:
        if oracle.device.type != "cpu":
            raise ConfigError(
                f"engine = 'processes' computes on the CPU, not on {oracle.device}: "
                "choose engine='serial' or 'stacked' there"
            )
        if current_process().daemon:
            raise Unsuited("a daemonic process, as in multiprocessing.Pool, may not start worker processes")
        start_fork_server()
        super().__init__(settings, oracle)
        self.workers = workers or available_cores()
        self._files = SharedFile(), SharedFile()  # of the settings, and of what the jobs of a round share
        self._known: Known = {}
        spans = self._write(self._files[0], settings, define=True)
        start = spans, oracle.channels_last, torch_switches()
        self.pool = WorkerPool(self.workers, self._files, start, self._known, settings.client_seconds)

    def close(self) -> None:
        """End the workers and give back the shared memory."""
        self.pool.close()
        for file in self._files:
            file.close()

    def execute(
        self, shared: Shared, jobs: Sequence[Job], take: Callable[[Any, Any], None], together: float = 0.0
    ) -> None:
        """Let workers run jobs, or raise the failure that serial would meet first."""
        queue = JobQueue(jobs, together, skips_failed=self.settings.skips_failed)
        spans = self._write(self._files[1], shared)
        with threads(self.threads):
            self.pool.run(queue, spans, take)
        queue.check()

    def _write(self, file: SharedFile, value: Any, *, define: bool = False) -> Spans:
        try:
            return file.write(value, self._known, define=define)
        except UNPICKLABLE as problem:
            raise self.unsendable(problem) from None
