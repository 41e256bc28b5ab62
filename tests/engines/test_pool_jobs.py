"""What a job is, in which order jobs go out, and who is to blame for workers that die."""

from __future__ import annotations

import pickle

import pytest
import torch
from problems import settings_of
from selecting import slow
from torch import nn

import fedkeel as fk
from fedkeel.engines.contract import ClientFailure, RoundRequest
from fedkeel.engines.jobs.job import (
    ChunkJob,
    ClientJob,
    CohortSums,
    evaluation_jobs,
    make_runner,
    round_jobs,
    run_job,
)
from fedkeel.engines.jobs.queue import JobQueue
from fedkeel.engines.reduction import Reduction
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory, Record, leaves


def setup(
    cohort: int, sizes: list[int] | None = None
) -> tuple[RunSettings, RoundRequest, list[ClientMemory]]:
    generator = torch.Generator().manual_seed(1)
    counts = sizes or [4] * cohort
    data = [(torch.randn(n, 3, generator=generator), torch.arange(n) % 2) for n in counts]
    torch.manual_seed(0)
    task, method = fk.Task(nn.Linear(3, 2)), fk.SCAFFOLD()
    federation = fk.Federation.from_arrays(data)
    settings = settings_of(task, federation, method, rounds=1, cohort=cohort, work=fk.Work(steps=2))
    x = make_runner(settings, channels_last=False).oracle.point.clone()
    down = method.broadcast(method.init(x))
    clients = list(range(cohort))[::-1]
    request = RoundRequest(method, 0, 0.1, down, torch.zeros(0), clients, [1.0] * cohort)
    return settings, request, [ClientMemory(method.init_client(x))] * cohort


def lone(order: int) -> ClientJob:
    return ClientJob(order, f"client {order}", 1, order, ClientMemory(None))


def chunk(*orders: int) -> ChunkJob:
    return ChunkJob(orders[0], "a chunk", len(orders), [lone(order) for order in orders])


def assert_equal(one: Record, other: Record) -> None:
    for (name, left), (_, right) in zip(leaves(one), leaves(other), strict=True):
        assert torch.equal(left, right), name


def orders(queue: JobQueue) -> list[int]:
    """Take all jobs there are."""
    found = []
    while jobs := queue.next():
        found += [job.order for job in jobs]
    return found


def test_the_last_chunk_of_each_worker_goes_out_client_by_client_longest_first():
    settings, request, memories = setup(27, sizes=[36 - client for client in range(27)])
    jobs = round_jobs(settings, request, memories, workers=2)
    whole = [[one.order for one in job.clients] for job in jobs if isinstance(job, ChunkJob)]
    assert whole == [[*range(8)], [*range(8, 16)]]
    assert [job.order for job in jobs[2:]] == list(range(26, 15, -1))
    assert [job.client for job in jobs[2:]] == list(range(11))


def test_a_job_gives_the_same_wherever_and_however_often_it_runs():
    settings, request, memories = setup(2)
    job = round_jobs(settings, request, memories, workers=2)[1]
    sent = pickle.loads(pickle.dumps(job))
    here = make_runner(settings, False).run(request, job.client, job.memory)
    used = make_runner(settings, False)
    for found in (run_job(used, request, job), run_job(used, request, sent)):
        assert_equal(here.upload, found.upload)
        assert_equal(here.memory, found.memory)


@pytest.mark.parametrize("workers", [*slow(1, 5), 2])
def test_results_are_reduced_in_drawn_order_whatever_order_they_come_in(workers):
    settings, request, memories = setup(19)
    runner = make_runner(settings, False)
    serial, sums = Reduction(settings.reducer, request.weights), CohortSums(settings.reducer, request)
    for client, memory in zip(request.clients, memories, strict=True):
        serial.add(runner.run(request, client, memory))
    for job in reversed(round_jobs(settings, request, memories, workers)):
        sums.take(job, run_job(runner, request, job))
    expected, found = serial.result(), sums.result()
    assert_equal(expected.upload, found.upload)
    assert [client.loss for client in found.clients] == [client.loss for client in expected.clients]


