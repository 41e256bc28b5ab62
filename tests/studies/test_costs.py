"""Costs counted in runs against the methods' own records, and the papers against both."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.explain import explain_method
from fedkeel.studies.costs import PRINTED_COSTS, count, disagreements


@pytest.mark.parametrize(
    "method", [fk.FedAvg(), fk.SCAFFOLD(), fk.FedSAGD(), fk.FedSMOO(), fk.FedInit(), fk.MOON()], ids=repr
)
def test_the_count_is_what_the_records_say(method: fk.Algorithm) -> None:
    (line,) = count([(type(method).__name__, method)], rounds=2)
    told = explain_method(method)
    assert (line.down, line.up) == pytest.approx((told.down.vectors, told.up.vectors), abs=1e-3)
    assert line.kept == pytest.approx(told.memory.vectors, abs=1e-3)
    assert line.gradients == told.gradients_per_step
    assert line.forwards == told.gradients_per_step + told.other_models
    assert line.unicast == pytest.approx((line.down + line.up) / 2)
    assert line.broadcast == pytest.approx((line.down + 10 * line.up) / 11)


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


def test_every_entry_of_the_papers_is_about_a_method_there_is() -> None:
    assert {entry.method for entry in PRINTED_COSTS} <= {made.__name__ for made in fk.METHODS}
    assert sum(entry.source == "FedSAGD, Table 1" for entry in PRINTED_COSTS) == 11


def test_the_command() -> None:
    ran = CliRunner().invoke(app, ["costs", "fedcm", "--rounds", "2", "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["counted"][0]["unicast"] == pytest.approx(1.5, abs=1e-3)
    assert {entry["method"] for entry in found["printed"]} == {"FedCM"}
    shown = CliRunner().invoke(app, ["costs", "fedavg", "fedcm", "--rounds", "2"])
    assert "Where they disagree" in shown.stdout
    assert "FedSAGD, Table 1" in shown.stdout
    assert "seconds: a round's processor time over that of FedAvg's round beside it" in shown.stdout
    wrong = CliRunner().invoke(app, ["costs", "fedavvg"])
    assert wrong.exit_code == 2
    assert "did you mean 'FedAvg'?" in wrong.output
