"""Histories of finished runs: what is kept of a run stands in for it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from run_events import Heard

from fedkeel.common.errors import StorageError
from fedkeel.experiments.placement import ONE_BY_ONE
from fedkeel.papers.reproduce.carrying_out import carry_out_plan, read_outcome
from fedkeel.papers.reproduce.histories import history_file, keep_history, read_history
from fedkeel.papers.reproduce.jobs import JobResult
from fedkeel.papers.reproduce.plan import RecipePlan, plan
from tests.recipes.small_recipe import SMALL

# a number too long, a list, a text, a gap, infinity
ROWS = [
    {"round": 0, "accuracy": 1 / 3, "cohort": [1, 2], "check": "a", "loss": float("inf")},
    {"round": 1, "accuracy": None, "loss": 0.5, "late": True},
]


def small(out: Path) -> RecipePlan:
    return plan(SMALL, "cpu", out)


def test_a_run_with_a_history_is_not_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first = carry_out_plan(small(tmp_path / "a"), placement=ONE_BY_ONE, histories=kept)
    assert len(list(kept.iterdir())) == 4
    heard = Heard()
    second = carry_out_plan(
        small(tmp_path / "b"),
        placement=ONE_BY_ONE,
        histories=kept,
        events=heard,
    )
    assert all(heard.kept)
    assert not (tmp_path / "b" / "runs").exists()
    for key, cell in first.cells.items():
        for seed, score in cell.scores.items():
            assert second.cells[key].scores[seed].value == pytest.approx(score.value, rel=1e-5)
    assert [one.finding for one in first.claims] == [one.finding for one in second.claims]


def test_some_histories_give_a_part_of_the_table(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    carry_out_plan(small(tmp_path / "a"), placement=ONE_BY_ONE, histories=kept)
    for file in kept.glob("*seed-1*"):
        file.unlink()
    outcome = read_outcome(small(tmp_path / "b"), kept)
    assert {key.seed for key in outcome.results} == {0}
    assert len(read_outcome(small(tmp_path / "b")).results) == 0


def test_numbers_are_kept_to_six_digits_and_gaps_stay_gaps(tmp_path: Path) -> None:
    job = small(tmp_path).jobs[0]
    keep_history(tmp_path, job, JobResult(ROWS, "diverged in round 1"))
    assert read_history(tmp_path, job) == JobResult(
        [{"round": 0, "accuracy": 0.333333, "loss": float("inf")}, {"round": 1, "loss": 0.5}],
        "diverged in round 1",
    )
    content = json.loads(gzip.decompress(history_file(tmp_path, job).read_bytes()))
    assert content["experiment"]["method"] == "FedAvg"


def test_the_same_run_gives_the_same_bytes_and_is_never_overwritten(tmp_path: Path) -> None:
    job = small(tmp_path).jobs[0]
    for folder in ("a", "b"):
        keep_history(tmp_path / folder, job, JobResult(ROWS))
    files = [history_file(tmp_path / folder, job) for folder in ("a", "b")]
    assert files[0].read_bytes() == files[1].read_bytes()
    keep_history(tmp_path / "a", job, JobResult([]))
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", *(gzip.compress(text, mtime=0) for text in (b"no json", b"[]", b"{}"))],
    ids=["nothing", "no gzip", "no json", "a list", "no fields"],
)
def test_a_file_that_is_no_history_is_named(tmp_path: Path, content: bytes) -> None:
    job = small(tmp_path).jobs[0]
    history_file(tmp_path, job).write_bytes(content)
    with pytest.raises(StorageError, match=r"json\.gz: no history .* delete it to run it again"):
        read_history(tmp_path, job)
