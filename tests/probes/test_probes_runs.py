"""Probes in runs: engines, resuming, stages, files, and what they cost when nobody asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import flat
import pytest
import torch
from problems import tiny_net

import fedkeel as fk
from fedkeel.common.frozen import frozen
from fedkeel.core.oracle import Oracle
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse_method, parse_probe
from fedkeel.probes import PROBES, Cosine, Divergence, Diversity, Drift, Layers, Switching
from fedkeel.probes.base import Probe, number
from fedkeel.probes.client import WalkTrace
from fedkeel.running.run_directory import read_rows

SIZES = [3, 8, 5, 11, 4, 7, 6, 9, 5, 4]
WORK = fk.Work(epochs=1, batch_size=3, lr=0.1)
ALL = [
    Divergence(),
    Divergence("cohort"),
    Drift(every=2),
    Diversity(),
    Diversity("h_i"),
    Cosine(exact=(1,), each_round=True),
    fk.probes.Losses(every=2),
    fk.probes.ExcessRisk(every=2),
    fk.probes.ClientAccuracy(every=2),
    Layers(),
    Switching(),
]


def train(algorithm: Any = None, **options: Any) -> fk.Result:
    problem = tiny_net(SIZES)
    given: dict[str, Any] = {"rounds": 6, "cohort": 9, "work": WORK, "engine": "serial"} | options
    return flat.train(problem.task, problem.federation, algorithm or fk.FedDyn(), **given)


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


class _Stop(Exception):
    pass


def stopped(after: int) -> Any:
    def callback(row: dict[str, Any]) -> None:
        if row["round"] + 1 == after:
            raise _Stop

    return callback


def test_probes_do_not_change_the_run() -> None:
    plain, watched = train(), train(probes=ALL)
    assert torch.equal(plain.server.x, watched.server.x)
    for i, memory in plain.client_states.items():
        assert torch.equal(memory.h_i, watched.client_states[i].h_i)
    assert len(watched.client_states) == len(plain.client_states)


def test_resume_reports_the_same_numbers_to_the_bit(tmp_path: Path) -> None:
    options = {"probes": ALL, "cohort": 4}
    with pytest.raises(_Stop):
        train(run_dir=tmp_path / "a", checkpoint_every=2, callbacks=stopped(3), **options)
    resumed = train(run_dir=tmp_path / "a", resume=True, **options)
    whole = train(**options)
    assert timeless(resumed.history) == timeless(whole.history) == timeless(read_rows(tmp_path / "a"))


def test_notes_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    near = train(probes=ALL, cohort=4)
    monkeypatch.setenv("FEDKEEL_MEMORY_BUDGET", "1K")
    assert timeless(train(probes=ALL, cohort=4).history) == timeless(near.history)


def test_other_probes_are_another_experiment(tmp_path: Path) -> None:
    train(run_dir=tmp_path / "a", probes=[Drift()])
    with pytest.raises(fk.StorageError, match="its probes is"):
        train(run_dir=tmp_path / "a", resume=True, rounds=8)


def test_processes_report_what_serial_reports() -> None:
    serial = train(probes=ALL, rounds=3)
    workers = train(probes=ALL, rounds=3, engine="processes", workers=2)
    assert timeless(serial.history) == timeless(workers.history)


def test_probes_leave_the_choice_of_the_engine_alone() -> None:
    assert train(probes=[Drift()], engine="auto").history[-1]["drift"] > 0


def test_nobody_traces_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(WalkTrace, "__call__", refuse)
    train(probes=[Diversity(), Divergence()])
    with pytest.raises(fk.ClientFailed) as failed:
        train(probes=[Drift()])
    assert isinstance(failed.value.__cause__, AssertionError)


def test_notes_and_curves_live_on_through_a_change_of_stage(tmp_path: Path) -> None:
    """Cosines and divergence go on; the memories' diversity ends with the memories."""
    algorithm = fk.stages((fk.FedDyn(), 3), fk.FedAvg())
    probes = [Cosine(), Divergence(), Diversity("h_i")]
    result = train(algorithm, probes=probes)
    assert all(row["cosine/previous"] is not None for row in result.history[2:])
    assert [row["diversity/h_i"] is None for row in result.history] == [False] * 3 + [True] * 3
    with pytest.raises(_Stop):
        train(
            algorithm,
            probes=probes,
            run_dir=tmp_path / "a",
            checkpoint_every=1,
            callbacks=stopped(4),
            cohort=2,
        )
    resumed = train(algorithm, probes=probes, run_dir=tmp_path / "a", resume=True, cohort=2)
    assert timeless(resumed.history) == timeless(train(algorithm, probes=probes, cohort=2).history)


