"""Worker processes evaluate models as one process does, to the bit, whatever happens to them meanwhile."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import flat
import pytest
import torch
from problems import session_of, settings_of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.jobs import engine as job_engine
from fedkeel.engines.pool import Processes, pool
from fedkeel.engines.serial import threads

pytestmark = pytest.mark.slow

WORK = fk.Work(steps=2, batch_size=8, lr=0.05)
SAMPLES, FEATURES = 3500, 31  # a short last batch, and every other batch off the alignment of the first


@pytest.fixture(autouse=True)
def everything_is_shared(monkeypatch):
    """Send out the smallest batches, on one thread; lose no time over workers that die."""
    monkeypatch.setattr(job_engine, "WORTH_SENDING", 0.0)
    monkeypatch.setattr(pool, "BACK_OFF_SECONDS", 0.01)
    with threads(1):
        yield


def draw(*shape: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator), torch.randint(3, shape[:1], generator=generator)


def clients(*shape: int, count: int = 4) -> list[tuple[Tensor, Tensor]]:
    return [draw(*shape, seed=10 + i) for i in range(count)]


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, 3))


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    )


@fk.mean_over_samples
def margin(output: Tensor, target: Tensor) -> Tensor:
    """A metric of the user's own."""
    return (output.double().max(1).values - target.double()).mean()


@fk.mean_over_samples
def process_id(output: Tensor, target: Tensor) -> Tensor:
    return torch.tensor(float(os.getpid()))


class Mortal:
    """A metric that kills the worker that asks for it while there is a marker left."""

    def __init__(self, directory: Path, deaths: int) -> None:
        self.directory, self.parent = directory, os.getpid()
        for death in range(deaths):
            (directory / f"death-{death}").touch()

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        markers = [] if os.getpid() == self.parent else list(self.directory.glob("death-*"))
        for marker in markers:
            marker.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return output.mean()


