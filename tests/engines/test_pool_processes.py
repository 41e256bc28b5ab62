"""The processes engine gives the serial engine's result to the bit, whatever happens to its workers."""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import flat
import pytest
import torch
from engine_runs import METHODS, WORK, Mortal, assert_equal, clients, jitter, net
from problems import session_of, settings_of
from selecting import one_in
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from variants import SHAPED_WORK

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.jobs import job as jobs
from fedkeel.engines.pool import Processes, pool, processes
from fedkeel.engines.serial import threads
from fedkeel.running.session import Session


class Endless:
    """Waits for ever in the second round, once; changes nothing."""

    def __init__(self, directory: Path) -> None:
        self.marker, self.calls = directory / "waits", 0
        self.marker.touch()

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        self.calls += 1
        if self.calls > 9 and self.marker.exists():
            self.marker.unlink()
            threading.Event().wait()
        return x


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """Kills every worker that reads samples of the first of some clients."""

    def __init__(self) -> None:
        self.rows = clients()[0][0]

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if bool((x[:, None] == self.rows).all(-1).any()):
            self.act()
        return x

    def act(self) -> None:
        die()


class Waiting(Deadly):
    """Lets every worker wait for ever that reads samples of the first of some clients."""

    def act(self) -> None:
        threading.Event().wait()


