"""Jobs on the nodes of a cluster, whatever happens to these.

A job whose worker dies, or ends itself because the job hangs, is run again by another one, a bounded number
of times; one that was lost with its whole node is not to blame for that. Large uploads of single clients stay
where they were made until their chunk is complete, and are summed up there: only the sum comes back.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fedkeel.common.errors import TooFewClients
from fedkeel.engines.contract import ClientFailure, RoundRequest
from fedkeel.engines.jobs.job import ChunkJob, ClientJob, Job, Shared, most_seconds
from fedkeel.engines.jobs.pickles import Known, Packed, exception_of, pack, unpack
from fedkeel.engines.jobs.queue import PATIENCE, JobQueue
from fedkeel.engines.outcome import past_deadline
from fedkeel.engines.ray.cluster import Cluster, Demand, Ref, WorkerLost
from fedkeel.engines.ray.tasks import JobPackage, JobReport, RunSource, SharedSource, run_jobs, sum_chunk
from fedkeel.engines.reduction import chunks
from fedkeel.reducers import CHUNK
from fedkeel.tensors.records import nbytes

HANG_SECONDS = 60.0  # no job gets less time
EMPTY_SECONDS = 60.0  # that a cluster may be without a node for a job
GIVE_UP = 50  # losses in a row with no job done in between
_HANG_FACTOR = 10.0  # a job hangs that takes so many times longer than the slowest of its peers
_LOOK_SECONDS = 1.0  # between two looks at the nodes
_AHEAD = 2  # tasks per slot: one runs, one waits beside it
_LARGE = 1 << 17  # bytes of an upload that is summed up on the nodes

Take = Callable[[Any, Any], None]


class _Sent:
    """A task that is under way: jobs, or the sum of a chunk."""

    def __init__(
        self,
        jobs: Sequence[Job],
        results: Sequence[Ref] = (),
        chunk: int | None = None,
        limit: float | None = None,
        told: str = "",
    ) -> None:
        self.jobs, self.results, self.chunk, self.limit = jobs, results, chunk, limit
        self.told = told  # where it has passed that limit
        self.begun = time.monotonic()

    def may_have_hung(self) -> bool:
        """Tell whether a worker that is gone may have ended itself because its jobs hung."""
        return self.limit is not None and time.monotonic() - self.begun > self.limit


class Dispatch:
    """Runs the jobs of a run on a cluster; `incidents` tells what was lost since it was last emptied."""

    def __init__(
        self, cluster: Cluster, source: RunSource, settings: Ref, demand: Demand, known: Known
    ) -> None:
        self._cluster, self._demand, self._known = cluster, demand, known
        self._source, self._settings = source, settings
        self._version, self._losses = 0, 0
        self._slowest: dict[type, float] = {}  # seconds of a task in a round, and in an evaluation
        self._nodes: dict[str, str] = {}
        self.slots, self._alone_since = 0, math.inf
        self.incidents: list[str] = []
        self.client_seconds: float | None = None  # the deadline of a client, where it has one
        self._look()

    @property
    def workers(self) -> int:
        """Return how many jobs run at once."""
        return max(1, self.slots)

    def release(self) -> None:
        """Let go of what was put on the cluster."""
        self._settings = None

    def run(self, queue: JobQueue, shared: Shared, packed: Packed, take: Take) -> None:
        """Run jobs, and let `take` have each with its result; `packed` is what they share as bytes."""
        self._version += 1
        self._shared = self._cluster.put(SharedSource(self._version, packed))
        self._take, self._queue = take, queue
        self._sent: dict[Ref, _Sent] = {}
        self._kind = type(shared)
        self._chunks = _ChunksOnNodes(shared) if isinstance(shared, RoundRequest) and _large(shared) else None
        try:
            while not queue.finished or self._sent:
                self._send()
                self._collect()
                if time.monotonic() - self._looked > _LOOK_SECONDS:
                    self._look()
        except BaseException:  # an interrupt too
            self._cancel_all()
            raise
        finally:
            self._sent, self._shared, self._chunks = {}, None, None

    def _send(self) -> None:
        """Keep every slot busy."""
        while len(self._sent) < _AHEAD * self.workers:
            jobs = self._queue.next()
            if not jobs:
                return
            limit, told = self._limit(jobs)
            package = JobPackage(pack(jobs, self._known), len(jobs), limit)
            arguments = self._source, self._settings, self._shared, package
            status, *results = self._cluster.submit(
                run_jobs, *arguments, demand=self._demand, returns=1 + len(jobs)
            )
            self._sent[status] = _Sent(jobs, results, limit=limit, told=told)

    def _limit(self, jobs: Sequence[Job]) -> tuple[float | None, str]:
        """Return after how many seconds a worker ends itself over jobs, and what is then said of them."""
        slowest = self._slowest.get(self._kind)
        hang = math.inf if slowest is None else max(HANG_SECONDS, _HANG_FACTOR * slowest)
        deadline = most_seconds(jobs, self.client_seconds)
        if deadline < hang:
            return deadline, past_deadline(self.client_seconds or 0.0)
        return (None, "") if hang == math.inf else (hang, f"it took longer than {hang:.0f} s")

    def _collect(self) -> None:
        """Wait for results, but not for long."""
        if not self._sent:
            return
        for ref in self._cluster.wait(list(self._sent), _LOOK_SECONDS / 2):
            sent = self._sent.pop(ref)
            try:
                found = self._cluster.get(ref)
                if sent.chunk is None:
                    self._take_results(sent, found)
                else:
                    self._take_sum(sent, found)
            except WorkerLost as loss:
                self._lost(sent, loss)
                continue
            self._losses = 0

    def _take_results(self, sent: _Sent, report: JobReport) -> None:
        """Take the results of jobs, but leave large uploads where they are until their chunk is complete."""
        failures, seconds = report
        self._slowest[self._kind] = max(self._slowest.get(self._kind, 0.0), seconds)
        here: list[tuple[Job, Any]] = []
        for job, failure, result in zip(sent.jobs, failures, sent.results, strict=True):
            if failure is None and not (self._chunks is not None and isinstance(job, ClientJob)):
                here.append((job, unpack(self._cluster.get(result))))
        for job, failure, result in zip(sent.jobs, failures, sent.results, strict=True):
            if failure is not None:
                self._queue.failed(job, exception_of(failure))
                continue
            self._queue.done(job)
            if self._chunks is not None and isinstance(job, ClientJob):
                self._sum_up(self._chunks, job, result)
        for job, found in here:
            self._take(job, found)

    def _sum_up(self, held: _ChunksOnNodes, job: Job, result: Ref) -> None:
        complete = held.add(job, result)
        if complete is None:
            return
        jobs, weights, results = complete
        arguments = self._source, self._settings, weights, *results
        ref = self._cluster.submit(sum_chunk, *arguments, demand=self._demand)
        self._sent[ref] = _Sent(jobs, chunk=job.order // CHUNK)

    def _take_sum(self, sent: _Sent, found: Any) -> None:
        if isinstance(found, bytes):
            raise exception_of(found)
        first = sent.jobs[0]
        whole = ChunkJob(first.order, "a chunk", sum(job.samples for job in sent.jobs), ())
        self._take(whole, unpack(found))

    def _lost(self, sent: _Sent, loss: WorkerLost) -> None:
        """Run again what was lost."""
        hung = sent.may_have_hung() and not loss.blameless
        how = sent.told if hung else str(loss)
        names = f"{sent.jobs[0].name}{f' and {len(sent.jobs) - 1} more' * (len(sent.jobs) > 1)}"
        self._tell(f"{names}: run again elsewhere ({how})")
        self._losses += 1
        if self._losses == GIVE_UP:
            raise TooFewClients(
                f"engine = 'ray': workers were lost {GIVE_UP} times in a row with no job done in between "
                f"({how}): is there memory enough on the nodes? `ray status` shows them"
            )
        if sent.chunk is not None:
            assert self._chunks is not None
            self._chunks.lost(sent.chunk, how)
        if sent.chunk is not None or loss.blameless:
            self._queue.again(sent.jobs)
        else:
            for job, failure in self._queue.lost(sent.jobs, how):
                self._give_up(job, failure)

    def _give_up(self, job: Job, failure: ClientFailure) -> None:
        """Take a client's failure in place of its result."""
        if self._chunks is None:
            self._take(job, failure)
        else:
            self._sum_up(self._chunks, job, self._cluster.put(pack(failure, self._known)))

    def _look(self) -> None:
        """See which nodes there are; give up where for long there was none for a job."""
        self._looked = time.monotonic()
        nodes = self._cluster.nodes()
        self.slots = sum(node.slots(self._demand) for node in nodes)
        now = {node.id: node.address for node in nodes}
        for gone in self._nodes.keys() - now.keys():
            self._tell(f"the node {self._nodes[gone]} ({gone[:8]}) was lost")
        self._nodes = now
        if self.slots:
            self._alone_since = math.inf
            return
        self._alone_since = min(self._alone_since, self._looked)
        if self._looked - self._alone_since > EMPTY_SECONDS:
            raise TooFewClients(
                f"engine = 'ray': for {EMPTY_SECONDS:.0f} s no node of the cluster has had room for a client "
                f"({self._demand}): start nodes again (`ray start --address=…`), then resume the run"
            )

    def _cancel_all(self) -> None:
        for ref in self._sent:
            with suppress(Exception):  # the cluster may be gone
                self._cluster.cancel(ref)

    def _tell(self, text: str) -> None:
        self.incidents.append(text)
        warnings.warn(f"engine = 'ray': {text}", stacklevel=2)