class Fussy:
    """A metric that fails on samples of a class that only some batches hold."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if bool((target == 7).any()):
            raise LookupError(f"{int((target == 7).sum())} samples of class 7")
        return output.mean()


def rows(name: str, model: nn.Module, federation: fk.Federation, **options: object) -> list[dict]:
    """Return the rows of two rounds, without the time they took."""
    task = fk.Task(
        model, metrics={"accuracy": fk.accuracy, "mine": fk.mean_over_samples(options.pop("metric", margin))}
    )
    settings = {"rounds": 2, "cohort": 3, "work": WORK, "engine": name, "threads": 1, "workers": 2}
    result = flat.train(task, federation, fk.FedDyn(), **settings, **options)
    return [{key: value for key, value in row.items() if key != "seconds"} for row in result.history]


def assert_alike(model: nn.Module, federation: fk.Federation, **options: object) -> None:
    shared = rows("processes", model, federation, **options)
    assert shared == rows("serial", model, federation, **options)
    assert {"loss", "loss/gamma", "mine", "mine/gamma"} <= set(shared[-1])


def evaluated_by(
    federation: fk.Federation, data: tuple[Tensor, Tensor], workers: int = 2, **options: object
) -> float:
    """Return the mean process id of those who evaluated a model, sample by sample."""
    task = fk.Task(mlp(), metrics={"pid": process_id})
    settings = settings_of(task, federation, fk.FedAvg(), rounds=1, cohort=3, work=WORK, **options)
    oracle = Oracle(settings.task, torch.device("cpu"))
    with closing(Processes(settings, oracle, workers)) as shared:
        return shared.evaluate([oracle.point.clone()], oracle.buffers.clone(), data)[0]["pid"]


def shifted(tensor: Tensor) -> Tensor:
    """Return the same numbers, four bytes off."""
    room = tensor.new_empty(tensor.numel() + 1)
    return room[1:].view_as(tensor).copy_(tensor)


def test_an_mlp_is_evaluated_as_by_serial():
    assert_alike(mlp(), fk.Federation.from_arrays(clients(20, FEATURES), draw(SAMPLES, FEATURES)))


@pytest.mark.parametrize("nhwc", [False, True])
def test_a_cnn_is_evaluated_as_by_serial(nhwc):
    x, y = draw(SAMPLES, 3, 8, 8)
    x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) if nhwc else x
    assert_alike(cnn(), fk.Federation.from_arrays(clients(20, 3, 8, 8), (x, y)))


def test_samples_off_alignment_are_evaluated_as_by_serial():
    x, y = draw(SAMPLES, FEATURES)
    assert_alike(mlp(), fk.Federation.from_arrays(clients(20, FEATURES), (shifted(x), y)))


@pytest.mark.parametrize("held_out", [0, 1])
def test_all_clients_data_is_evaluated_as_by_serial(held_out):
    federation = fk.Federation.from_arrays(clients(900, FEATURES)).hold_out(held_out)
    assert_alike(mlp(), federation, evaluate_on="clients")
    assert evaluated_by(federation, federation.everything, evaluate_on="clients") != os.getpid()


def test_validation_data_is_evaluated_as_by_serial_and_by_workers():
    federation = fk.Federation.from_arrays(clients(900, FEATURES)).with_validation(0.5)
    assert_alike(mlp(), federation, evaluate_on="clients")
    assert rows("serial", mlp(), federation)[-1]["validation_loss"] is not None
    assert evaluated_by(federation, federation.validation_samples) != os.getpid()


def test_beside_a_test_set_workers_evaluate_all_clients_data_where_that_takes_no_copy():
    federation = fk.Federation.from_arrays(clients(900, FEATURES), draw(1000, FEATURES))
    assert evaluated_by(federation, federation.everything) != os.getpid()
    part = federation.hold_out(1)
    assert evaluated_by(part, part.everything) == os.getpid()


def test_probes_find_what_they_find_with_serial():
    federation = fk.Federation.from_arrays(clients(900, FEATURES), draw(SAMPLES, FEATURES)).hold_out(1)
    assert_alike(mlp(), federation, probes=[fk.probes.Losses(every=1)])


def test_workers_evaluate_what_they_hold_and_the_main_process_the_rest():
    x, y = draw(SAMPLES, FEATURES)
    federation = fk.Federation.from_arrays(clients(20, FEATURES), (x, y))
    assert evaluated_by(federation, federation.test) != os.getpid()
    assert evaluated_by(federation, federation.test, workers=1) == os.getpid()
    assert evaluated_by(federation, (x, y)) == os.getpid()


def test_a_single_batch_is_evaluated_in_the_main_process():
    federation = fk.Federation.from_arrays(clients(20, FEATURES), draw(1000, FEATURES))
    assert evaluated_by(federation, federation.test) == os.getpid()


def test_quick_batches_are_evaluated_in_the_main_process(monkeypatch):
    monkeypatch.setattr(job_engine, "WORTH_SENDING", 60.0)
    federation = fk.Federation.from_arrays(clients(20, FEATURES), draw(SAMPLES, FEATURES))
    assert evaluated_by(federation, federation.test) == os.getpid()


def test_samples_with_gaps_between_them_lie_in_workers_as_they_do_here():
    x, y = draw(SAMPLES, FEATURES + 5)
    federation = fk.Federation.from_arrays(clients(20, FEATURES), (x[:, :FEATURES], y))
    assert evaluated_by(federation, federation.test) != os.getpid()
    assert_alike(mlp(), federation)


def test_a_worker_that_dies_while_evaluating_changes_nothing(tmp_path):
    federation = fk.Federation.from_arrays(clients(20, FEATURES), draw(SAMPLES, FEATURES))
    died = rows("processes", mlp(), federation, metric=Mortal(tmp_path, deaths=2))
    assert not list(tmp_path.iterdir())
    assert died == rows("serial", mlp(), federation, metric=Mortal(tmp_path, deaths=0))


@pytest.mark.slow(5)
def test_samples_that_keep_killing_workers_are_named(tmp_path):
    federation = fk.Federation.from_arrays(clients(20, FEATURES), draw(1500, FEATURES))
    told = r"evaluation, samples \d+ to \d+ of the test set: 3 worker processes died .*SIGKILL"
    with pytest.raises(fk.TooFewClients, match=told):
        rows("processes", mlp(), federation, metric=Mortal(tmp_path, deaths=99))


def test_a_metric_that_fails_fails_as_with_serial():
    x, y = draw(SAMPLES, FEATURES)
    y[[1500, 2500, 2501]] = 7
    federation = fk.Federation.from_arrays(clients(20, FEATURES), (x, y))
    task = fk.Task(
        mlp(), loss=fk.mean_over_samples(Lenient()), metrics={"fussy": fk.mean_over_samples(Fussy())}
    )
    for name in ("serial", "processes"):
        options = {"rounds": 1, "cohort": 3, "work": WORK, "engine": name, "workers": 2}
        session = session_of(task, federation, fk.FedDyn(), **options)
        with closing(session), pytest.raises(LookupError, match=r"^1 samples of class 7"):
            list(session.rounds())


class Lenient:
    """A loss that knows three classes and takes the rest for the first."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target % 7)