class Stillborn:
    """Kills the worker that reads it."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return x

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return die, ()


class Unreadable:
    """Comes apart when a worker reads it."""

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return x

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return refuse, ()


def refuse() -> None:
    raise LookupError("unreadable")


class Peculiar(Exception):
    def __init__(self, *, tensor: Tensor) -> None:
        super().__init__("of its own")
        self.tensor = tensor


def raise_peculiar(x: Tensor, generator: torch.Generator) -> Tensor:
    raise Peculiar(tensor=torch.arange(2.0))


def add_default(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + torch.tensor(0.1).double().to(x.dtype)


def refuse_large(output: Tensor, target: Tensor) -> Tensor:
    if bool((target == 2).any()):
        raise LookupError(f"no class {int(target.max())} here")
    return cross_entropy(output, target)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threads(1):  # threads that wait for each other on a busy machine take most of the time
        yield


@pytest.fixture(scope="module")
def shared():
    """Two workers for all methods."""
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    settings = settings_of(fk.Task(net()), federation, fk.FedAvg(), rounds=2, cohort=19, work=WORK)
    with closing(Processes(settings, Oracle(settings.task, torch.device("cpu")), workers=2)) as engine:
        yield engine


@pytest.fixture
def quickly(monkeypatch):
    """Lose no time over workers that die or hang."""
    monkeypatch.setattr(pool, "BACK_OFF_SECONDS", 0.01)
    monkeypatch.setattr(pool, "SUSPECT_SECONDS", 0.01)
    monkeypatch.setattr(pool, "HANG_SECONDS", 1.5)


def play(
    engine: str | Processes,
    algorithm: object,
    *,
    augment: object = jitter,
    cohort: int = 19,
    **options: object,
) -> Session:
    """Play two rounds; with two workers a cohort of 19 is one whole chunk and eleven single clients."""
    federation = fk.Federation.from_arrays(clients(), augment=augment)
    task = fk.Task(net(), loss=options.pop("loss", cross_entropy))
    settings = {"rounds": 2, "cohort": cohort, "work": WORK, "threads": 1, "workers": 2, **options}
    if isinstance(engine, Processes):
        session = session_of(task, federation, algorithm, engine="serial", **settings)
        session.context = session.context._replace(engine=engine)
        list(session.rounds())
        return session
    with closing(session_of(task, federation, algorithm, engine=engine, **settings)) as session:
        list(session.rounds())
    return session


@pytest.mark.parametrize("method", one_in(4, METHODS), ids=lambda method: repr(method()))
def test_every_method_equals_serial_to_the_bit(method, shared):
    assert_equal(play(shared, method()), play("serial", method()))


@pytest.mark.parametrize("options", [{"cohort": 1}, {"cohort": 5}, {"cohort": 24, "weighting": "samples"}])
def test_every_cohort_size_and_weighting_equals_serial(options, shared):
    assert_equal(play(shared, fk.SCAFFOLD(), **options), play("serial", fk.SCAFFOLD(), **options))


def test_momentum_rates_within_a_round_and_clipping_equal_serial():
    ends = [play(engine, fk.SCAFFOLD(), work=SHAPED_WORK) for engine in ("processes", "serial")]
    assert_equal(*ends)


def test_convolutions_equal_serial():
    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(8, 3, 12, 12, generator=generator), torch.arange(8) % 3) for _ in range(4)]
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    )
    ends = []
    for engine in ("serial", "processes"):
        federation = fk.Federation.from_arrays(data)
        options = {"rounds": 2, "cohort": 3, "work": WORK, "threads": 1, "workers": 2}
        ends.append(flat.train(fk.Task(model), federation, fk.FedAvg(), engine=engine, **options).server.x)
    assert torch.equal(*ends)


def test_a_worker_that_dies_is_replaced_and_changes_nothing(tmp_path):
    died = play("processes", fk.SCAFFOLD(), augment=Mortal(tmp_path, deaths=2))
    assert not list(tmp_path.iterdir())
    assert_equal(died, play("serial", fk.SCAFFOLD(), augment=Mortal(tmp_path, deaths=0)))


@pytest.mark.slow
def test_a_burst_of_deaths_is_survived(tmp_path, quickly):
    """Nine workers die one after another before any job is done."""
    died = play("processes", fk.SCAFFOLD(), augment=Mortal(tmp_path, deaths=9))
    assert not list(tmp_path.iterdir())
    assert_equal(died, play("serial", fk.SCAFFOLD(), augment=Mortal(tmp_path, deaths=0)))


@pytest.mark.slow
def test_workers_killed_or_stopped_between_rounds_are_replaced(quickly):
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    options = {"rounds": 3, "cohort": 19, "work": WORK, "engine": "processes", "workers": 2}
    with closing(session_of(fk.Task(net()), federation, fk.SCAFFOLD(), **options)) as session:
        rounds, workers = session.rounds(), session.context.engine.pool
        next(rounds)
        for pid in workers.pids:
            os.kill(pid, signal.SIGKILL)
        next(rounds)
        stopped = workers.pids[0]
        os.kill(stopped, signal.SIGSTOP)
        next(rounds)
        assert stopped not in workers.pids
    assert_equal(session, play("serial", fk.SCAFFOLD(), rounds=3))


@pytest.mark.slow(5)
def test_workers_outlive_a_fork_server_that_is_killed_and_end_with_the_run():
    options = {"rounds": 3, "cohort": 19, "work": WORK, "engine": "processes", "workers": 2}
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    with closing(session_of(fk.Task(net()), federation, fk.SCAFFOLD(), **options)) as session:
        rounds, workers = session.rounds(), session.context.engine.pool
        next(rounds)
        before = workers.pids
        handles = [os.pidfd_open(pid) for pid in before]
        os.kill(int(Path(f"/proc/{before[0]}/stat").read_text().split()[3]), signal.SIGKILL)
        next(rounds)
        assert workers.pids == before
        os.kill(before[0], signal.SIGKILL)
        next(rounds)
        assert before[0] not in workers.pids
    for handle in handles:
        assert select.select([handle], [], [], 60)[0], "an old worker lives on"
        os.close(handle)
    assert_equal(session, play("serial", fk.SCAFFOLD(), rounds=3))


@pytest.mark.slow
def test_a_worker_that_is_stopped_amid_a_job_is_replaced(tmp_path, quickly):
    stopped = play("processes", fk.FedAvg(), augment=Mortal(tmp_path, deaths=1, number=signal.SIGSTOP))
    assert_equal(stopped, play("serial", fk.FedAvg(), augment=Mortal(tmp_path, deaths=0)))


@pytest.mark.slow
def test_a_job_that_takes_far_longer_than_others_is_done_again(tmp_path, quickly):
    waited = play("processes", fk.FedAvg(), augment=Endless(tmp_path))
    assert not list(tmp_path.iterdir())
    assert_equal(waited, play("serial", fk.FedAvg(), augment=Mortal(tmp_path, deaths=0)))


@pytest.mark.slow
def test_a_client_that_never_comes_to_an_end_is_overdue(monkeypatch):
    monkeypatch.setattr(jobs, "OVERTIME_SECONDS", 0.5)
    options = {"on_client_error": "skip", "client_seconds": 1.0, "rounds": 1}
    session = play("processes", fk.FedAvg(), augment=Waiting(), cohort=24, **options)
    told = {"client": 0, "reason": "took longer than client_seconds = 1"}
    assert session.history[0]["skipped"] == [told]


@pytest.mark.slow(7)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_that_keeps_killing_its_workers_is_named(tmp_path, quickly, number):
    told = {signal.SIGKILL: "SIGKILL", signal.SIGSTOP: "it hung for"}[number]
    with pytest.raises(fk.TooFewClients, match=rf"round 0, client \d+: 3 worker processes died .*{told}"):
        play("processes", fk.FedAvg(), augment=Mortal(tmp_path, deaths=99, number=number), cohort=1)


@pytest.mark.slow
def test_a_run_may_go_on_without_a_client_that_keeps_killing_its_workers(quickly):
    session = play("processes", fk.FedAvg(), augment=Deadly(), rounds=1, cohort=24, on_client_error="skip")
    reason = "its worker processes died again and again (SIGKILL)"
    assert session.history[0]["skipped"] == [{"client": 0, "reason": reason}]


@pytest.mark.slow
def test_workers_that_keep_dying_are_too_few(tmp_path, quickly, monkeypatch):
    monkeypatch.setattr(pool, "GIVE_UP", 3)
    told = r"died 3 times in a row .*before a job was done \(SIGKILL, over round 0, client \d+\)"
    with pytest.raises(fk.TooFewClients, match=told):
        play("processes", fk.FedAvg(), augment=Mortal(tmp_path, deaths=99), cohort=8, workers=1)


@pytest.mark.slow
def test_workers_that_cannot_start_are_told_of(quickly, monkeypatch):
    monkeypatch.setattr(pool, "GIVE_UP", 3)
    told = r"died 3 times in a row while starting .*SIGKILL, over its start.*Try fewer workers"
    with pytest.raises(fk.TooFewClients, match=told):
        play("processes", fk.FedAvg(), augment=Stillborn(), workers=1)


def test_divergence_is_the_one_that_serial_meets_first():
    found = []
    for engine in ("serial", "processes"):
        with pytest.raises(fk.Diverged) as caught:
            play(engine, fk.FedAvg(), cohort=10, work=fk.Work(epochs=3, batch_size=4, lr=1e30))
        found.append((str(caught.value), caught.value.round, caught.value.client))
    assert found[0] == found[1]


def test_a_users_exception_is_the_cause_and_shows_where_it_was_raised():
    federation = fk.Federation.from_arrays([(torch.ones(4, 6), torch.tensor([0, 0, 1, 2]))])
    options = {"rounds": 1, "cohort": 1, "work": fk.Work(steps=1), "engine": "processes", "workers": 1}
    with pytest.raises(fk.ClientFailed, match="round 0, client 0: LookupError: no class 2 here") as caught:
        flat.train(fk.Task(net(), loss=Patient()), federation, fk.FedAvg(), **options)
    assert isinstance(caught.value.__cause__, LookupError)
    assert "In a worker process" in "".join(caught.value.__cause__.__notes__)


class Patient:
    """A loss that fails in walks only, not when the model is tried out before the run."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return refuse_large(output, target) if output.requires_grad else cross_entropy(output, target)


