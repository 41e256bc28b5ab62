"""The Ray engine gives the serial engine's result to the bit, on nodes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import flat
import pytest
import torch
from engine_runs import METHODS, WORK, assert_equal, clients, jitter, net
from problems import session_of, settings_of, tiny_net
from torch import Tensor, nn
from variants import SHAPED_WORK

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.jobs import engine as job_engine
from fedkeel.engines.ray import RayEngine, dispatch
from fedkeel.running.session import Session
from fedkeel.settings.options import Execution

pytest.importorskip("ray", reason='needs Ray: pip install "fedkeel[ray]", or `make ray`')

DTYPES = [torch.float64, torch.float32]


def play(nodes: object, engine: str | RayEngine, algorithm: object, **options: object) -> Session:
    """Play two rounds; with two nodes a cohort of 19 is one whole chunk and eleven single clients."""
    dtype, augment = options.pop("dtype", torch.float64), options.pop("augment", jitter)
    task = fk.Task(net().to(dtype))
    federation = fk.Federation.from_arrays(clients(), test=clients()[3], augment=augment)
    settings = {"rounds": 2, "cohort": 19, "work": WORK, "threads": 1, **options}
    if engine == "ray":
        settings["address"] = nodes.address
    made = "serial" if isinstance(engine, RayEngine) else engine
    session = session_of(task, federation, algorithm, engine=made, **settings)
    if isinstance(engine, RayEngine):
        session.context = session.context._replace(engine=engine)
        list(session.rounds())
        return session
    with closing(session):
        list(session.rounds())
    return session


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def shared(nodes, request) -> Iterator[tuple[torch.dtype, RayEngine]]:
    """An engine for all methods."""
    task = fk.Task(net().to(request.param))
    federation = fk.Federation.from_arrays(clients(), test=clients()[3], augment=jitter)
    settings = settings_of(task, federation, fk.FedAvg(), rounds=2, cohort=19, work=WORK)
    how = Execution(engine="ray", address=nodes.address)
    with closing(RayEngine(settings, Oracle(task, torch.device("cpu")), how)) as engine:
        yield request.param, engine


@pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method()))
def test_every_method_equals_serial_to_the_bit(nodes, shared, method):
    dtype, engine = shared
    found = play(nodes, engine, method(), dtype=dtype)
    assert_equal(found, play(nodes, "serial", method(), dtype=dtype))


@pytest.mark.parametrize("options", [{"cohort": 1}, {"cohort": 24, "weighting": "samples"}])
def test_every_cohort_size_and_weighting_equals_serial(nodes, shared, options):
    dtype, engine = shared
    found = play(nodes, engine, fk.SCAFFOLD(), dtype=dtype, **options)
    assert_equal(found, play(nodes, "serial", fk.SCAFFOLD(), dtype=dtype, **options))


def test_momentum_rates_within_a_round_and_clipping_equal_serial(nodes):
    ends = [play(nodes, engine, fk.SCAFFOLD(), work=SHAPED_WORK) for engine in ("ray", "serial")]
    assert_equal(*ends)


@pytest.mark.parametrize("method", [fk.SCAFFOLD(), fk.stages((fk.FedDyn(), 1), fk.FedAvg())], ids=repr)
def test_large_uploads_are_summed_up_on_the_nodes_to_the_same_bit(nodes, shared, method, monkeypatch):
    monkeypatch.setattr(dispatch, "_LARGE", 0)
    sums = []
    submit = dispatch.Cluster.submit
    monkeypatch.setattr(
        dispatch.Cluster, "submit", lambda *a, **k: (sums.append(a[1].__name__), submit(*a, **k))[1]
    )
    dtype, engine = shared
    assert_equal(
        play(nodes, engine, method, dtype=dtype, cohort=24),
        play(nodes, "serial", method, dtype=dtype, cohort=24),
    )
    assert sums.count("sum_chunk") == 2 * 2, "of three chunks in each of two rounds one ran as a whole"


def test_probes_and_ragged_clients_equal_serial(nodes):
    probes = [fk.probes.Divergence(), fk.probes.Diversity(), fk.probes.Drift()]
    found = play(nodes, "ray", fk.FedCM(), probes=probes)
    assert_equal(found, play(nodes, "serial", fk.FedCM(), probes=probes))


HOSTILE = [
    {"reducer": fk.MultiKrum(0.2), "attack": fk.Collusion(0.2)},
    {"reducer": fk.GeometricMedian(), "attack": fk.LabelFlip(0.2)},
    {"reducer": fk.TrimmedMean(0.2), "attack": fk.RandomNoise(0.2), "weighting": "samples"},
]


@pytest.mark.parametrize("options", HOSTILE, ids=lambda options: str(options["attack"]))
def test_hostile_clients_and_robust_reducers_equal_serial(nodes, options):
    for method in (fk.SCAFFOLD(), fk.FedNova()):
        assert_equal(play(nodes, "ray", method, **options), play(nodes, "serial", method, **options))


def test_private_updates_equal_serial(nodes):
    method, work = fk.private(fk.SCAFFOLD(), clip=0.05, noise=0.8, delta=1e-3), fk.Work(steps=3, lr=0.1)
    problem = tiny_net([5, 12, 9, 3, 7, 3, 8, 4, 11, 6])  # without BatchNorm, which private updates refuse
    given = {"rounds": 2, "cohort": 9, "work": work, "threads": 1}
    ours, theirs = (
        flat.train(problem.task, problem.federation, method, **given, **where)
        for where in ({"engine": "ray", "address": nodes.address}, {"engine": "serial"})
    )
    assert torch.equal(ours.server.x, theirs.server.x)
    assert torch.equal(ours.server.c, theirs.server.c)
    assert ours.history[-1]["epsilon"] == theirs.history[-1]["epsilon"]


def test_spilled_memories_equal_serial(nodes, monkeypatch):
    whole = play(nodes, "serial", fk.SCAFFOLD(), rounds=4)
    monkeypatch.setenv("FEDKEEL_MEMORY_BUDGET", "2K")
    spilled = play(nodes, "ray", fk.SCAFFOLD(), rounds=4)
    assert_equal(spilled, whole)
    assert spilled.store.in_file


def test_evaluation_on_the_nodes_equals_serial(nodes, monkeypatch):
    monkeypatch.setattr(job_engine, "WORTH_SENDING", 0.0)
    monkeypatch.setattr(job_engine, "EVALUATION_BATCH", 4)
    assert_equal(
        play(nodes, "ray", fk.FedDyn(), evaluate_on="clients"),
        play(nodes, "serial", fk.FedDyn(), evaluate_on="clients"),
    )


def test_what_a_function_defines_goes_to_the_nodes_and_comes_back(nodes):
    class Kept(NamedTuple):
        count: Tensor

    @fk.method
    class Counting(fk.Algorithm):
        """FedAvg whose clients count their rounds."""

        Client = Kept

        def init_client(self, x: Tensor) -> Kept:
            return Kept(x.new_zeros(1))

        def finish(self, walk: fk.Walk, down: object, client: Kept, facts: fk.Facts) -> tuple[object, Kept]:
            up, _ = super().finish(walk, down, fk.Algorithm.Client(), facts)
            return up, Kept(client.count + 1)

    class Net(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).tanh()

    ends = []
    for engine, address in (("serial", None), ("ray", nodes.address)):
        torch.manual_seed(0)
        task, federation = fk.Task(Net(6, 3)), fk.Federation.from_arrays(clients())
        options = {"rounds": 2, "cohort": 10, "work": WORK, "threads": 1}
        ends.append(flat.train(task, federation, Counting(), engine=engine, address=address, **options))
    assert torch.equal(ends[0].server.x, ends[1].server.x)
    assert all(type(memory) is Kept for memory in ends[1].client_states.values())


def test_a_failure_in_a_client_is_the_one_that_serial_meets_first(nodes):
    def refuse(x: Tensor, generator: torch.Generator) -> Tensor:
        raise LookupError(f"{len(x)} samples")

    told = []
    for engine in ("serial", "ray"):
        with pytest.raises(fk.ClientFailed, match=r"round 0, client .*LookupError") as caught:
            play(nodes, engine, fk.FedAvg(), augment=refuse)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "In a Ray worker on" in "".join(caught.value.__cause__.__notes__)


def test_clients_that_fail_are_left_out_as_serial_leaves_them_out(nodes, monkeypatch):
    def refuse(x: Tensor, generator: torch.Generator) -> Tensor:
        if len(x) > 10:
            raise LookupError(f"{len(x)} samples")
        return x

    faulty = {"augment": refuse, "on_client_error": "skip", "min_clients": 0.5}
    serial = play(nodes, "serial", fk.SCAFFOLD(), **faulty)
    assert serial.history[0]["skipped"]
    assert_equal(play(nodes, "ray", fk.SCAFFOLD(), **faulty), serial)
    monkeypatch.setattr(dispatch, "_LARGE", 0)
    assert_equal(play(nodes, "ray", fk.SCAFFOLD(), **faulty), serial)


def test_too_few_clients_are_the_same_failure_as_in_serial(nodes):
    def refuse(x: Tensor, generator: torch.Generator) -> Tensor:
        raise LookupError("none")

    told = []
    for engine in ("serial", "ray"):
        with pytest.raises(fk.TooFewClients, match="0 of 19 clients answered") as caught:
            play(nodes, engine, fk.FedAvg(), augment=refuse, on_client_error="skip")
        told.append(str(caught.value))
    assert told[0] == told[1]
