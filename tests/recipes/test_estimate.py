"""What a recipe takes, before it is run."""

from __future__ import annotations

import pytest

from fedkeel import models
from fedkeel.common.errors import DataError
from fedkeel.data.sources import load, names
from fedkeel.data.sources.fetch import DataDirectories
from fedkeel.papers.recipes import all_recipes
from fedkeel.papers.reproduce.estimate import DATA, MODELS, is_there, needs, plan_seconds, seconds_of
from fedkeel.papers.reproduce.jobs import JobResult
from fedkeel.papers.reproduce.plan import plan
from tests.recipes.small_recipe import SMALL

TABLE = {
    "rounds": 100,
    "cohort": 10,
    "data": {"name": "cifar10", "clients": 100},
    "model": {"name": "cnn"},
    "work": {"epochs": 5, "batch_size": 50},
}


def test_twice_the_work_takes_about_twice_as_long():
    once = seconds_of(TABLE)
    for more in (
        {"rounds": 200},
        {"cohort": 20},
        {"work": {"epochs": 10, "batch_size": 50}},
        {"cohort": 0.2},
    ):
        assert seconds_of({**TABLE, **more}) == pytest.approx(2 * once, rel=0.15)
    steps = {"work": {"steps": 50, "batch_size": 50}}  # as many samples as five epochs over 500
    assert seconds_of({**TABLE, **steps}) == pytest.approx(once)


def test_every_model_and_data_set_of_the_recipes_has_an_estimate():
    for recipe in all_recipes().values():
        for scale in ("paper", "cpu", "smoke"):
            assert needs(recipe, scale).seconds > 0
    assert set(MODELS) == set(models.names())
    assert set(DATA) <= set(names())


def test_the_whole_table_at_scale_cpu_takes_a_few_hours_at_most():
    slow = {name: needs(recipe, "cpu", cores=2).seconds / 3600 for name, recipe in all_recipes().items()}
    assert {name: hours for name, hours in slow.items() if hours > 3} == {}


@pytest.mark.parametrize("name", [name for name, size in DATA.items() if size.files])
def test_a_data_set_is_there_where_its_loader_finds_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path))
    monkeypatch.setenv("FEDKEEL_CACHE", str(tmp_path))
    assert not is_there(name)
    with pytest.raises(DataError, match="found none of") as problem:
        load(name, download=False)
    for file in DATA[name].files:
        assert file in str(problem.value)
    (tmp_path / DATA[name].files[0]).parent.mkdir(exist_ok=True)
    (tmp_path / DATA[name].files[0]).touch()
    assert is_there(name)
    assert DataDirectories.standard().find(DATA[name].files[0]) is not None


def test_finished_runs_correct_the_estimate(tmp_path):
    made = plan(SMALL, "cpu", tmp_path)
    before = plan_seconds(made, {}, 1)
    first = made.jobs[0]
    each = before / len(made.jobs)
    slow = JobResult([{"round": 0, "seconds": 3 * each}])
    assert plan_seconds(made, {first.directory: slow}, 1) == pytest.approx(3 * each * 3)
    assert plan_seconds(made, {first.directory: slow}, 2) == pytest.approx(3 * each * 3 / 2)
