"""The choice of an engine: by a rule for short runs, else measured once and cached."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.engines import build, stopwatch
from fedkeel.engines import choice as choice_module
from fedkeel.engines.choice import Begin, Candidate, affordable, budget, compare, decide
from fedkeel.engines.choice_cache import ChoiceCache, fingerprint
from fedkeel.engines.contract import Choice, Unsuited
from fedkeel.engines.stopwatch import Measurement
from fedkeel.oracle import Oracle
from fedkeel.settings import RunSettings

PROBLEM = tiny_net([8, 8, 8, 8])
WORK = fk.Work(epochs=2, batch_size=4, lr=0.1)
SHORT, LONG = {"rounds": 10, "cohort": 2}, {"rounds": 10**7, "cohort": 4}


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines set back the number that they are told, two: afterwards it is again what it was."""
    before = torch.get_num_threads()
    monkeypatch.setattr(choice_module.torch, "get_num_threads", lambda: 2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_module, "step_flops", lambda *_, **__: 1e8)


def question(model: nn.Module | None = None, **options: Any) -> tuple[RunSettings, Oracle]:
    """Return the settings of a run, a long one by default, and the oracle of its task."""
    task = PROBLEM.task if model is None else fk.Task(model.double())
    settings: dict[str, Any] = {"algorithm": fk.FedAvg(), "work": WORK, **LONG, **options}
    made = RunSettings(task=task, federation=PROBLEM.federation, **settings)
    return made, Oracle(task, torch.device("cpu"))


def figures(**seconds: float) -> Begin:
    """Return a fake measurement: so many seconds for each engine, twice that on two threads."""

    @contextmanager
    def begin(one: Candidate) -> Iterator[Measurement]:
        name = one.engine.replace("-", "_")
        if name not in seconds:
            raise Unsuited(f"{one.engine} is not for this")
        yield lambda: seconds[name] * one.threads

    return begin


def no_measurement(one: Candidate) -> Any:
    raise AssertionError(f"measured {one}")


class Machine:
    """A fake machine: how long each engine takes to build, and its measurements one after another."""

    def __init__(self, **engines: tuple[float, list[float]]) -> None:
        self.now, self.engines = 0.0, engines
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now

    @contextmanager
    def begin(self, one: Candidate) -> Iterator[Measurement]:
        building, measurements = self.engines[one.engine]
        self.now += building
        rest = iter(measurements)

        def measure() -> float:
            seconds = next(rest, measurements[-1])
            self.now += seconds
            self.log.append(one.engine)
            return seconds

        yield measure
        self.log.append(f"{one.engine} closed")

    def choose(self, limit: float) -> Choice:
        return compare([Candidate(name, 1, 0.5) for name in self.engines], self.begin, limit, self.clock)


