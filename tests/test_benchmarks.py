"""The benchmarks compare equal work, and say no more than their numbers do."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from benchlib.bare import Bare, Variant
from benchlib.choices import WholeRun, table, within
from benchlib.ours import session
from benchlib.race import interleave
from benchlib.ray_estimate import Overheads, Setting, estimate, extrapolated, number_of_tasks
from benchlib.ray_page import page as ray_page
from benchlib.report import markdown
from benchlib.stats import Ratio, ratio, verdict
from benchlib.workloads import WORKLOADS, make_data

import fedkeel as fk
from fedkeel.engines.contract import RoundRequest
from fedkeel.engines.jobs.job import round_jobs
from fedkeel.tensors.records import ClientMemory

SMALL = WORKLOADS["logistic"].with_(clients=4, samples=20, cohort=2, batch=8, epochs=2)


class Fake:
    def __init__(self, name: str, seconds: float, lasts: int = 1000) -> None:
        self.name, self.seconds, self.left = name, seconds, lasts

    def turn(self) -> float:
        if self.left == 0:
            raise RuntimeError("worn out")
        self.left -= 1
        return self.seconds


def test_the_bare_loop_takes_as_many_gradients_as_fedkeel() -> None:
    data = make_data(SMALL)
    bare = Bare(SMALL, data, Variant(1, "plain"))
    bare.round()
    row = next(session(SMALL, data, engine="serial", threads=1).rounds())
    assert bare.gradients == row["gradients"] == SMALL.cohort * SMALL.steps == 12


def test_workloads_have_the_shape_of_the_issue() -> None:
    steps = {name: workload.cohort * workload.steps for name, workload in WORKLOADS.items()}
    assert steps == {"logistic": 200, "logistic50": 2000, "cnn": 100, "lstm": 6, "resnet": 2}


def test_a_ratio_is_the_median_of_pairs() -> None:
    found = ratio([2.0, 4.0, None, 9.0], [1.0, 2.0, 1.0, 3.0])
    assert found is not None
    assert (found.median, found.pairs) == (2.0, 3)
    assert found.low == 2.0
    assert found.high == 3.0
    assert found.resolved
    assert ratio([None], [1.0]) is None


def test_a_drift_of_the_machine_does_not_move_a_ratio() -> None:
    slow = [1.0 + place for place in range(20)]
    found = ratio([1.1 * seconds for seconds in slow], slow)
    assert found is not None
    assert found.median == pytest.approx(1.1)
    assert found.high - found.low < 1e-9


def test_noise_is_called_noise() -> None:
    assert "not resolved" in Ratio(1.01, 0.98, 1.05, 15).text()
    assert "not resolved" not in Ratio(1.04, 1.02, 1.05, 15).text()


@pytest.mark.parametrize(
    ("found", "target", "at_least", "said"),
    [
        (Ratio(3.2, 3.1, 3.4, 15), 3.0, True, "reached"),
        (Ratio(2.5, 2.2, 2.8, 15), 3.0, True, "not reached"),
        (Ratio(3.1, 2.8, 3.4, 15), 3.0, True, "not resolved (the median says reached)"),
        (Ratio(1.01, 1.0, 1.02, 15), 1.03, False, "reached"),
        (Ratio(1.06, 1.04, 1.08, 15), 1.03, False, "not reached"),
        (Ratio(1.04, 1.01, 1.06, 15), 1.03, False, "not resolved (the median says not reached)"),
        (Ratio(1.05, 1.04, 1.06, 14), 1.0, True, "not resolved (only 14 pairs)"),
        (Ratio(1.5, 1.4, 1.6, 14), 1.0, True, "reached"),
        (Ratio(1.5, 1.4, 1.6, 4), 1.0, True, "not resolved (only 4 pairs)"),
        (Ratio(9.0, 8.0, 9.9, 5), 4.0, True, "reached"),
        (None, 1.0, True, "not measured"),
    ],
)
def test_figures_are_judged_by_their_interval(
    found: Ratio | None, target: float, at_least: bool, said: str
) -> None:
    assert verdict(found, target, at_least=at_least) == said


def test_turns_are_interleaved_and_the_failed_sit_out() -> None:
    failures: dict[str, str] = {}
    runners = {"a": Fake("a", 1.0), "b": Fake("b", 2.0, lasts=2), "c": Fake("c", 3.0)}
    columns = interleave(
        runners,
        5,
        budget=60.0,
        every={"c": 2},
        failed=lambda name, problem: failures.update({name: str(problem)}),
    )
    assert columns["a"] == [1.0] * 5
    assert columns["b"] == [2.0, 2.0, None, None, None]
    assert columns["c"] == [3.0, None, 3.0, None, 3.0]
    assert failures == {"b": "worn out"}


def test_a_budget_ends_a_race_after_its_least(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(0.0, 10.0)
    monkeypatch.setattr("benchlib.race.time", SimpleNamespace(monotonic=lambda: next(clock)))
    columns = interleave({"a": Fake("a", 1.0)}, 100, budget=55.0, least=3, failed=print)
    assert len(columns["a"]) == 4


def test_the_page_tells_what_was_measured_and_what_was_not() -> None:
    pairs: dict[str, Any] = {"bare loop": [3.1] * 15, "fedkeel stacked": [1.0] * 15}
    result = {
        "workload": WORKLOADS["logistic"].to_json(),
        "best": "fedkeel stacked",
        "screening": pairs,
        "pairs": pairs,
        "flower": {},
        "facts": {"bare loop": {"torch": "2", "threads": 1, "form": "plain"}},
        "failures": {"pfl": "cannot be installed"},
    }
    machine = {
        "date": "today",
        "processor": "P",
        "cores": 2,
        "system": "S",
        "python": "3",
        "load": [4.0, 1, 1],
    }
    page = markdown(
        {
            "runs": [
                {"command": "all", "machine": machine, "load_after": [1, 1, 1], "minutes": 1.0},
                {
                    "command": "more",
                    "machine": {**machine, "load": [0.1, 1, 1]},
                    "load_after": [1],
                    "minutes": 1,
                },
            ],
            "versus": {"logistic": result},
            "notes": ["pfl is left out"],
        }
    )
    assert "logistic: bare loop / fedkeel ≥ 3 | 3.1 (3.1–3.1; n=15) | reached" in page
    assert "does not run" in page
    assert "logistic: flwr / fedkeel ≥ 50 | — | not measured" in page
    assert page.count("busy with other work") == 1
    assert "- `more`: today, 1 minutes" in page


def test_a_long_run_is_extrapolated_from_its_rounds_and_a_whole_one_is_not() -> None:
    played = WholeRun(rounds=5, ends=[9.0, 10.0, 11.0, 12.0, 13.0], total=13.5, chose="serial 1")
    assert played.round_seconds == 1.0
    assert played.seconds(5) == 13.5
    assert played.seconds(100) == 10.0 + 98
    assert WholeRun(100, played.ends, 13.5, "serial 1").seconds(100) == 108.0


@pytest.mark.parametrize(
    ("auto", "good"), [(7.9, True), (8.1, False)], ids=["three seconds more", "more than that"]
)
def test_auto_is_held_to_the_best_engine(auto: float, good: bool) -> None:
    row = {"row": 10, "rounds": 7, "seconds": {"serial": 10.0, "stacked": 5.0}, "auto": auto}
    row |= {"chose": "serial 2", "whole": True}
    assert within(row) is good
    line = table([{"workload": {"name": "mlp"}, "rows": [row]}]).splitlines()[-1]
    assert line.startswith(f"| mlp | 10 | 7 | 10.0 | — | 5.0 | — | {auto} | serial, 2 threads | ")
    assert ("too long" in line) is not good


COSTS = Overheads(latency=0.002, task=0.001, megabyte=0.004)


def test_a_round_is_cut_into_the_tasks_of_the_estimate() -> None:
    """The same numbers as `round_jobs`, where no client is so short that several go out together."""
    x = torch.zeros(1)
    for cohort, slots in ((1, 1), (19, 2), (50, 4), (1000, 16)):
        federation = fk.Federation.from_arrays([(torch.zeros(1, 2), torch.zeros(1).long())] * cohort)
        settings = SimpleNamespace(federation=federation)
        request = RoundRequest(fk.FedAvg(), 0, 0.1, x, x, list(range(cohort)), [1.0] * cohort)
        jobs = round_jobs(settings, request, [ClientMemory(fk.Algorithm.Client())] * cohort, slots)
        assert number_of_tasks(Setting("", cohort, 10, 0.1, 0.01), slots) == len(jobs)


def test_what_takes_longest_bounds_the_estimate() -> None:
    slow_clients = estimate(Setting("", 100, 10, 0.1, 0.01), COSTS, slots=10)
    assert slow_clients["bound"] == "clients"
    assert slow_clients["seconds"] == pytest.approx(10 * 1.0 + COSTS.latency)
    many_clients = estimate(Setting("", 10_000, 1, 0.001, 0.01), COSTS, slots=1600, nodes=100)
    assert many_clients["bound"] == "driver"
    memories = Setting("", 1000, 1, 0.001, 1.0, memory=100.0)
    assert estimate(memories, COSTS._replace(megabyte=0.0), slots=100, nodes=10)["bound"] == "link"
    assert estimate(memories, COSTS, slots=100)["driver_bytes"] == 2 * 1000 * 100 * 2**20


def test_the_page_of_ray_says_what_is_measured_and_what_is_not() -> None:
    assert "Nothing is measured yet." in ray_page({"runs": [], "parts": {}, "notes": []})
    machine = {"date": "today", "cores": 2, "processor": "P", "system": "S", "python": "3", "load": [0.1]}
    versus = {
        "workload": SMALL.to_json(),
        "seconds": {"serial": [0.5, 0.25, None]},
        "facts": {"serial": {"torch": "2"}},
        "notes": {"ray, 1 worker": "broken"},
    }
    found = estimate(Setting("", 2, 1, 0.5, 0.1), COSTS, slots=1)
    rows = {"small": {"serial": 1.0, "ray": 1.5, "step": 0.5, "estimate": found}}
    nodes = {"1": {"nodes": 1, "overheads": COSTS._asdict(), "workloads": rows}}
    results = {
        "runs": [{"command": "measure", "machine": machine, "minutes": 1.0, "load_after": [2.0]}],
        "parts": {"versus": {"logistic": versus}, "nodes": nodes},
        "overheads": COSTS._asdict(),
        "extrapolated": extrapolated(COSTS, {"logistic50": 0.001, "cnn": 0.05}),
        "notes": ["nodes 2: there was no time left"],
    }
    text = ray_page(results)
    assert "| serial | 3 (2–4; n=2) |" in text
    assert "| small | 1 | 1.00 | 1.50 | 1.00 (clients) | 1.50 |" in text
    assert "**Nobody has measured these.**" in text
    assert "- logistic: ray, 1 worker: broken" in text
    assert "there was no time left" in text
    assert "busy" not in text
    machine["load"] = [3.0]
    assert "**The machine was busy" in ray_page(results)
