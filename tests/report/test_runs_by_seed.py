"""Runs made in Python are put together by what the user varied; what a seed decides is no difference."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedkeel as fk
from fedkeel.directories.pages import document_of

METHODS = (fk.FedAvg(), fk.SCAFFOLD())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As docs/python.md keeps them: a directory per seed and method, first weights and split by the seed."""
    where = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        data = fk.data.load("digits").split(fk.DirichletByClass(0.1), clients=6, seed=seed)
        for method in METHODS:
            fk.train(
                fk.Task(lambda: fk.models.logistic(64)),
                data,
                method,
                rounds=2,
                cohort=3,
                work=fk.Work(steps=2, batch_size=20, lr=0.1),
                seed=seed,
                run_dir=where / f"{seed}/{type(method).__name__}",
                execution=fk.Execution("serial", threads=1),
            )
    return where


@pytest.mark.filterwarnings("ignore:.*there is no study.json")
def test_seeds_are_no_methods(made: Path) -> None:
    document = document_of([made])
    assert document.scores is not None
    assert [row[0] for row in document.scores.rows] == list(map(repr, METHODS))
    assert "±" in document.scores.rows[0][1]
    assert document.verdict is not None
    assert "No verdict" not in document.verdict.text
    apart = document_of([made / "0", made / "1", made / "2"])
    assert apart.scores is not None
    assert apart.scores.rows == document.scores.rows


@pytest.mark.filterwarnings("ignore:.*there is no study.json")
def test_where_it_is_unclear_what_belongs_together_no_verdict_is_given(made: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).symlink_to(made / "0")
    document = document_of([tmp_path / "first", tmp_path / "second"])
    assert document.verdict is not None
    assert "No verdict: several runs of FedAvg(lr=1.0), SCAFFOLD" in document.verdict.text
    assert document.scores is not None
    assert len({row[0] for row in document.scores.rows}) == 4
    assert "first/FedAvg" in document.scores.rows[0][0]
