"""pandas' tables and targets that are words are taken as they are."""

from __future__ import annotations

from typing import Any

import flat
import numpy as np
import pytest
import torch
from torch import nn

import fedkeel as fk

pd = pytest.importorskip("pandas", reason="needs the extra pandas")


def table(rows: int, seed: int = 0) -> object:
    drawn = np.random.default_rng(seed).normal(size=(rows, 2))
    return pd.DataFrame({"a": drawn[:, 0], "b": drawn[:, 1], "c": np.arange(rows), "d": drawn[:, 0] > 0})


def test_data_frames_and_series_are_their_arrays():
    frames = [table(4, 1), table(6, 2)]
    targets = [pd.Series(np.arange(len(frame)) % 3, index=range(5, 5 + len(frame))) for frame in frames]
    federation = fk.Federation.from_arrays([*zip(frames, targets, strict=True)], (frames[0], targets[0]))
    assert torch.equal(federation.x, torch.from_numpy(np.concatenate([f.to_numpy(float) for f in frames])))
    assert federation.y.tolist() == [*(np.arange(4) % 3), *(np.arange(6) % 3)]
    assert torch.equal(federation.test[0], federation.x[:4])


def test_what_is_changed_in_the_table_later_changes_nothing_here():
    frame = table(4)[["a", "b"]]
    federation = fk.Federation.from_arrays([(frame, pd.Series([0, 1, 0, 1]))])
    before = federation.x.clone()
    frame.loc[:, "a"] = 7.0
    assert torch.equal(federation.x, before)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pd.Categorical])
def test_words_become_class_numbers_over_all_clients(kind):
    x = torch.randn(3, 4)
    clients = [(x, kind(["dog", "cat", "dog"])), (x, kind(["emu", "dog", "cat"]))]
    if kind is pd.Categorical:
        clients = [(one, pd.Series(words)) for one, words in clients]
    federation = fk.Federation.from_arrays(clients, (x, kind(["emu", "emu", "ant"])))
    assert federation.y.tolist() == [2, 1, 2, 3, 2, 1]
    assert federation.test[1].tolist() == [3, 3, 0]
    assert federation.origin["labels"] == ["ant", "cat", "dog", "emu"]
    assert federation.classes == 4
    options = {"rounds": 1, "cohort": 1, "work": fk.Work(steps=1), "engine": "serial"}
    assert flat.train(fk.Task(nn.Linear(4, 4)), federation, fk.FedAvg(), **options).history[-1]["loss"] > 0


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        (
            table(3).assign(e="z"),
            [0, 1, 0],
            r"client 0: the column 'e' of x holds .*, no numbers.*get_dummies",
        ),
        (table(3), pd.Series(["a", None, "b"]), r"client 0: y holds .*is one missing"),
        ({"a": [[1, 2], [3]]}, [0, 1], r"client 0: cannot make tensors"),
        ([[1, 2], [3]], [0, 1], r"client 0: cannot make tensors"),
    ],
)
def test_what_holds_no_numbers_is_named(x, y, told):
    with pytest.raises(fk.DataError, match=told):
        fk.Federation.from_arrays([(x, y)])


@pytest.mark.parametrize("client", [torch.zeros(2), (torch.zeros(2), torch.zeros(2), torch.zeros(2)), 3])
def test_a_client_that_is_no_pair_is_refused(client):
    with pytest.raises(fk.DataError, match=r"client 0 is a \w+: give a pair \(x, y\) of arrays"):
        fk.Federation.from_arrays([client])


def test_data_sets_take_them_too():
    data = fk.Dataset.from_arrays(table(4), pd.Series(["b", "a", "b", "c"]), (table(1), ["c"]))
    assert (data.y.tolist(), data.test[1].tolist()) == ([1, 0, 1, 2], [2])
    assert (data.classes, data.class_names) == (3, ("a", "b", "c"))


def test_a_table_of_one_column_is_a_column_of_classes_or_keeps_its_shape():
    classes, numbers = pd.DataFrame({"y": [0, 1, 1]}), pd.DataFrame({"y": [0.5, 1.0, 2.0]})
    assert fk.Federation.from_arrays([(table(3), classes)]).y.shape == (3,)
    assert fk.Federation.from_arrays([(table(3), numbers)]).y.shape == (3, 1)


def hospital(order: list[str], rows: int, seed: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    numbers = draw.normal(size=(rows, 3)) + np.array([0, 10, 100])
    table = pd.DataFrame(numbers, columns=["age", "dose", "weight"])
    return table[order], pd.Series(draw.integers(0, 2, rows))


def test_columns_are_matched_by_name_whatever_their_order() -> None:
    right = ["age", "dose", "weight"]
    straight = fk.Federation.from_arrays(
        [hospital(right, 5, 0), hospital(right, 4, 1)], hospital(right, 3, 2)
    )
    shuffled = fk.Federation.from_arrays(
        [hospital(right, 5, 0), hospital(["weight", "age", "dose"], 4, 1)], hospital(right[::-1], 3, 2)
    )
    assert shuffled.fingerprint() == straight.fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x.rename(columns={"dose": "Dose"}),
            r"{owner}: x lacks 'dose' and has 'Dose', unlike client 0",
        ),
        (lambda x: x.drop(columns="age"), r"{owner}: x lacks 'age', unlike client 0"),
        (lambda x: x.assign(ward=1), r"{owner}: x has 'ward', unlike client 0"),
    ],
)
@pytest.mark.parametrize("owner", ["client 1", "the test set"])
def test_other_columns_are_refused_by_name(owner: str, change: Any, message: str) -> None:
    right = ["age", "dose", "weight"]
    pairs = {"client 1": hospital(right, 4, 1), "the test set": hospital(right, 3, 2)}
    pairs[owner] = change(pairs[owner][0]), pairs[owner][1]
    with pytest.raises(fk.DataError, match=message.format(owner=owner)):
        fk.Federation.from_arrays([hospital(right, 5, 0), pairs["client 1"]], pairs["the test set"])