class _ChunksOnNodes:
    """Results of single clients that lie on the nodes, until their chunk is complete."""

    def __init__(self, request: RoundRequest) -> None:
        self._weights = request.weights
        self._chunks = chunks(len(request.clients))
        self._held: dict[int, tuple[Job, Ref]] = {}
        self._deaths: Counter[int] = Counter()

    def add(self, job: Job, result: Ref) -> tuple[list[Job], list[float], list[Ref]] | None:
        """Take a result; return jobs, weights and results of its chunk where that is complete."""
        self._held[job.order] = job, result
        positions = self._chunks[job.order // CHUNK]
        if any(position not in self._held for position in positions):
            return None
        found = [self._held.pop(position) for position in positions]
        weights = [self._weights[position] for position in positions]
        return [job for job, _ in found], weights, [result for _, result in found]

    def lost(self, chunk: int, how: str) -> None:
        """Note that the sum of a chunk was lost, or one of its results."""
        self._deaths[chunk] += 1
        if self._deaths[chunk] == PATIENCE:
            positions = self._chunks[chunk]
            raise TooFewClients(
                f"the sum of the uploads {positions.start + 1} to {positions.stop} of the cohort was lost "
                f"{PATIENCE} times ({how}): is there memory enough on the nodes?"
            )


def _large(request: RoundRequest) -> bool:
    """Tell whether uploads are so large that it pays to sum them up where they are."""
    return nbytes(request.down) + nbytes(request.buffers) > _LARGE