def test_what_a_worker_cannot_read_is_told_as_it_is():
    with pytest.raises(LookupError, match="unreadable") as caught:
        play("processes", fk.FedAvg(), augment=Unreadable())
    assert "In a worker process" in "".join(caught.value.__notes__)


def test_an_exception_with_a_constructor_of_its_own_comes_back():
    with pytest.raises(fk.ClientFailed, match=r"round 0, client \d+: Peculiar: of its own") as caught:
        play("processes", fk.FedAvg(), augment=raise_peculiar)
    assert isinstance(caught.value.__cause__, Peculiar)
    assert caught.value.__cause__.tensor.tolist() == [0.0, 1.0]


def test_what_a_function_defines_goes_by_value_and_comes_back_as_it_left():
    """Nothing here could be imported by a worker: the model, the loss, the method, its records."""

    class Local(nn.Linear):
        pass

    class Kept(NamedTuple):
        c_i: fk.Vector

    @fk.method
    class Mine(fk.SCAFFOLD):
        """SCAFFOLD with records of its own."""

        def init_client(self, x0: fk.Vector) -> Kept:
            return Kept(torch.zeros_like(x0))

        def finish(self, walk, down, client, facts):
            up, memory = super().finish(walk, down, client, facts)
            return up, Kept(memory.c_i)

    plan, loss = Mine.plan, lambda output, target: cross_entropy(output, target, label_smoothing=0.1)
    torch.manual_seed(0)
    task, federation = fk.Task(Local(6, 3), loss=loss), fk.Federation.from_arrays(clients())
    ends = {}
    for engine in ("serial", "processes"):
        options = {"rounds": 2, "cohort": 19, "work": WORK, "threads": 1, "workers": 2, "engine": engine}
        ends[engine] = flat.train(task, federation, Mine(), **options)
    assert torch.equal(ends["serial"].server.x, ends["processes"].server.x)
    assert all(type(memory) is Kept for memory in ends["processes"].client_states.values())
    assert Mine.plan is plan


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()
    with pytest.raises(fk.ConfigError, match=r"Federation.augment cannot be sent .*lock.*engine='serial'"):
        play("processes", fk.FedAvg(), augment=lambda x, generator: x + lock.locked())