def ticking(step: float) -> Callable[[], float]:
    """Return a clock that goes on by so many seconds each time it is read."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += step

    return ticks().__next__


def test_a_short_run_follows_the_rule_and_touches_no_cache(tmp_path: Path) -> None:
    cache = ChoiceCache(tmp_path / "cache")
    choice = decide(*question(**SHORT), build, cache=cache, begin=no_measurement)
    assert (choice.engine, choice.threads) == ("serial", 1)
    assert "too short" in choice.reason
    assert not cache.path.exists()


def test_a_long_run_takes_the_fastest(tmp_path: Path) -> None:
    begin = figures(serial=2e-4, stacked_uncompiled=1e-4, stacked=3e-5, processes=9e-5)
    choice = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin)
    assert (choice.engine, choice.threads) == ("stacked", 1)
    assert choice.figures["stacked on 1 thread"] == 30.0
    assert not any("2 threads" in name for name in choice.figures), "the steps are small"


def test_a_little_faster_is_no_reason_to_leave_serial(tmp_path: Path) -> None:
    begin = figures(serial=1.0e-4, stacked_uncompiled=0.95e-4)
    assert decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin).engine == "serial"


def test_the_choice_is_cached_and_stays(tmp_path: Path) -> None:
    first = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=figures(serial=2e-4, stacked=1e-5))
    again = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=no_measurement)
    assert again[:2] == first[:2] == ("stacked", 1)
    assert again.figures == first.figures
    assert "(cached)" in again.reason


def test_whoever_measures_second_takes_the_first_choice(tmp_path: Path) -> None:
    cache = ChoiceCache(tmp_path)
    assert cache.keep("key", {"engine": "serial"}) == {"engine": "serial"}
    assert cache.keep("key", {"engine": "stacked"}) == {"engine": "serial"}
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]


def test_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    cache = ChoiceCache(tmp_path)
    (tmp_path / "key.json").write_text('{"engine": "ser')
    assert cache.read("key") is None
    assert cache.keep("key", {"engine": "stacked"}) == {"engine": "stacked"}
    assert cache.read("key") == {"engine": "stacked"}


def test_without_a_cache_the_rule_decides(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ChoiceCache(tmp_path / "file" / "cache")
    choice = decide(*question(), build, cache=cache, begin=no_measurement)
    assert choice.engine == "serial"
    assert "cannot be written" in choice.reason


def test_the_key_depends_on_model_and_shape_but_not_on_the_method() -> None:
    key = fingerprint(*question(), ["serial"])
    assert key == fingerprint(*question(), ["serial"])
    wider = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
    others = [
        fingerprint(*question(wider), ["serial"]),
        fingerprint(*question(cohort=3), ["serial"]),
        fingerprint(*question(), ["serial", "stacked"]),
        fingerprint(*question(work=fk.Work(epochs=2, batch_size=5)), ["serial"]),
    ]
    assert len({key, *others}) == 5
    assert key == fingerprint(*question(rounds=3), ["serial"])
    assert key == fingerprint(*question(algorithm=fk.SCAFFOLD()), ["serial"])


def test_measuring_takes_at_most_a_twentieth_of_the_run_and_fifteen_seconds() -> None:
    assert budget(question()[0], 1e6) == 15.0
    rounds = [10**k for k in range(1, 8)]
    chosen = [affordable(question(rounds=n)[0], 1e6, None) for n in rounds]
    for n, some in zip(rounds, chosen, strict=True):
        assert sum(one.seconds for one in some) <= max(0.0, 0.05 * n * 4 * 4 * 1.1e-4)
    assert [len(some) for some in chosen] == sorted(len(some) for some in chosen)
    assert chosen[0] == []
    assert {one.engine for one in chosen[-1]} >= {"serial", "stacked", "stacked-uncompiled"}


def test_time_that_runs_out_leaves_the_rest_unmeasured() -> None:
    machine = Machine(serial=(0.1, [0.2]), stacked=(3.0, [0.1]), processes=(9.0, [1e-3]), late=(0.0, [1e-6]))
    choice = machine.choose(limit=8.0)
    assert choice.engine == "processes"
    assert choice.figures["late on 1 thread"] == "no time was left to measure it"
    assert [machine.log.count(name) for name in ("processes", "late")] == [1, 0], "one was ready too late"
    assert [word for word in machine.log if "closed" in word] == [
        "processes closed",
        "stacked closed",
        "serial closed",
    ]


def test_what_is_far_behind_is_measured_once() -> None:
    machine = Machine(serial=(0.0, [0.01]), slow=(0.0, [0.03]), near=(0.0, [0.015]))
    assert machine.choose(limit=15.0).engine == "serial"
    assert machine.log.count("slow") == 1
    assert machine.log.count("near") == 5 + 3


def test_a_long_measurement_is_the_only_one() -> None:
    machine = Machine(serial=(0.0, [20.0]), stacked=(0.0, [1.0]))
    choice = machine.choose(limit=15.0)
    assert choice.engine == "serial"
    assert machine.now == 20.0


def test_the_two_best_are_measured_in_turn_in_the_end() -> None:
    """A figure that was lucky once, or taken while others used the machine, does not decide."""
    machine = Machine(serial=(0.0, [0.05] * 5 + [0.01]), stacked=(0.0, [0.02]), third=(0.0, [0.09]))
    choice = machine.choose(limit=15.0)
    assert machine.log[-9:-3] == ["stacked", "serial"] * 3
    assert choice.engine == "serial"
    assert choice.figures["serial on 1 thread"] == 1e4
    assert choice.figures["third on 1 thread"] == 9e4


def test_models_of_many_operations_are_not_recorded_for_a_measurement() -> None:
    settings, oracle = question()
    assert stopwatch.operations(settings, oracle) < 10
    chosen = affordable(settings, 1e6, None, count=2000)
    assert [one.engine for one in chosen] == ["serial", "processes"]


@pytest.mark.usefixtures("_long_steps")
def test_long_steps_are_measured_on_all_threads(tmp_path: Path) -> None:
    begin = figures(serial=2e-4, stacked_uncompiled=1e-4, stacked=3e-5, processes=9e-5)
    choice = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin)
    assert choice.figures["serial on 2 threads"] == 400.0
    assert (choice.engine, choice.threads) == ("stacked", 1)


@pytest.mark.usefixtures("_long_steps")
def test_a_given_number_of_threads_is_kept(tmp_path: Path) -> None:
    begin = figures(serial=2e-4, stacked=1e-5, stacked_uncompiled=1e-5, processes=1e-9)
    choice = decide(*question(), build, threads=2, cache=ChoiceCache(tmp_path), begin=begin)
    assert choice.threads == 2
    assert all("2 threads" in name for name in choice.figures)
    assert decide(*question(), build, threads=3, cache=ChoiceCache(tmp_path), begin=begin)[:2] == (
        "serial",
        3,
    )


def test_the_reason_why_an_engine_has_no_figure_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        choice_module, "candidates", lambda *_: [Candidate("serial", 1, 0), Candidate("stacked", 1, 0)]
    )
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 4))
    choice = decide(*question(model), build, cache=ChoiceCache(tmp_path))
    assert choice.engine == "serial"
    assert "the layer '1' (Dropout) draws random numbers" in str(choice.figures["stacked on 1 thread"])
    assert isinstance(choice.figures["serial on 1 thread"], float)


def test_what_was_chosen_is_logged_with_the_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fedkeel"):
        decide(*question(), build, cache=ChoiceCache(tmp_path), begin=figures(serial=2e-4, stacked=1e-5))
    assert "engine: stacked, threads: 1" in caplog.text
    assert "serial on 1 thread: 200 µs per step" in caplog.text
    assert "processes on 1 thread: processes is not for this" in caplog.text


@pytest.mark.parametrize("engine", ["serial", "stacked-uncompiled"])
def test_the_stopwatch_counts_a_step_of_one_client(engine: str) -> None:
    settings, oracle = question()
    clients = 2 if engine == "serial" else 4
    with stopwatch.timer(settings, oracle.device, Choice(engine, 1), build, ticking(0.01)) as measure:
        assert measure() == pytest.approx(0.01 / (4 * clients))


def test_measuring_leaves_the_first_model_alone() -> None:
    settings, oracle = question()
    before = oracle.point.clone()
    with stopwatch.timer(settings, oracle.device, Choice("serial", 1), build) as measure:
        measure()
    assert torch.equal(oracle.point, before)


def test_a_run_tells_in_its_manifest_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choice_module, "timer", lambda *_: nullcontext(lambda: 1.0))
    monkeypatch.setattr(choice_module, "budget", lambda *_: 15.0)
    monkeypatch.setattr(
        choice_module, "candidates", lambda *_: [Candidate(name, 1, 0) for name in ("serial", "x")]
    )
    options: dict[str, Any] = {"rounds": 2, "cohort": 2, "work": WORK}
    for name in ("first", "second"):
        fk.train(PROBLEM.task, PROBLEM.federation, fk.FedAvg(), run_dir=tmp_path / name, **options)
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("first", "second")]
    assert [one["engine"] for one in manifests] == ["serial", "serial"]
    assert manifests[0]["engine_choice"]["microseconds_per_step"] == {
        "serial on 1 thread": 1e6,
        "x on 1 thread": 1e6,
    }
    assert manifests[0]["engine_choice"]["reason"].startswith("measured: ")
    assert "(cached)" in manifests[1]["engine_choice"]["reason"]


def test_an_unknown_engine_is_an_error() -> None:
    with pytest.raises(fk.ConfigError, match="did you mean 'stacked'"):
        fk.train(PROBLEM.task, PROBLEM.federation, fk.FedAvg(), rounds=1, cohort=2, work=WORK, engine="stack")