def test_an_evaluation_is_cut_as_one_process_cuts_it():
    jobs = evaluation_jobs("test", 2500, models=2)
    assert [(job.model, job.start, job.samples) for job in jobs[2:4]] == [(0, 2000, 500), (1, 0, 1000)]
    assert jobs[2].name == "evaluation, samples 2000 to 2499 of the test set"


def test_the_failure_is_the_one_that_serial_meets_first():
    queue = JobQueue([lone(order) for order in (4, 1, 2, 3)])
    [fourth], [first], [second] = queue.next(), queue.next(), queue.next()
    queue.failed(second, LookupError("second"))
    assert not queue.next(), "what comes later need not be done"
    queue.failed(fourth, LookupError("fourth"))
    queue.failed(first, LookupError("first"))
    assert queue.finished
    with pytest.raises(LookupError, match="first"):
        queue.check()


def test_a_chunk_that_lost_its_worker_goes_out_client_by_client():
    queue = JobQueue([chunk(0, 1, 2), lone(3)])
    queue.lost(queue.next(), "SIGKILL")
    assert orders(queue) == [3, 0, 1, 2]


def test_a_client_that_lost_two_workers_runs_alone_and_is_named_the_third_time():
    queue = JobQueue([lone(0), lone(1)])
    [suspect], [other] = queue.next(), queue.next()
    queue.lost([suspect], "SIGKILL")
    queue.lost(queue.next(), "SIGKILL")
    assert not queue.next(), "another one runs"
    queue.done(other)
    assert queue.next() == [suspect]
    with pytest.raises(fk.TooFewClients, match=r"^client 0: 3 worker processes died over it.*\(SIGSEGV\)"):
        queue.lost([suspect], "SIGSEGV")


def test_a_run_that_goes_on_gives_up_a_client_whose_workers_keep_dying():
    queue = JobQueue([lone(0), lone(1)], skips_failed=True)
    [suspect], [other] = queue.next(), queue.next()
    assert not queue.lost([suspect], "SIGKILL")
    assert not queue.lost(queue.next(), "SIGKILL")
    queue.done(other)
    [(job, failure)] = queue.lost(queue.next(), "SIGSEGV")
    assert job is suspect
    assert failure == ClientFailure(0, "its worker processes died again and again (SIGSEGV)")
    assert queue.finished


def test_a_client_that_hangs_is_done_again_as_after_a_death_the_last_time_alone():
    queue = JobQueue([lone(0), lone(1)], skips_failed=True)
    [suspect], [other] = queue.next(), queue.next()
    assert not queue.lost([suspect], "it hung for 60 s")
    assert not queue.lost(queue.next(), "SIGKILL")
    assert not queue.next(), "another one runs"
    queue.done(other)
    assert queue.lost(queue.next(), "it hung for 60 s")


def test_an_overdue_client_is_given_up_at_once():
    queue = JobQueue([lone(0), lone(1)], skips_failed=True)
    [late] = queue.next()
    [(job, failure)] = queue.lost([late], "took too long", overdue=True)
    assert (job, failure) == (late, ClientFailure(0, "took too long"))
    queue = JobQueue([lone(0)])
    with pytest.raises(fk.TooFewClients, match=r"^client 0: took too long"):
        queue.lost(queue.next(), "took too long", overdue=True)


def test_small_jobs_go_out_together_until_they_lose_a_worker():
    queue = JobQueue([lone(order) for order in range(6)], together=3)
    together = queue.next()
    assert [job.order for job in together] == [0, 1, 2]
    queue.lost(together, "SIGKILL")
    assert [[job.order for job in queue.next()] for _ in range(6)] == [[3], [4], [5], [0], [1], [2]]
    assert not queue.next()
