"""The robustness study: what it finds in runs, and that it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_events import Heard

import fedkeel as fk
from fedkeel.directories.pages import document_of
from fedkeel.experiments.experiment import Experiment
from fedkeel.report.tables import Trial
from fedkeel.studies.base import play
from fedkeel.studies.robustness import (
    CLEAN,
    Combination,
    RobustnessStudy,
    robustness_findings,
)
from fedkeel.studies.robustness_page import (
    robustness_grids,
    robustness_rows,
    robustness_section,
    robustness_text,
)

TINY = ("rounds=2", "cohort=5", "data.clients=6", "work.steps=1", "work.batch_size=8", "engine=serial")
BASE = Experiment().with_settings(TINY)


def study(**changed: Any) -> RobustnessStudy:
    given = {"reducers": ["median"], "attacks": ["SignFlip(0.34)"], "seeds": 2, **changed}
    return RobustnessStudy.of(BASE, methods=["fedavg"], **given)


def trial(accuracy: float | None, success: float | None = None) -> Trial:
    row = {"round": 0, "accuracy": accuracy, "loss": 1.0, "norm": 1.0}
    row |= {} if success is None else {"attack_success": success}
    return Trial("x", 0, [row], None if accuracy is not None else "diverged")


def test_of_a_loss_less_is_better_and_it_is_no_percentage() -> None:
    def lost(loss: float) -> Trial:
        return Trial("x", 0, [{"round": 0, "accuracy": 0.9, "loss": loss, "norm": 1.0}])

    made = study(measure="final of loss (min)", seeds=1)
    scores = {
        ("Mean", CLEAN): [lost(2.0)],
        ("median", CLEAN): [lost(2.05)],
        ("Mean", "SignFlip(0.34)"): [lost(2.27)],
        ("median", "SignFlip(0.34)"): [lost(1.5)],
    }
    trials = {Combination("FedAvg", rule, attack): own for (rule, attack), own in scores.items()}
    found = robustness_findings(made, trials)
    assert found["held_by"] == {"SignFlip(0.34)": {"FedAvg": ["median"]}}
    cells = {row[:3]: row[3:] for row in robustness_rows(found)}
    assert cells["SignFlip(0.34)", "FedAvg", "Mean"] == ("2.27", "+0.27", "", "no")
    assert cells["none", "FedAvg", "median"] == ("2.05", "+0.05", "", "yes")
    assert "more than 5 % above the same method" in robustness_text(found)[0]
    charts = [block for block in robustness_section(found).blocks if block.type == "chart"]
    assert [(chart.y.label, chart.y.percent) for chart in charts] == [("loss", False)]


def test_a_rule_holds_where_accuracy_stays_within_the_margin_and_backdoors_stay_shut() -> None:
    made = study(attacks=["SignFlip(0.34)", "Backdoor(0.34)"], reducers=["median", "NormClip"])
    scores: dict[tuple[str, str], list[Trial]] = {
        ("Mean", CLEAN): [trial(0.90), trial(0.92)],
        ("median", CLEAN): [trial(0.90), trial(0.90)],
        ("NormClip", CLEAN): [trial(0.80), trial(0.85)],
        ("Mean", "SignFlip(0.34)"): [trial(0.2), trial(None)],
        ("median", "SignFlip(0.34)"): [trial(0.87), trial(0.86)],
        ("NormClip", "SignFlip(0.34)"): [trial(0.95), trial(None)],
        ("Mean", "Backdoor(0.34)"): [trial(0.90, 0.9), trial(0.90, 0.8)],
        ("median", "Backdoor(0.34)"): [trial(0.89, 0.1), trial(0.91, 0.2)],
        ("NormClip", "Backdoor(0.34)"): [trial(0.85, 0.0), trial(0.85, 0.0)],
    }
    trials = {Combination("FedAvg", rule, attack): own for (rule, attack), own in scores.items()}
    found = robustness_findings(made, trials)
    holds = {(line["reducer"], line["attack"]) for line in found["lines"] if line["holds"]}
    assert found["clean"] == {"FedAvg": pytest.approx(0.91)}
    assert holds == {
        ("Mean", CLEAN),
        ("median", CLEAN),
        ("median", "SignFlip(0.34)"),
        ("median", "Backdoor(0.34)"),
    }
    assert found["held_by"]["SignFlip(0.34)"] == {"FedAvg": ["median"]}
    cells = {row[:3]: row[3:] for row in robustness_rows(found)}
    assert cells["SignFlip(0.34)", "FedAvg", "Mean"] == ("20.0 % (1 diverged)", "-71.0", "", "no")
    assert cells["Backdoor(0.34)", "FedAvg", "median"][2:] == ("15 %", "yes")
    headings, rows = robustness_grids(found)["FedAvg"]
    assert headings == ("attack", "Mean", "median", "NormClip")
    assert rows[1] == ("SignFlip(0.34)", "20.0 (1 diverged) ✗", "86.5 ± 0.7", "95.0 (1 diverged) ✗")
    assert rows[2][1:3] == ("90.0 ± 0.0, opens 85 % ✗", "90.0 ± 1.4, opens 15 %")
    assert "Backdoor(0.34): FedAvg with median" in robustness_text(found)
    section = robustness_section(json.loads(json.dumps(found)))
    assert [block.type for block in section.blocks] == ["chart", "chart", "text", "table", "table"]


def test_every_combination_has_a_run_of_its_own_in_one_place_however_it_is_written(tmp_path: Path) -> None:
    jobs = study().runs(tmp_path)
    assert len({job.directory for job in jobs}) == len(jobs) == 2 * 2 * 2
    again = study(reducers=["Median()"], attacks=["signflip(share=0.34, scale=1.0)"]).runs(tmp_path)
    assert [job.directory for job in again] == [job.directory for job in jobs]
    assert [job.experiment for job in again] == [job.experiment for job in jobs]


@pytest.mark.slow(5, thorough=False)
def test_a_study_goes_on_with_more_attacks_and_makes_a_page(tmp_path: Path) -> None:
    out, heard = tmp_path / "s", Heard()
    play(study(seeds=1), out, events=heard)
    assert heard.kept == [False] * 4
    more = study(seeds=1, attacks=["SignFlip(0.34)", "LabelFlip(0.34)"])
    found = play(more, out, events=heard)
    assert heard.kept[4:] == [True] * 4 + [False] * 2
    assert len(found.numbers["lines"]) == 6
    page = out / "page.html"
    assert "LabelFlip(0.34)" in page.read_text()
    assert "What holds out against" in page.read_text()
    assert "fedkeel study robustness" in page.read_text()
    assert document_of([out]).sections[0].id == "robustness"
    other = RobustnessStudy.of(BASE.with_settings(["work.steps=2"]), methods=["fedavg"], seeds=1)
    with pytest.raises(fk.StorageError, match=r"another robustness study: its work.steps is 1, not 2"):
        play(other, out)


def test_what_cannot_be_studied_is_refused() -> None:
    with pytest.raises(fk.ConfigError, match=r"--attack = 'x': there is no attack 'x'"):
        study(attacks=["x"])
    with pytest.raises(fk.ConfigError, match="no attack: name one"):
        study(attacks=[])
    with pytest.raises(
        fk.ConfigError, match=r"the experiment has reducer = 'Median\(\)': name what is compared"
    ):
        RobustnessStudy.of(BASE.with_settings(["reducer=Median"]), methods=["fedavg"])
