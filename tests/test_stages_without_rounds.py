"""Stages that have no round: a switch at round 0, at the last round, or where another one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from problems import tiny_net
from selecting import slow

import fedkeel as fk
from fedkeel.experiments.expression import parse_method
from fedkeel.explain import explain

PROBLEM = tiny_net([3, 8, 5, 11, 4, 7])
WORK = fk.Work(epochs=1, batch_size=3, lr=0.08)
ROUNDS = 4

SAME = [
    ("stages((FedDyn(0.1), 0), FedAvg)", "FedAvg"),
    ("stages((FedDyn(0.1), 0.0), FedAvg)", "FedAvg"),
    ("stages((relaxed(SCAFFOLD, beta=0.1), 0), (FedDyn(0.1), 0), FedAvg)", "FedAvg"),
    ("stages((FedDyn(0.1), 4), FedAvg)", "FedDyn(0.1)"),
    ("stages((FedDyn(0.1), 1.0), FedAvg)", "FedDyn(0.1)"),
    ("stages((FedDyn(0.1), 2), (SCAFFOLD, 2), FedAvg)", "stages((FedDyn(0.1), 0.5), FedAvg)"),
    ("stages((SCAFFOLD, 0), (FedDyn(0.1), 0.5), FedAvg)", "stages((FedDyn(0.1), 2), FedAvg)"),
    ("stages((FedDyn(0.1), 2), (FedAvg, 1.0), SCAFFOLD)", "stages((FedDyn(0.1), 2), FedAvg)"),
    # memories carry over between the neighbours that are left
    ("stages((FedDyn(0.1), 2), (FedAvg, 2), FedDyn(0.3))", "stages((FedDyn(0.1), 2), FedDyn(0.3))"),
]


def run(method: str, **options: Any) -> fk.Result:
    chosen = {"rounds": ROUNDS, "engine": "serial", **options}
    return flat.train(
        PROBLEM.task, PROBLEM.federation, parse_method(method), cohort=3, work=WORK, seed=0, **chosen
    )


def rows(result: fk.Result) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in result.history]


def assert_same(ours: fk.Result, theirs: fk.Result) -> None:
    assert rows(ours) == rows(theirs)
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("staged", "plain"), SAME)
@pytest.mark.parametrize("engine", ["serial", *slow("stacked-uncompiled", "processes")])
def test_a_stage_without_rounds_changes_nothing(staged: str, plain: str, engine: str) -> None:
    options = {"engine": engine, **({"workers": 1} if engine == "processes" else {})}
    assert_same(run(staged, **options), run(plain, **options))


@pytest.mark.parametrize("staged", [staged for staged, _ in SAME])
def test_such_a_run_goes_on_after_an_interruption(staged: str, tmp_path: Path) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(staged, run_dir=tmp_path / "run", callbacks=interrupt, checkpoint_every=1)
    assert_same(run(staged, run_dir=tmp_path / "run", resume=True), run(staged))


def test_a_run_whose_last_stage_had_no_round_may_be_made_longer(tmp_path: Path) -> None:
    staged = "stages((FedAvg, 0), (FedDyn(0.1), 2), FedAvg)"
    first = run(staged, rounds=2, run_dir=tmp_path / "run", keep_client_states=True)
    assert_same(first, run("FedDyn(0.1)", rounds=2))
    assert_same(run(staged, rounds=4, run_dir=tmp_path / "run", resume=True), run(staged, rounds=4))


def test_a_whole_number_counts_rounds_and_a_number_with_a_point_is_a_fraction() -> None:
    one, every = (parse_method(f"stages((FedDyn, {end}), FedAvg)").fixed(ROUNDS) for end in ("1", "1.0"))
    assert (one.parts[0].until, every.parts[0].until) == (1, ROUNDS)


def test_checks_are_those_of_the_methods_that_run() -> None:
    adaptive = fk.Work(epochs=1, batch_size=3, lr=0.01, optimizer=fk.AdamW())
    method = fk.stages((fk.SCAFFOLD(), 0), fk.FedAvg())
    fk.train(PROBLEM.task, PROBLEM.federation, method, rounds=1, cohort=2, work=adaptive)


def test_probes_of_a_stage_may_be_asked_for_where_it_has_no_round() -> None:
    """So that a sweep over the round of the switch may begin at 0."""
    result = run("stages((FedDyn(0.1), 0), FedAvg)", probes=[fk.probes.Switching()])
    assert all(row["switching/C"] is None for row in result.history)


def test_explain_says_that_a_stage_has_no_round() -> None:
    for end in ("0", "0.0"):
        assert "— for no round —" in str(explain(parse_method(f"stages((feddyn, {end}), fedavg)")))
    assert "for the first 100 % of the rounds" in str(explain(parse_method("stages((feddyn, 1.0), fedavg)")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stages((feddyn, -1), fedavg)", "until=-1: give a round from 0 on"),
        ("stages((feddyn, true), fedavg)", "until=True: give a round from 0 on"),
        ("stages((feddyn, 1.5), fedavg)", "until=1.5: a fraction of the rounds lies between 0 and 1"),
        ("stages((feddyn, -0.5), fedavg)", "until=-0.5: a fraction of the rounds lies between 0 and 1"),
        ("stages((feddyn, 2), (scaffold, 1), fedavg)", r"the rounds \[2, 1\] must not fall"),
        ("stages((feddyn, 0.5), (scaffold, 0.25), fedavg)", r"the fractions \[0.5, 0.25\] must not fall"),
    ],
)
def test_other_ends_are_refused(text: str, told: str) -> None:
    with pytest.raises(fk.ConfigError, match=told):
        parse_method(text)
