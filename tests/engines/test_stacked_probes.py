"""Every probe reports under the stacked engine what it reports under the serial one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from problems import tiny_net
from safetensors.torch import save_file
from selecting import one_in
from torch import nn

import fedkeel as fk
from fedkeel.probes import PROBES, Cosine, Divergence, Diversity, Drift, Probe, Switching
from fedkeel.probes.client import WalkTraces
from fedkeel.running.run_directory import read_rows

PROBLEM = tiny_net([3, 8, 5, 11, 4, 7])
METHODS = [
    fk.FedAvg(),
    fk.SCAFFOLD(),
    fk.FedDyn(),
    fk.FedInit(),
    fk.relaxed(fk.FedDyn(), 0.1),
    fk.FedSAM(rho=0.1),
    fk.FedLNAG(),
]


def train(method: Any, engine: str, probes: list[Probe], **options: Any) -> fk.Result:
    given: dict[str, Any] = {"rounds": 4, "cohort": 4, "work": fk.Work(epochs=1, batch_size=3, lr=0.1)}
    given |= {"threads": 1, "probes": probes, "engine": engine} | options
    return flat.train(PROBLEM.task, PROBLEM.federation, method, **given)


def probes_for(method: Any) -> list[Probe]:
    """Return one of every kind, and more where a probe comes in kinds."""
    plain: list[Probe] = [make() for make in PROBES if make is not Switching]
    plain = [Cosine(exact=(1,)) if isinstance(probe, Cosine) else probe for probe in plain]
    more: list[Probe] = [Divergence("cohort")]
    if isinstance(method, fk.SCAFFOLD):
        more.append(Diversity("c_i"))
    if "FedDyn" in repr(method):
        more += [Diversity("h_i"), Switching()]
    return [*plain, *more]


def assert_alike(ours: fk.Result, theirs: fk.Result) -> None:
    for mine, other in zip(ours.history, theirs.history, strict=True):
        assert mine.keys() == other.keys()
        for name in mine.keys() - {"seconds"}:
            expected = other[name]
            if isinstance(expected, float) and not name.startswith("costs/"):
                expected = pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert mine[name] == expected, name


@pytest.mark.parametrize("method", one_in(4, METHODS), ids=repr)
def test_every_probe_sees_what_it_sees_on_serial(method: Any) -> None:
    probes = probes_for(method)
    serial = train(method, "serial", probes)
    stacked = train(method, "stacked-uncompiled", probes)
    assert_alike(stacked, serial)
    assert stacked.history[-1]["costs/gradients"] == serial.history[-1]["costs/gradients"] > 0
    assert stacked.history[-1]["costs/forwards"] == serial.history[-1]["costs/forwards"] > 0


@pytest.mark.slow(4)
@pytest.mark.parametrize("method", [fk.FedAvg(), fk.FedSAM(rho=0.1), fk.FedLNAG()], ids=repr)
def test_probes_see_the_same_where_steps_are_compiled(method: Any) -> None:
    probes = probes_for(method)
    assert_alike(train(method, "stacked", probes), train(method, "serial", probes))


@pytest.mark.parametrize("engine", ["stacked-uncompiled", pytest.param("stacked", marks=pytest.mark.slow)])
def test_gradients_against_a_reference_are_taken_at_the_client(engine: str, tmp_path: Path) -> None:
    save_file(dict(PROBLEM.task.model.state_dict()), tmp_path / "model.safetensors")
    probes: list[Probe] = [Switching(reference=str(tmp_path / "model.safetensors"))]
    assert_alike(train(fk.FedDyn(), engine, probes), train(fk.FedDyn(), "serial", probes))


def test_gradients_for_probes_leave_statistics_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)).double()
    save_file(dict(model.state_dict()), tmp_path / "model.safetensors")
    federation, task = tiny_net([6, 3, 9]).federation, fk.Task(model)
    options: dict[str, Any] = {"rounds": 3, "cohort": 2, "work": fk.Work(epochs=1, batch_size=3, lr=0.1)}
    probes = [Switching(reference=str(tmp_path / "model.safetensors")), Drift()]
    serial, stacked = (
        flat.train(task, federation, fk.FedDyn(), engine=name, threads=1, probes=probes, **options)
        for name in ("serial", "stacked-uncompiled")
    )
    assert_alike(stacked, serial)


def test_probes_do_not_change_the_run() -> None:
    plain = train(fk.FedDyn(), "stacked-uncompiled", [])
    watched = train(fk.FedDyn(), "stacked-uncompiled", probes_for(fk.FedDyn()))
    assert torch.equal(plain.server.x, watched.server.x)
    for client, memory in plain.client_states.items():
        assert torch.equal(memory.h_i, watched.client_states[client].h_i)


@pytest.mark.slow
def test_varying_cohorts_weights_and_a_median() -> None:
    options: dict[str, Any] = {"cohort": 0.5, "sampling": "bernoulli", "weighting": "samples", "rounds": 5}
    probes: list[Probe] = [Drift(), Diversity(), Divergence(), Cosine()]
    for extra in ({}, {"reducer": fk.Median()}):
        ours, theirs = (
            train(fk.FedAvg(), name, probes, **options, **extra) for name in ("stacked-uncompiled", "serial")
        )
        assert_alike(ours, theirs)


class _Stop(Exception):
    pass


def stop_after_three(row: dict[str, Any]) -> None:
    if row["round"] == 2:
        raise _Stop


@pytest.mark.slow
@pytest.mark.parametrize("method", [fk.FedDyn(), fk.SCAFFOLD()], ids=repr)
def test_a_resumed_run_reports_the_same_numbers_to_the_bit(method: Any, tmp_path: Path) -> None:
    probes, options = probes_for(method), {"rounds": 6}
    saved: dict[str, Any] = {"run_dir": tmp_path / "run", "checkpoint_every": 2}
    with pytest.raises(_Stop):
        train(method, "stacked-uncompiled", probes, callbacks=stop_after_three, **saved, **options)
    resumed = train(method, "stacked-uncompiled", probes, resume=True, **saved, **options)
    whole = train(method, "stacked-uncompiled", probes, **options)
    rows = [resumed.history, whole.history, read_rows(tmp_path / "run")]
    first, *others = [[{k: v for k, v in row.items() if k != "seconds"} for row in run] for run in rows]
    assert all(first == other for other in others)
    switched = {**saved, "run_dir": tmp_path / "switched"}
    with pytest.raises(_Stop):
        train(method, "serial", probes, callbacks=stop_after_three, **switched, **options)
    with pytest.warns(UserWarning, match="begun with engine serial .now stacked-uncompiled"):
        went_on = train(method, "stacked-uncompiled", probes, resume=True, **switched, **options)
    assert_alike(went_on, whole)


def test_walks_are_traced_only_for_probes_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(WalkTraces, "__call__", refuse)
    train(fk.FedAvg(), "stacked-uncompiled", [Diversity(), Divergence()])
    with pytest.raises(AssertionError):
        train(fk.FedAvg(), "stacked-uncompiled", [Drift()])
