"""Clients with test sets of their own, and how a model does client by client."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import tiny_net
from selecting import slow
from torch import nn

import fedkeel as fk
from fedkeel.common.client_table import ClientTable
from fedkeel.experiments.experiment import Experiment

SIZES = [3, 8, 5, 11]
PROBLEM = tiny_net(SIZES)
TESTS = [PROBLEM.clients[1], None, PROBLEM.clients[3], PROBLEM.clients[0]]
TESTED = fk.Federation.from_arrays(PROBLEM.clients, client_tests=TESTS)
SMALL = ["rounds=2", "cohort=2", "data.clients=5", "work.epochs=1", "engine=serial"]


def train(federation: fk.Federation = TESTED, method: Any = None, **options: Any) -> fk.Result:
    given = {"rounds": 3, "cohort": 2, "work": fk.Work(epochs=1, batch_size=3, lr=0.1), "engine": "serial"}
    return flat.train(PROBLEM.task, federation, method or fk.SCAFFOLD(), **given | options)


def weights(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


def made(count: int, **columns: Any) -> ClientTable:
    """Return a table of clients of which each is better than the one before."""
    facts = {"samples": 4, "visits": 1, "evaluated_on": "test", "evaluated": 2, "loss": 0.5}
    return ClientTable([{"client": i, **facts, "accuracy": i / (count - 1), **columns} for i in range(count)])


@pytest.mark.parametrize("engine", ["serial", *slow("stacked-uncompiled", "processes")])
def test_the_table_has_each_clients_scores_on_its_own_test_set(engine: str) -> None:
    result = train(engine=engine)
    visits = Counter(client for row in result.history for client in row["cohort"])
    for client, row in enumerate(result.per_client().rows):
        own = TESTS[client]
        expected = result.evaluate(own or PROBLEM.clients[client])
        assert {name: row[name] for name in ("loss", "accuracy")} == pytest.approx(expected, abs=1e-6)
        facts = (client, SIZES[client], visits[client], "test" if own else "training")
        assert (row["client"], row["samples"], row["visits"], row["evaluated_on"]) == facts
        assert row["evaluated"] == len((own or PROBLEM.clients[client])[0])
    assert sum(visits.values()) == 6


def test_test_sets_of_clients_change_nothing_of_the_training() -> None:
    plain = train(fk.Federation.from_arrays(PROBLEM.clients))
    assert torch.equal(weights(plain.model), weights(train().model))
    assert plain.client_table is None


def test_without_test_sets_clients_are_evaluated_on_their_training_data_when_asked() -> None:
    bare = fk.Federation.from_arrays(PROBLEM.clients)
    result = train(bare)
    with pytest.raises(fk.ConfigError, match=re.escape("result.per_client(federation)")):
        result.per_client()
    table = result.per_client(bare)
    assert {row["evaluated_on"] for row in table.rows} == {"training"}
    assert str(table).startswith("4 clients, each on its own training data\naccuracy: mean ")
    assert str(train().per_client()).startswith("4 clients: 3 on a test set of their own, the others on")


def test_a_split_gives_each_client_its_own_test_part() -> None:
    federation = PROBLEM.federation.with_client_tests(0.4, seed=3)
    for client, size in enumerate(SIZES):
        kept, tested = federation.rows(client).tolist(), federation.client_tests.of(client).tolist()
        assert sorted(kept + tested) == PROBLEM.federation.rows(client).tolist()
        assert abs(len(tested) - 0.4 * size) < 1
    assert federation.x is PROBLEM.federation.x
    both = federation.with_validation(0.3)
    held = {*both.validation.rows.tolist(), *both.client_tests.rows.tolist(), *both.index.tolist()}
    assert (
        len(held) == sum(SIZES) == len(both.validation.rows) + len(both.client_tests.rows) + len(both.index)
    )


def test_datasets_and_words_are_taken_as_test_sets() -> None:
    sets = [torch.utils.data.TensorDataset(*map(torch.as_tensor, pair)) for pair in PROBLEM.clients]
    for clients in (sets, PROBLEM.clients):
        federation = fk.Federation.from_arrays(clients, client_tests=[None, sets[0], None, None])
        assert np.array_equal(federation.pick(federation.client_tests.of(1))[0], PROBLEM.clients[0][0])
    words = fk.Federation.from_arrays([(np.eye(2), ["a", "b"])], client_tests=[(np.eye(2), ["c", "a"])])
    assert words.pick(words.client_tests.of(0))[1].tolist() == [2, 0]
    assert words.classes == 3


def test_a_run_on_disk_keeps_the_table(tmp_path: Path) -> None:
    result = train(run_dir=tmp_path, keep_client_states=True)
    loaded = fk.load(tmp_path, PROBLEM.task)
    assert list(loaded.per_client().rows) == list(result.per_client().rows)
    with pytest.raises(fk.StorageError, match="belongs to another experiment: its federation is"):
        train(fk.Federation.from_arrays(PROBLEM.clients), run_dir=tmp_path, resume=True)
    longer = train(run_dir=tmp_path, resume=True, rounds=5)
    rows = [json.loads(line) for line in (tmp_path / "clients.jsonl").read_text().splitlines()]
    assert rows == list(longer.per_client().rows)
    assert sum(row["visits"] for row in rows) == 10


def test_a_file_gives_clients_test_sets() -> None:
    experiment = Experiment().with_settings([*SMALL, "data.client_tests=0.25", "data.validation=0.2"])
    assert Experiment.from_table(experiment.table()) == experiment
    table = experiment.train().per_client()
    assert len(table.rows) == 5
    assert table.title == "5 clients, each on a test set of its own"


def test_few_clients_are_shown_whole_and_of_many_the_ends() -> None:
    few, many = str(made(12)), str(made(1001))
    assert len(few.splitlines()) == 3 + 1 + 12
    assert len(many.splitlines()) == 3 + 1 + 11
    spread = "mean 50.0 %, worst 0.0 %, 10th percentile 10.0 %, median 50.0 %"
    spread += ", 90th percentile 90.0 %, best 100.0 %"
    assert many.splitlines()[:2] == ["1,001 clients, each on a test set of its own", f"accuracy: {spread}"]
    assert [line.split()[0] for line in many.splitlines()[4:]] == [
        *"01234",
        "…",
        *["996", "997", "998", "999", "1000"],
    ]


def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    table = made(4)
    scores = sorted(float(row["accuracy"]) for row in table.rows)
    assert table.distribution["median"] == (scores[1] + scores[2]) / 2 != scores[2]


def test_without_an_accuracy_the_loss_says_who_fares_worst() -> None:
    rows = [{key: value for key, value in row.items() if key != "accuracy"} for row in made(3).rows]
    table = ClientTable([{**row, "loss": loss} for row, loss in zip(rows, (1.0, 3.0, 2.0), strict=True)])
    assert [row["client"] for row in table.worst_first] == [1, 2, 0]
    assert list(table.distribution.items())[1:3] == [("worst", 3.0), ("90th percentile", 3.0)]
    assert "accuracy" not in str(table)


def test_the_page_shows_a_distribution_and_who_fares_worst(tmp_path: Path) -> None:
    found = fk.compare(
        lambda method, seed: train(method=method, seed=seed), [fk.FedAvg(), fk.SCAFFOLD()], seeds=2
    )
    page = found.save_page(tmp_path / "page.html").read_text()
    assert "Client by client" in page
    assert "8 clients: 6 on a test set of their own" in page


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ([TESTS[0]], "client_tests has 1 entries for 4 clients: give one per client, None for a client"),
        ([None] * 4, "client_tests holds nothing but None"),
        (
            [None, None, (np.zeros((2, 3)), [0, 1]), (np.zeros((2, 9)), [0, 1])],
            "the test set of client 3: a row",
        ),
        ([None, None, None, (np.full((1, 3), np.nan), [0])], "the test set of client 3: x[0] holds NaN"),
    ],
)
def test_mistakes_are_refused_by_name(tests: Any, message: str) -> None:
    with pytest.raises(fk.DataError, match=re.escape(message)):
        fk.Federation.from_arrays(PROBLEM.clients, client_tests=tests)
