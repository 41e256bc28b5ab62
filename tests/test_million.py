"""A million registered clients are a normal run: what costs is who takes part."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import settings_of
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.running.population import Population

CLIENTS, FEATURES = 1_000_000, 100


def memory(key: str) -> int:
    """Return a figure of this process's memory in MB: VmRSS now, VmHWM the highest since `mark`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) // 1024


def mark() -> int:
    """Start to watch the highest use of memory; return the present one."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def scale(x: Tensor) -> Tensor:
    return x.float() / 255


@pytest.fixture(scope="module")
def million() -> fk.Federation:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (CLIENTS, FEATURES), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, 10, (CLIENTS,), generator=generator)
    before, started = mark(), time.perf_counter()
    federation = fk.Federation(
        (x, y), torch.arange(CLIENTS), torch.arange(CLIENTS + 1), test=(x[:500], y[:500]), transform=scale
    )
    print(f"federation: {time.perf_counter() - started:.2f} s, {memory('VmHWM') - before} MB")
    return federation


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [fk.FedInit(beta=1e-6), fk.SCAFFOLD()], ids=["FedInit", "SCAFFOLD"])
def test_a_run_costs_its_participants(million, algorithm, tmp_path):
    torch.manual_seed(0)
    task = fk.Task(nn.Linear(FEATURES, 10))
    before, started, rounds = mark(), time.perf_counter(), []
    result = fk.train(
        task,
        million,
        algorithm,
        rounds=4,
        cohort=50,
        work=fk.Work(epochs=1, batch_size=10),
        aggregation=fk.Aggregation(weighting="samples"),
        execution=fk.Execution("serial", checkpoint_every=1),
        run_dir=tmp_path,
        callbacks=lambda row: rounds.append((time.perf_counter(), row["seconds"])),
    )
    growth, start = memory("VmHWM") - before, rounds[0][0] - rounds[0][1] - started
    print(
        f"start {start:.2f} s, round {rounds[-1][1]:.3f} s, {growth} MB, {len(result.client_states)} states"
    )
    assert growth <= 200
    assert len(result.client_states) == len({client for row in result.history for client in row["cohort"]})
    kept = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert kept < 4 * 50 * 2 * 10 * FEATURES * 4 * 3  # memories of participants, nothing a registered client


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
def test_a_cohort_is_drawn_without_looking_at_the_population(million, sampling):
    drawn = Population.of(
        settings_of(
            fk.Task(torch.nn.Linear(FEATURES, 10)),
            million,
            fk.FedAvg(),
            rounds=100,
            cohort=100,
            sampling=sampling,
            weighting="samples",
            work=fk.Work(steps=1),
        )
    )
    before, started = mark(), time.perf_counter()
    for round in range(100):
        clients = drawn.draw(round)
        cohort = drawn.cohort(round, 100, clients)
        assert cohort.share == len(clients) / CLIENTS
    print(f"{sampling}: {(time.perf_counter() - started) * 10:.2f} ms per cohort")
    assert memory("VmHWM") - before < 4


@pytest.mark.slow
def test_a_list_of_many_small_arrays_becomes_a_federation(million):
    some = 200_000
    x, y = million.x[:some].numpy(), million.y[:some].numpy()
    pairs = [(x[i : i + 1], y[i : i + 1]) for i in range(some)]
    started = time.perf_counter()
    federation = fk.Federation.from_arrays(pairs)
    print(f"{some} pairs: {time.perf_counter() - started:.2f} s")
    assert len(federation) == some
    assert np.array_equal(federation.samples(some - 1)[0].numpy(), x[-1:])