def test_a_daemonic_process_is_told_what_to_choose(monkeypatch):
    monkeypatch.setattr(processes, "current_process", lambda: SimpleNamespace(daemon=True))
    with pytest.raises(fk.ConfigError, match=r"daemonic process.*choose engine='serial'"):
        play("processes", fk.FedAvg())


@pytest.mark.slow
def test_switches_of_torch_are_taken_over():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert_equal(
            play("processes", fk.FedAvg(), augment=add_default),
            play("serial", fk.FedAvg(), augment=add_default),
        )
    finally:
        torch.set_default_dtype(before)


def test_shared_memory_has_no_names_that_could_stay_behind(shared):
    play(shared, fk.FedAvg(), rounds=1)
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in (os.getpid(), *shared.pool.pids)]
    assert all("memfd:fedkeel" in text for text in maps)
    named = re.compile(
        r"/dev/shm/(torch|psm)_"
    )  # torch's and Python's own shared memory; OpenMP has names too
    assert not any(named.search(text) for text in maps)


@pytest.mark.slow
def test_no_descriptor_stays_open():
    play("processes", fk.FedAvg(), rounds=1)
    before = len(os.listdir("/proc/self/fd"))
    play("processes", fk.FedAvg(), rounds=1)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_a_run_begun_serially_goes_on_with_processes_to_the_same_bit(tmp_path):
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    options = {"cohort": 19, "work": WORK, "threads": 1, "workers": 2, "keep_client_states": True}

    def run(rounds: int, name: str, engine: str) -> bytes:
        directory = tmp_path / name
        options.update(rounds=rounds, run_dir=directory, resume=True, engine=engine)
        flat.train(fk.Task(net()), federation, fk.SCAFFOLD(), **options)
        return (directory / "model.safetensors").read_bytes() + (directory / "metrics.jsonl").read_bytes()

    run(1, "changed", "serial")
    assert run(3, "changed", "processes") == run(3, "serial", "serial")
