"""The processes engine gives the serial engine's result to the bit, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedkeel as fk
from fedkeel.engines.contract import Setting
from fedkeel.engines.pieces import pieces
from fedkeel.engines.processes import Processes, pickles
from fedkeel.engines.serial import threads
from fedkeel.oracle import Oracle
from fedkeel.records import leaves
from fedkeel.running.session import Session
from fedkeel.running.train import open_session

WORK = fk.Work(epochs=1, batch_size=4, lr=0.05)
METHODS = [
    *fk.METHODS,
    lambda: fk.relaxed(fk.SCAFFOLD(), beta=0.1),
    lambda: fk.sharp(fk.FedDyn(), rho=0.05),
    lambda: fk.stages((fk.FedDyn(), 1), fk.FedAvg()),
]


def jitter(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.01 * torch.randn(x.shape, generator=generator)


class Mortal:
    """Kills the worker that varies a client's samples while there is a marker left; changes nothing."""

    def __init__(self, directory: Path, deaths: int) -> None:
        self.directory = directory
        for death in range(deaths):
            (directory / f"death-{death}").touch()

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        for marker in self.directory.glob("death-*"):
            marker.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return x


def refuse_large(output: Tensor, target: Tensor) -> Tensor:
    if bool((target == 2).any()):
        raise LookupError(f"no class {int(target.max())} here")
    return cross_entropy(output, target)


def clients(count: int = 24, classes: int = 3) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    sizes = [4 + 2 * (i % 5) for i in range(count)]
    return [
        (torch.randn(n, 6, generator=generator), torch.randint(classes, (n,), generator=generator))
        for n in sizes
    ]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.1), nn.Linear(5, 3))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threads(1):  # threads that wait for each other on a busy machine take most of the time
        yield


@pytest.fixture(scope="module")
def shared():
    """Two workers for all methods."""
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    setting = Setting(fk.Task(net()), federation, WORK, 0, torch.device("cpu"))
    with closing(Processes(setting, Oracle(setting.task, setting.device), workers=2)) as engine:
        yield engine


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
        session = open_session(task, federation, algorithm, engine="serial", **settings)
        session.loop = session.loop._replace(engine=engine)
        list(session.rounds())
        return session
    session = open_session(task, federation, algorithm, engine=engine, **settings)
    with closing(session.loop.engine):
        list(session.rounds())
    return session


def assert_equal(one: Session, other: Session) -> None:
    """All that two sessions hold is the same to the bit."""
    for a, b in (
        (one.state.server, other.state.server),
        *((one.store[i], other.store[i]) for i in one.store),
    ):
        for (name, left), (_, right) in zip(leaves(a), leaves(b), strict=True):
            assert torch.equal(left, right), name
    assert torch.equal(one.state.buffers, other.state.buffers)
    assert set(one.store) == set(other.store)
    timeless = [[{k: v for k, v in row.items() if k != "seconds"} for row in s.history] for s in (one, other)]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method()))
def test_every_method_equals_serial_to_the_bit(method, shared):
    assert_equal(play(shared, method()), play("serial", method()))


@pytest.mark.parametrize("options", [{"cohort": 1}, {"cohort": 5}, {"cohort": 24, "weighting": "samples"}])
def test_every_cohort_size_and_weighting_equals_serial(options, shared):
    assert_equal(play(shared, fk.SCAFFOLD(), **options), play("serial", fk.SCAFFOLD(), **options))


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
        ends.append(fk.train(fk.Task(model), federation, fk.FedAvg(), engine=engine, **options).server.x)
    assert torch.equal(*ends)


def test_the_last_chunk_of_each_worker_is_dealt_out_singly_longest_first():
    cut = pieces([10 + place for place in range(27)], workers=2)
    assert [(piece.start, piece.stop) for piece in cut if piece.whole] == [(0, 8), (8, 16)]
    assert [piece.start for piece in cut if not piece.whole] == list(range(26, 15, -1))


def test_a_worker_that_dies_is_replaced_and_changes_nothing(tmp_path):
    died = play("processes", fk.SCAFFOLD(), augment=Mortal(tmp_path, deaths=2))
    assert not list(tmp_path.iterdir())
    assert_equal(died, play("serial", fk.SCAFFOLD(), augment=Mortal(tmp_path, deaths=0)))


