"""A recipe is planned, run, resumed, read and shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pages import block, document_in, texts
from run_events import Heard

from fedkeel.common.errors import ConfigError
from fedkeel.experiments.placement import ONE_BY_ONE, Placement
from fedkeel.experiments.run_all import RunMeter
from fedkeel.papers.recipes.claims import CellKey
from fedkeel.papers.recipes.studies import CountedCosts, FeatureCounts, StabilityCurves
from fedkeel.papers.reproduce import carrying_out, jobs
from fedkeel.papers.reproduce.carrying_out import RecipeRun, carry_out_plan, read_outcome
from fedkeel.papers.reproduce.outcome import shown_tables
from fedkeel.papers.reproduce.page import write_page
from fedkeel.papers.reproduce.plan import JobKey, plan
from fedkeel.papers.reproduce.reading import shown_cell
from tests.recipes.small_recipe import BASE, METHODS, SMALL


def cpu(tmp_path, **more):
    return plan(SMALL, "cpu", tmp_path, **more)


def test_scales_choose_setups_rounds_and_seeds(tmp_path):
    small, paper = cpu(tmp_path), plan(SMALL, "paper", tmp_path)
    assert [str(job.key) for job in small.jobs] == [
        "iid, FedAvg, seed 0",
        "iid, FedDyn(ours), seed 0",
        "iid, FedAvg, seed 1",
        "iid, FedDyn(ours), seed 1",
    ]
    assert {job.rounds for job in small.jobs} == {2}
    assert len(paper.jobs) == 12
    assert paper.setups == ("iid", "skewed")


def test_a_line_s_own_settings_win(tmp_path):
    table = {job.key.row: job.table for job in cpu(tmp_path).jobs}
    assert table["FedDyn(ours)"]["work"]["lr"] == 0.05
    assert table["FedAvg"]["work"]["lr"] != 0.05


def test_rows_and_setups_are_named_as_people_write_them(tmp_path):
    chosen = plan(SMALL, "paper", tmp_path, only=["IID"], methods=["feddyn"], seeds=1)
    assert [job.key for job in chosen.jobs] == [JobKey("iid", "FedDyn(ours)", 0)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"only": ["cifar"]}, "there is no 'cifar' in small/table1 at scale cpu"),
        ({"only": ["skewed"]}, "'skewed' is not run in small/table1 at scale cpu: choose from iid"),
        ({"methods": ["fedsagd"]}, "there is no 'fedsagd'"),
    ],
)
def test_what_is_not_in_a_recipe_is_refused(tmp_path, more, message):
    with pytest.raises(ConfigError, match=message):
        cpu(tmp_path, **more)


def test_equal_runs_of_two_recipes_share_a_directory(tmp_path):
    other = replace(SMALL, name="small/table2", setups={**SMALL.setups, "again": SMALL.setups["iid"]})
    first, second = plan(SMALL, "paper", tmp_path), plan(other, "paper", tmp_path)
    shared = {job.directory for job in first.jobs} & {job.directory for job in second.jobs}
    assert len(shared) == len(first.distinct) == len(second.distinct) == 12
    assert len(second.jobs) == 18


def test_execution_does_not_change_where_a_run_is_kept(tmp_path):
    setups = {
        name: replace(setup, settings={**setup.settings, "engine": "stacked"})
        for name, setup in SMALL.setups.items()
    }
    other = replace(SMALL, setups=setups)
    assert set(plan(SMALL, "cpu", tmp_path).distinct) == set(plan(other, "cpu", tmp_path).distinct)


def test_the_device_is_execution_too(tmp_path):
    there = plan(SMALL, "cpu", tmp_path, device="meta")
    assert {job.table["device"] for job in there.jobs} == {"meta"}
    assert set(there.distinct) == set(cpu(tmp_path).distinct)


def test_a_recipe_runs_once_and_is_read_ever_after(tmp_path, monkeypatch):
    heard = Heard()
    first = carry_out_plan(cpu(tmp_path), placement=ONE_BY_ONE, events=heard)
    assert heard.kept == [False] * 4
    monkeypatch.setattr(carrying_out, "carry_out", lambda *_: pytest.fail("a finished run is run again"))
    again = carry_out_plan(cpu(tmp_path), placement=ONE_BY_ONE, events=heard)
    assert heard.kept[4:] == [True] * 4
    assert first.cells == again.cells == read_outcome(cpu(tmp_path)).cells


def test_more_seeds_repeat_nothing(tmp_path):
    carry_out_plan(cpu(tmp_path, seeds=1), placement=ONE_BY_ONE)
    heard = Heard()
    carry_out_plan(cpu(tmp_path, seeds=2), placement=ONE_BY_ONE, events=heard)
    assert sorted((name[-1], kept) for name, kept in heard.ends) == [
        ("0", True),
        ("0", True),
        ("1", False),
        ("1", False),
    ]


def test_numbers_stand_beside_the_paper_s(tmp_path):
    outcome = carry_out_plan(cpu(tmp_path), placement=ONE_BY_ONE)
    cell = outcome.cells[CellKey("FedAvg", "IID top")]
    assert cell.printed.value == 90.0
    assert 0 < cell.mean <= 100
    assert cell.difference == pytest.approx(cell.mean - 90.0)
    assert len(cell.scores) == 2
    (table,) = shown_tables(outcome)
    assert table.headings[:4] == ["iid", "IID top: paper", "ours", "diff"]
    assert "ours: rounds to 15 %" in table.headings
    assert [row[0] for row in table.rows] == ["FedAvg", "FedDyn(ours)"]
    assert table.rows[0][1] == "90.0±.5"


def test_a_target_out_of_reach_shows_the_rounds_there_were(tmp_path):
    made = plan(SMALL, "paper", tmp_path, only=["iid"], methods=["fedavg"], seeds=2)
    outcome = carry_out_plan(made, placement=ONE_BY_ONE)
    assert shown_cell(outcome.cells[CellKey("FedAvg", "IID 99.9 %")]) == "3+"


def test_claims_are_judged_and_those_that_were_not_run_say_so(tmp_path):
    outcome = carry_out_plan(cpu(tmp_path), placement=ONE_BY_ONE)
    found = {one.claim.text: one for one in outcome.claims}
    assert found["FedDyn loses less on skewed clients"].finding == "not run"
    assert found["FedDyn needs fewer rounds"].in_paper == "holds"
    assert found["FedDyn reaches 99.9 % first"].in_paper == "not resolved"


def test_a_diverged_run_is_a_result_that_is_kept(tmp_path, monkeypatch):
    lines = {
        "FedAvg": METHODS["FedAvg"],
        "FedDyn(ours)": replace(METHODS["FedDyn(ours)"], settings={"work.lr": 1e6}),
    }
    wild = replace(SMALL, setups={name: replace(setup, lines=lines) for name, setup in SMALL.setups.items()})
    made = plan(wild, "cpu", tmp_path)
    outcome = carry_out_plan(made, placement=ONE_BY_ONE)
    assert {key.row for key in outcome.diverged} == {"FedDyn(ours)"}
    assert shown_cell(outcome.cells[CellKey("FedDyn(ours)", "IID top")]) == "diverged (2 of 2)"
    monkeypatch.setattr(jobs, "_planned", lambda job: pytest.fail("a diverged run is run again"))
    diverged = next(job for job in made.jobs if job.key.row == "FedDyn(ours)")
    assert jobs.finished(diverged).problem is not None


def test_the_page_and_the_numbers_are_written(tmp_path):
    outcome = carry_out_plan(cpu(tmp_path), placement=ONE_BY_ONE)
    write_page(outcome, "fedkeel reproduce small/table1")
    page = document_in(tmp_path / "small-table1-cpu" / "page.html")
    told = " ".join(texts(page))
    for text in ("FedDyn has the higher accuracy", "90.0±.5", "The paper does not exist", "not run: skewed"):
        assert text in told
    claims = block(page, "claims-table")
    assert [row[1] for row in claims.rows] == [one.finding for one in outcome.claims]
    assert block(page, "panel-1").series
    numbers = json.loads((tmp_path / "small-table1-cpu" / "outcome.json").read_text())
    assert numbers["claims"][0]["paper"] == "holds"
    assert len(numbers["runs"]) == 4


@pytest.mark.slow(11)
def test_runs_side_by_side_give_the_same_numbers(tmp_path):
    alone = carry_out_plan(cpu(tmp_path / "alone"), placement=ONE_BY_ONE)
    together = carry_out_plan(cpu(tmp_path / "together"), placement=Placement(2))
    tops = [{key: cell.scores for key, cell in one.cells.items()} for one in (alone, together)]
    assert tops[0] == tops[1]


def test_the_meter_weighs_runs_by_their_cost_and_estimates_what_is_left(tmp_path):
    made = cpu(tmp_path)
    now = [0.0]
    runs = [RecipeRun(job) for job in made.distinct.values()]
    meter = RunMeter(runs, clock=lambda: now[0])
    meter.begin()
    assert meter.look().left is None
    now[0] = 30.0
    meter.end(runs[0])
    done = meter.look()
    assert (done.runs, done.all_runs, done.rounds, done.all_rounds) == (1, 4, 2, 8)
    assert done.left == pytest.approx(90.0)
    assert str(done) == "1 of 4 runs, 2 of 8 rounds, 1 min 30 s left"


STUDIES = {
    "stability": (StabilityCurves(pairs=1, held_out=1, points=10), "final of distance (min)"),
    "steps": (StabilityCurves(along="steps", pairs=1, held_out=1, points=10), "final of distance (min)"),
    "features": (FeatureCounts(every=1, points=20, components=3), "final of features (min)"),
    "costs": (CountedCosts(rounds=2), "final of communication (min)"),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_takes_the_place_of_training(tmp_path, name):
    study, measure = STUDIES[name]
    setups = {"iid": replace(SMALL.setups["iid"], study=study, settings={**BASE, "data.clients": 5})}
    columns = (replace(SMALL.columns[0], measure=measure),)
    tables = (replace(SMALL.tables[0], columns=columns, numbers=""),)
    made = replace(SMALL, setups=setups, tables=tables, claims=(), panels=())
    outcome = carry_out_plan(plan(made, "cpu", tmp_path, seeds=1, methods=["fedavg"]), placement=ONE_BY_ONE)
    cell = outcome.cells[CellKey("FedAvg", "IID top")]
    assert cell.mean is not None
    assert cell.mean >= 0
    again = read_outcome(plan(made, "cpu", tmp_path, seeds=1, methods=["fedavg"]))
    assert again.cells == outcome.cells
