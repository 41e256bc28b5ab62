"""Which engines are tried: no choice, with what it took to choose, is far from the best engine.

Engines and clock are fakes: a machine that knows how long each engine takes to start and to step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from selecting import one_in

from fedkeel.engines import estimates as estimates_module
from fedkeel.engines.choice import compare
from fedkeel.engines.contract import Choice
from fedkeel.engines.estimates import Candidate, RunSize, candidates, measuring_seconds
from fedkeel.engines.stopwatch import Measurement


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates_module.torch, "get_num_threads", lambda: 2)


class Machine:
    """A fake machine: how long each engine takes to start, and its seconds per step, one after another."""

    def __init__(self, size: RunSize, **engines: tuple[float, list[float]]) -> None:
        self.now, self.size = 0.0, size
        self.engines = {name.replace("_", "-"): known for name, known in engines.items()}
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now

    @contextmanager
    def begin(self, one: Candidate) -> Iterator[Measurement]:
        setup, measurements = self.engines[_name(one)]
        self.now += setup
        rest = iter(measurements)

        def measure() -> float:
            seconds = next(rest, measurements[-1])
            self.now += measuring_seconds(one, self.size, seconds) / 3
            self.log.append(_name(one))
            return seconds

        yield measure
        self.log.append(f"{_name(one)} closed")

    def choose(self) -> Choice:
        asked = [one for one in candidates(self.size, None) if _name(one) in self.engines]
        return compare(asked, self.size, self.begin, self.clock)

    def run(self) -> tuple[str, float]:
        """Return the engine that is chosen, and the seconds of choosing and running."""
        choice = self.choose()
        name = _name(Candidate(choice.engine, choice.threads or 1))
        return name, self.now + self.size.total * self.engines[name][1][-1]

    def best(self) -> float:
        """Return the least seconds of an engine, each started by itself."""
        imports = {"stacked": self.engines.get("stacked-uncompiled", (0.0, []))[0]}
        return min(
            imports.get(name, 0.0) + setup + self.size.total * steps[-1]
            for name, (setup, steps) in self.engines.items()
        )


def _name(one: Candidate) -> str:
    return one.engine if one.threads == 1 else f"{one.engine}-{one.threads}"


# Seconds to start and seconds per step of a client, about as on a quiet machine of two cores. Stacked is
# tried after stacked-uncompiled, so it starts without what both import.
LOGISTIC = RunSize(rounds=1, cohort=5, steps=40, flops=2.3e6, operations=3, timed=40)
MLP = RunSize(rounds=1, cohort=10, steps=15, flops=3.4e5, operations=4, timed=15)
CNN = RunSize(rounds=1, cohort=10, steps=10, flops=4e9, operations=14, timed=1, compiled=False)
LSTM = RunSize(rounds=1, cohort=3, steps=2, flops=5e9, operations=8, timed=1)
WORKLOADS: dict[str, tuple[RunSize, dict[str, tuple[float, list[float]]]]] = {
    "logistic": (
        LOGISTIC,
        {
            "serial": (0.1, [320e-6]),
            "stacked_uncompiled": (1.9, [148e-6]),
            "stacked": (11.5, [49e-6]),
            "processes": (2.5, [275e-6]),
        },
    ),
    "mlp": (
        MLP,
        {
            "serial": (0.1, [420e-6]),
            "stacked_uncompiled": (1.9, [151e-6]),
            "stacked": (11.5, [39e-6]),
            "processes": (2.5, [280e-6]),
        },
    ),
    "cnn": (
        CNN,
        {
            "serial": (0.1, [65e-3]),
            "serial_2": (0.1, [39e-3]),
            "stacked_uncompiled": (2.6, [56e-3]),
            "processes": (2.5, [34e-3]),
        },
    ),
    "lstm": (
        LSTM,
        {"serial": (0.1, [117e-3]), "serial_2": (0.1, [78e-3]), "processes": (2.5, [79e-3])},
    ),
}


def lasting(seconds: float, workload: str) -> Machine:
    """Return the fake machine with a run of a workload that serial would take so many seconds for."""
    size, engines = WORKLOADS[workload]
    rounds = round(seconds / (size.cohort * size.steps * engines["serial"][1][0]))
    return Machine(size._replace(rounds=rounds), **engines)


@pytest.mark.parametrize("seconds", [4, 10, 17, 30, 45, 55, 70, 100, 300, 1000])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_choosing_and_running_takes_little_longer_than_the_best_engine(workload: str, seconds: float) -> None:
    machine = lasting(seconds, workload)
    engine, total = machine.run()
    assert total <= max(1.2 * machine.best(), machine.best() + 3), engine


@pytest.mark.parametrize("seconds", one_in(7, [6, 10, 14, 20, 25, 30, 38, 45, 60, 80, 100, 150, 200, 1000]))
@pytest.mark.parametrize("share", [0.3, 0.45, 0.55])
@pytest.mark.parametrize("uncompiled", [0.25, 0.5, 0.8])
def test_the_bound_holds_whatever_compiling_and_stacking_gain(
    uncompiled: float, share: float, seconds: float
) -> None:
    serial = 400e-6
    size = MLP._replace(rounds=round(seconds / (MLP.cohort * MLP.steps * serial)))
    machine = Machine(
        size,
        serial=(0.1, [serial]),
        stacked_uncompiled=(1.9, [serial * uncompiled]),
        stacked=(11.5, [serial * uncompiled * share]),
        processes=(2.5, [serial]),
    )
    engine, total = machine.run()
    assert total <= max(1.2 * machine.best(), machine.best() + 3), engine


@pytest.mark.parametrize(
    ("workload", "chosen"),
    [
        ("logistic", ["serial", "stacked-uncompiled", "stacked-uncompiled", "stacked", "stacked"]),
        ("mlp", ["serial", "stacked-uncompiled", "stacked-uncompiled", "stacked", "stacked"]),
        ("cnn", ["serial", "serial-2", "serial-2", "processes", "processes"]),
        ("lstm", ["serial", "serial-2", "serial-2", "serial-2", "serial-2"]),
    ],
)
def test_longer_runs_take_engines_that_are_slower_to_start(workload: str, chosen: list[str]) -> None:
    assert [lasting(seconds, workload).run()[0] for seconds in (2, 10, 20, 100, 1000)] == chosen


def test_an_engine_that_cannot_save_enough_is_not_tried() -> None:
    machine = lasting(10, "logistic")
    choice = machine.choose()
    assert set(machine.log) == {
        name for engine in ("serial", "stacked-uncompiled") for name in (engine, f"{engine} closed")
    }
    assert choice.figures["serial on 1 thread"] == 320.0
    assert "may save nothing, what it needs to start included" in str(choice.figures["processes on 1 thread"])
    assert "about 4.6 s" in str(choice.figures["stacked on 1 thread"])
    assert choice.reason == "measured: about 4.6 s of training, serial on 1 thread about 10 s"


def test_nothing_but_serial_is_measured_where_the_run_is_short() -> None:
    machine = lasting(2, "mlp")
    assert machine.run()[0] == "serial"
    assert set(machine.log) == {"serial", "serial closed"}


def test_models_of_many_operations_are_recorded_for_long_runs_only() -> None:
    size, engines = WORKLOADS["mlp"]
    tried = []
    for rounds in (200, 20_000):
        machine = Machine(size._replace(operations=300, rounds=rounds), **engines)
        machine.choose()
        tried.append("stacked-uncompiled" in machine.log)
    assert tried == [False, True]


def test_on_a_machine_that_is_slow_to_start_engines_compiling_must_save_more() -> None:
    compiled = []
    for slowness in (1, 4):
        machine = lasting(100, "logistic")
        machine.engines["stacked-uncompiled"] = (1.9 * slowness, [148e-6])
        machine.choose()
        compiled.append("stacked" in machine.log)
    assert compiled == [True, False]


def test_serial_is_predicted_to_be_fast_rather_than_slow() -> None:
    for size, engines in WORKLOADS.values():
        assert size.least_seconds < size.total * engines["serial"][1][0] < 5 * size.least_seconds
    assert MLP._replace(operations=400).least_seconds > 20 * MLP.least_seconds


def test_what_is_far_behind_is_measured_once() -> None:
    size = CNN._replace(rounds=100)
    machine = Machine(size, serial=(0.0, [0.01]), serial_2=(0.0, [0.03]))
    assert machine.choose().engine == "serial"
    assert machine.log.count("serial-2") == 1


def test_the_two_best_are_measured_in_turn_in_the_end() -> None:
    """A figure that was lucky once, or taken while others used the machine, does not decide."""
    size = MLP._replace(rounds=10_000)
    machine = Machine(size, serial=(0.0, [4e-4] * 5 + [1e-4]), stacked_uncompiled=(0.0, [3e-4]))
    choice = machine.choose()
    assert machine.log[-8:-2] == ["stacked-uncompiled", "serial"] * 3
    assert choice.engine == "serial"
    assert choice.figures["serial on 1 thread"] == 100.0


def test_what_is_far_apart_is_not_measured_again() -> None:
    size = MLP._replace(rounds=10_000)
    machine = Machine(size, serial=(0.0, [4e-4]), stacked_uncompiled=(0.0, [1e-4]))
    assert machine.choose().engine == "stacked-uncompiled"
    assert [machine.log.count(name) for name in ("serial", "stacked-uncompiled")] == [5, 5]
