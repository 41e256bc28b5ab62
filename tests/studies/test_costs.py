"""Costs counted in runs against the methods' own records, and the papers against both."""

from __future__ import annotations

import json

import pytest
from problems import settings_of, tiny_net
from selecting import one_in
from torch import nn
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.experiments.experiment import Experiment
from fedkeel.explain import explain_method
from fedkeel.studies.costs import PRINTED_COSTS, MethodCosts, count, disagreements, small_run


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    one_in(3, [fk.FedAvg(), fk.SCAFFOLD(), fk.FedSAGD(), fk.FedSMOO(), fk.FedInit(), fk.MOON()]),
    ids=repr,
)
def test_the_count_is_what_the_records_say(method: fk.Algorithm) -> None:
    (line,) = count([(type(method).__name__, method)], rounds=2)
    told = explain_method(method)
    assert (line.down, line.up) == pytest.approx((told.down.vectors, told.up.vectors), abs=1e-3)
    assert line.kept == pytest.approx(told.client_state.vectors, abs=1e-3)
    assert line.gradients == told.gradients_per_step
    assert line.forwards == told.gradients_per_step + told.other_models
    assert line.unicast == pytest.approx((line.down + line.up) / 2)
    assert line.broadcast == pytest.approx((line.down + 10 * line.up) / 11)


@pytest.mark.slow
def test_the_tables_of_the_papers_and_where_they_disagree() -> None:
    names = ["FedAdam", "FedSAM", "SCAFFOLD", "FedDyn", "FedCM", "FedInit"]
    lines = count([(name, getattr(fk, name)()) for name in names], rounds=2)
    found = {(one.method, one.quantity) for one in disagreements(lines)}
    assert found == {
        ("FedAdam", "storage"),  # Table 9 says 2, the poster 1, and 1 is counted
        ("SCAFFOLD", "storage"),  # Table 9 says 2 (kept), the poster 3 (held while walking)
        ("FedDyn", "storage"),
        ("FedCM", "communication"),  # 2 in FedInit, 1 to 1.5 in FedSAGD; counted 1.5
        ("FedCM", "storage"),  # the poster prints 2Cd and 3×
    }
    text = " ".join(one.text for one in disagreements(lines) if one.method == "FedCM")
    assert "counted 1.50× (each client receives its own copy), 1.09× (one broadcast)" in text


def test_fedavg_is_its_own_measure() -> None:
    """The reference is the run that is shown, however it is written and wherever it stands."""
    lines = count(
        [("SCAFFOLD", fk.SCAFFOLD()), ("FedAvg", fk.FedAvg()), ("plain", fk.FedAvg(lr=1.0))], rounds=3
    )
    assert [line.seconds for line in lines[1:]] == [1.0, 1.0]
    assert lines[0].seconds > 0


def without_seconds(costs: MethodCosts) -> list[float]:
    return [
        value
        for key, value in costs._asdict().items()
        if key not in ("method", "rounds", "seconds", "stages")
    ]