@pytest.mark.slow
def test_the_rule_switches_after_the_round_the_probe_names() -> None:
    watched = train(probes=[Switching(zeta=1e-4, warm_up=2)])
    named = next(row["switching/round"] for row in watched.history if row["switching/round"])
    assert named == 3
    for algorithm in (
        fk.stages((fk.FedDyn(), fk.SwitchingRule(zeta=1e-4, warm_up=2)), fk.FedAvg()),
        parse_method("stages((feddyn, switchingrule(zeta=1e-4, warm_up=2)), fedavg)"),
    ):
        switched = train(algorithm)
        assert [row["stage"] for row in switched.history] == [0] * named + [1] * (6 - named)
        assert parse_method(repr(algorithm)) == algorithm
    never = train(fk.stages((fk.FedDyn(), fk.SwitchingRule(zeta=1e9)), fk.FedAvg()))
    assert {row["stage"] for row in never.history} == {0}


def test_probes_in_files(tmp_path: Path) -> None:
    experiment = Experiment(probes=["divergence", "diversity(every=5)"], rounds=2)
    assert [parse_probe(text) for text in experiment.probes or ()] == [Divergence(), Diversity(every=5)]
    (tmp_path / "e.toml").write_text(experiment.to_toml())
    assert Experiment.load(tmp_path / "e.toml") == experiment
    assert experiment.with_settings(['probes=["drift"]']).probes == ["drift"]
    with pytest.raises(fk.ConfigError, match="there is no probe 'divergense'; did you mean 'Divergence'"):
        Experiment.from_table({"probes": ["divergense"]})
    assert "probes" not in Experiment().table()


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        (Diversity("c_i"), r"no client of FedDyn\(.*\) keeps that state"),
        (fk.probes.ClientAccuracy(metric="f1"), "the task has no such metric"),
        (Switching(reference="nowhere.safetensors"), "cannot be read as a model"),
        ("drift", "'drift' is not a probe"),
    ],
)
def test_what_cannot_work_is_said_before_the_first_round(probe: Any, message: str) -> None:
    with pytest.raises(fk.ConfigError, match=message):
        train(probes=[probe])


def test_more_that_cannot_work() -> None:
    with pytest.raises(fk.ConfigError, match="needs weighting='uniform'"):
        train(probes=[Diversity("h_i")], weighting="samples")
    with pytest.raises(fk.ConfigError, match="no stage keeps FedDyn's h"):
        train(fk.FedAvg(), probes=[Switching()])
    with pytest.raises(fk.ConfigError, match="both report 'local_updates'"):
        train(probes=[Drift(), Drift(every=2)])


@pytest.mark.parametrize("make", PROBES, ids=lambda make: make.__name__)
def test_every_probe_reads_back_and_documents_its_columns(make: Any) -> None:
    probe = make()
    assert parse_probe(repr(probe)) == probe
    layout = Oracle(tiny_net(SIZES).task, torch.device("cpu")).layout
    for name in probe.names(layout):
        kind = name.replace("layers/0.weight", "layers/NAME").partition("/")
        assert kind[0] in make.__doc__


@frozen
class Largest(Probe):
    """A probe of one's own: the largest coordinate that a client has moved, on average."""

    every: int = 1
    at_clients = True

    class Measure(NamedTuple):
        largest: torch.Tensor

    def names(self, layout: Any) -> tuple[str, ...]:
        return ("largest",)

    def measure(self, view: Any, notes: Any, brief: Any) -> Any:
        return self.Measure(number(float(view.move.abs().max()))), notes

    def report(self, state: Any, seen: Any) -> Any:
        return {"largest": float(seen.measures.largest)}, state


def test_a_probe_of_ones_own() -> None:
    assert all(row["largest"] > 0 for row in train(probes=[Largest()]).history)


@pytest.mark.parametrize("clip_on", ["gradient", "direction", "corrected"])
@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_clipped_steps_are_counted_where_they_are_clipped(engine: str, clip_on: Any) -> None:
    def share(clip: float) -> list[float]:
        work = fk.Work(epochs=2, batch_size=3, lr=0.1, clip=clip, clip_on=clip_on, weight_decay=0.01)
        run = train(fk.FedAvg(), work=work, probes=[fk.probes.Clipping()], engine=engine)
        return [row["clipped"] for row in run.history]

    assert share(1e-9) == [1.0] * 6
    assert share(1e9) == [0.0] * 6
    some = share(1.0)
    assert 0 < sum(some) / len(some) < 1
    if engine == "stacked":
        work = fk.Work(epochs=2, batch_size=3, lr=0.1, clip=1.0, clip_on=clip_on, weight_decay=0.01)
        alone = train(fk.FedAvg(), work=work, probes=[fk.probes.Clipping()])
        assert some == pytest.approx([row["clipped"] for row in alone.history])

    assert {row["clipped"] for row in train(probes=[fk.probes.Clipping()]).history} == {0.0}