def test_workers_killed_between_rounds_are_replaced():
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    session = open_session(
        fk.Task(net()),
        federation,
        fk.SCAFFOLD(),
        rounds=2,
        cohort=19,
        work=WORK,
        engine="processes",
        workers=2,
    )
    with closing(session.loop.engine):
        for _ in session.rounds():
            for pid in session.loop.engine.pids:
                os.kill(pid, signal.SIGKILL)
    assert_equal(session, play("serial", fk.SCAFFOLD()))


def test_a_client_that_keeps_killing_its_workers_is_named(tmp_path):
    with pytest.raises(fk.TooFewClients, match=r"round 0, client \d+: 3 worker processes died .*SIGKILL"):
        play("processes", fk.FedAvg(), augment=Mortal(tmp_path, deaths=99), cohort=1)


def test_divergence_is_the_one_that_serial_meets_first():
    found = []
    for engine in ("serial", "processes"):
        with pytest.raises(fk.Diverged) as caught:
            play(engine, fk.FedAvg(), cohort=10, work=fk.Work(epochs=3, batch_size=4, lr=1e30))
        found.append((str(caught.value), caught.value.round, caught.value.client))
    assert found[0] == found[1]


def test_a_users_exception_keeps_its_type_and_shows_where_it_was_raised():
    federation = fk.Federation.from_arrays([(torch.ones(4, 6), torch.tensor([0, 0, 1, 2]))])
    options = {"rounds": 1, "cohort": 1, "work": fk.Work(steps=1), "engine": "processes", "workers": 1}
    with pytest.raises(LookupError, match="no class 2 here") as caught:
        fk.train(fk.Task(net(), loss=Patient()), federation, fk.FedAvg(), **options)
    assert "In a worker process" in "".join(caught.value.__notes__)


class Patient:
    """A loss that fails in walks only, not when the model is tried out before the run."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return refuse_large(output, target) if output.requires_grad else cross_entropy(output, target)


def test_a_lambda_goes_by_value_where_cloudpickle_is():
    pytest.importorskip("cloudpickle")
    loss = lambda output, target: cross_entropy(output, target, label_smoothing=0.1)  # noqa: E731
    assert_equal(play("processes", fk.FedAvg(), loss=loss), play("serial", fk.FedAvg(), loss=loss))


def test_a_lambda_is_refused_with_the_way_out_where_cloudpickle_is_not(monkeypatch):
    def absent() -> type:
        raise ImportError

    monkeypatch.setattr(pickles, "_by_value", absent)
    with pytest.raises(fk.ConfigError, match=r"the loss cannot be sent .*top level of a module.*cloudpickle"):
        play("processes", fk.FedAvg(), loss=lambda output, target: cross_entropy(output, target) + 0)


def test_what_is_defined_under_the_guard_is_named():
    with pytest.raises(fk.ConfigError, match="finds no Hidden in your script: define it at the top level"):
        pickles.loads(b"c__main__\nHidden\n.", [])


def test_nothing_lies_in_the_shared_memory_directory():
    before = set(os.listdir("/dev/shm"))
    session = play("processes", fk.FedAvg(), rounds=1)
    assert session.history
    assert set(os.listdir("/dev/shm")) == before


def test_no_descriptor_stays_open():
    play("processes", fk.FedAvg(), rounds=1)
    before = len(os.listdir("/proc/self/fd"))
    play("processes", fk.FedAvg(), rounds=1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_run_begun_serially_goes_on_with_processes_to_the_same_bit(tmp_path):
    federation = fk.Federation.from_arrays(clients(), augment=jitter)
    options = {"cohort": 19, "work": WORK, "threads": 1, "workers": 2}

    def run(rounds: int, name: str, engine: str) -> bytes:
        directory = tmp_path / name
        options.update(rounds=rounds, run_dir=directory, resume=True, engine=engine)
        fk.train(fk.Task(net()), federation, fk.SCAFFOLD(), **options)
        return (directory / "model.safetensors").read_bytes() + (directory / "metrics.jsonl").read_bytes()

    run(1, "changed", "serial")
    assert run(3, "changed", "processes") == run(3, "serial", "serial")