@pytest.mark.slow
def test_stages_cost_their_parts_by_their_rounds() -> None:
    """Rethinking's Table 2: a method for 150 of 1,000 rounds, then FedAvg."""
    staged = fk.stages((fk.FedCM(), 150), (fk.FedDyn(0.3), 0.5), fk.FedAvg())
    (whole,) = count([("mine", staged)], small_run(rounds=1000), rounds=3)
    assert (whole.method, whole.rounds) == ("mine", 1000)
    assert [(stage.method, stage.rounds) for stage in whole.stages] == [
        ("FedCM", 150),
        (repr(fk.FedDyn(0.3)), 350),
        ("FedAvg", 500),
    ]
    alone = count([(repr(one), one) for one in (fk.FedCM(), fk.FedDyn(0.3), fk.FedAvg())], rounds=3)
    for stage, method in zip(whole.stages, alone, strict=True):
        assert without_seconds(stage) == pytest.approx(without_seconds(method))
    assert whole.unicast == pytest.approx(0.15 * 1.5 + 0.85, abs=1e-3)
    for rate in ("down", "up", "broadcast", "gradients", "forwards", "seconds"):
        parts = [getattr(stage, rate) for stage in whole.stages]
        assert getattr(whole, rate) == pytest.approx(0.15 * parts[0] + 0.35 * parts[1] + 0.5 * parts[2])
    for memory in ("kept", "stored", "working", "server"):
        assert getattr(whole, memory) == max(getattr(stage, memory) for stage in whole.stages)
    assert whole.stages[1].kept == pytest.approx(1, abs=1e-3)  # FedDyn's h_i, gone in the last stage
    assert whole.stages[2].kept == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "staged",
    [fk.stages((fk.SCAFFOLD(), 0), fk.FedDyn()), fk.stages((fk.FedDyn(), 1.0), fk.SCAFFOLD())],
    ids=repr,
)
def test_a_stage_without_rounds_costs_nothing(staged: fk.Stages) -> None:
    ours, plain = count([("staged", staged), ("plain", fk.FedDyn())], small_run(rounds=10), rounds=2)
    assert without_seconds(ours) == pytest.approx(without_seconds(plain))
    assert (ours.rounds, ours.stages) == (10, ())


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (fk.stages((fk.FedDyn(), 150), fk.FedAvg()), "ends after round 150 of a run of 100 rounds"),
        (
            fk.stages((fk.FedDyn(), fk.SwitchingRule(zeta=1.0)), fk.FedAvg()),
            "at a round that only a run can tell",
        ),
    ],
)
def test_stages_without_a_known_number_of_rounds_are_refused(stages: fk.Stages, message: str) -> None:
    with pytest.raises(fk.ConfigError, match=message):
        count([("mine", stages)], rounds=2)


def test_costs_of_an_experiment() -> None:
    experiment = Experiment().with_settings(
        ["data.clients=4", "model.name=logistic", "cohort=0.5", "work.steps=2"]
    )
    (costs,) = count([("SCAFFOLD", fk.SCAFFOLD())], experiment.settings(), rounds=2)
    assert (costs.down, costs.up) == (2, 2)
    assert costs.broadcast == pytest.approx((2 + 2 * 2) / 3)  # half of four clients


def test_buffers_travel_too() -> None:
    """A network with BatchNorm sends its running statistics beside its parameters, whatever the method."""
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))
    problem = tiny_net([6, 6, 6, 6])
    settings = settings_of(
        fk.Task(model),
        problem.federation,
        fk.FedAvg(),
        rounds=9,
        cohort=2,
        work=fk.Work(steps=2, batch_size=3),
    )
    plain, steered = count([("FedAvg", fk.FedAvg()), ("SCAFFOLD", fk.SCAFFOLD())], settings, rounds=2)
    parameters, statistics = 20 + 10 + 24, 10
    assert plain.down == plain.up == pytest.approx((parameters + statistics) / parameters)
    assert steered.unicast == pytest.approx((2 * parameters + statistics) / (parameters + statistics))


def test_every_entry_of_the_papers_is_about_a_method_there_is() -> None:
    assert {entry.method for entry in PRINTED_COSTS} <= {made.__name__ for made in fk.METHODS}
    assert sum(entry.source == "FedSAGD, Table 1" for entry in PRINTED_COSTS) == 11


@pytest.mark.slow
def test_the_command() -> None:
    ran = CliRunner().invoke(app, ["costs", "--method", "fedcm", "--counted", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["counted"][0]["unicast"] == pytest.approx(1.5, abs=1e-3)
    assert {entry["method"] for entry in found["printed"]} == {"FedCM"}
    shown = CliRunner().invoke(app, ["costs", "--method", "fedavg", "--method", "fedcm", "--counted", "2"])
    assert "Where they disagree" in shown.stdout
    assert "FedSAGD, Table 1" in shown.stdout
    assert "seconds: a round's processor time over that of FedAvg's round beside it" in shown.stdout
    staged = CliRunner().invoke(
        app,
        [
            "costs",
            "--method",
            "stages((fedcm, 300), fedavg)",
            "--rounds",
            "600",
            "--counted",
            "2",
            "--model",
            "logistic",
        ],
    )
    assert staged.exit_code == 0, staged.output
    assert "stage 1: FedCM, 300 of 600 rounds" in staged.stdout
    assert "1.25×" in staged.stdout
    wrong = CliRunner().invoke(app, ["costs", "--method", "fedavvg"])
    assert wrong.exit_code == 2
    assert "did you mean 'FedAvg'?" in wrong.output
