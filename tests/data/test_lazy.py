"""Clients loaded when needed, samples read one by one, and memory-mapped arrays train as in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from selecting import slow

import fedkeel as fk

SIZES = [12, 7, 15, 9]
ENGINES = ("serial", *slow("stacked-uncompiled", "processes"))


def arrays(client: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(client)
    return rng.normal(size=(SIZES[client], 4)), rng.integers(0, 3, SIZES[client])


class Reads(torch.utils.data.Dataset[Any]):
    """A client's samples, each made when it is asked for."""

    def __init__(self, client: int) -> None:
        self.client = client

    def __len__(self) -> int:
        return SIZES[self.client]

    def __getitem__(self, index: int) -> Any:
        x, y = arrays(self.client)
        return torch.from_numpy(x[index]), int(y[index])


def in_memory(_: Path, **options: Any) -> fk.Federation:
    return fk.Federation.from_arrays([arrays(client) for client in range(4)], classes=3, **options)


def loaded(_: Path, **options: Any) -> fk.Federation:
    return fk.Federation.from_clients(4, arrays, sizes=SIZES, classes=3, **options)


def loaded_one_at_a_time(_: Path, **options: Any) -> fk.Federation:
    return fk.Federation.from_clients(4, arrays, classes=3, cache=0, **options)


def read(_: Path, **options: Any) -> fk.Federation:
    return fk.Federation.from_datasets(
        [Reads(client) for client in range(4)], lazy=True, classes=3, **options
    )


def mapped(folder: Path, **options: Any) -> fk.Federation:
    clients = []
    for client in range(4):
        x, y = arrays(client)
        np.save(folder / f"{client}.npy", x)
        clients.append((np.load(folder / f"{client}.npy", mmap_mode="r"), y))
    return fk.Federation.from_arrays(clients, classes=3, **options)


LAZY = [loaded, loaded_one_at_a_time, read, mapped]


def history(data: fk.Federation, method: Any = None, **options: Any) -> list[dict[str, Any]]:
    task = fk.Task(lambda: fk.models.mlp(4, (5,), 3).double())
    work = fk.Work(epochs=2, batch_size=5, lr=0.1)
    options = {"rounds": 3, "cohort": 2, "work": work, "engine": "serial", "progress": False, **options}
    rows = flat.train(task, data, method or fk.SCAFFOLD(), **options).history
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", LAZY)
def test_they_train_to_the_same_bits(make: Any, engine: str, tmp_path: Path) -> None:
    test = arrays(0)
    expected = history(in_memory(tmp_path, test=test), engine=engine)
    assert history(make(tmp_path, test=test), engine=engine) == expected


@pytest.mark.parametrize("make", LAZY)
@pytest.mark.parametrize("method", [fk.MimeLite(), fk.MOON()], ids=repr)
def test_full_gradients_and_objectives_do_too(make: Any, method: Any, tmp_path: Path) -> None:
    test = arrays(0)
    options = {"probes": [fk.probes.Losses(every=1)], "work": fk.Work(epochs=1, batch_size=None, lr=0.1)}
    expected = history(in_memory(tmp_path, test=test), method, **options)
    assert history(make(tmp_path, test=test), method, **options) == expected


def test_only_clients_that_take_part_are_loaded() -> None:
    asked: list[int] = []

    def load(client: int) -> Any:
        asked.append(client)
        return arrays(client % 4)

    sizes = [SIZES[client % 4] for client in range(1000)]
    data = fk.Federation.from_clients(1000, load, sizes=sizes, classes=3, test=arrays(0))
    rows = history(data, fk.FedAvg(), cohort=3)
    taking_part = {client for row in rows for client in row["cohort"]}
    assert set(asked) == taking_part | {0}  # client 0 shows what a sample is


def test_what_was_used_last_stays_within_the_cache() -> None:
    asked: list[int] = []

    def load(client: int) -> Any:
        asked.append(client)
        return arrays(client)

    two_clients = sum(arrays(client)[0].nbytes + arrays(client)[1].nbytes for client in (0, 2))
    data = fk.Federation.from_clients(4, load, sizes=SIZES, cache=two_clients)
    for client in (0, 2, 0, 2, 1, 2, 0):
        data.samples(client)
    assert asked == [0, 2, 1, 0]


def test_nothing_that_was_loaded_is_sent_to_another_process(tmp_path: Path) -> None:
    data = fk.Federation.from_clients(4, arrays, sizes=SIZES, cache=2**30)
    empty = len(pickle.dumps(data))
    for client in range(4):
        data.samples(client)
    assert len(pickle.dumps(data)) < empty + 2000
    big = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (5000, 100))
    again = pickle.loads(
        pickled := pickle.dumps(fk.Federation.from_arrays([(big[1000:], np.zeros(4000, int))]))
    )
    assert len(pickled) < big.nbytes / 10
    big[1000] = 7.0
    assert again.samples(0)[0][0, 0] == 7.0


def test_a_split_of_one_memory_mapped_array_leaves_it_in_its_file(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    np.save(tmp_path / "x.npy", x)
    on_disk = fk.Dataset.from_arrays(np.load(tmp_path / "x.npy", mmap_mode="r"), y, test=(x[:9], y[:9]))
    splits = [
        one.split(fk.IID(), clients=4) for one in (on_disk, fk.Dataset.from_arrays(x, y, (x[:9], y[:9])))
    ]
    assert history(splits[0]) == history(splits[1])
    assert len(pickle.dumps(splits[0].pool)) < x.nbytes


def test_loaded_clients_may_be_trees_and_datasets() -> None:
    def load(client: int) -> Any:
        x, y = arrays(client)
        return {"input": x}, y

    trees = fk.Federation.from_clients(4, load, sizes=SIZES)
    assert torch.equal(trees.samples(2)[0]["input"], torch.from_numpy(arrays(2)[0]))
    datasets = fk.Federation.from_clients(4, Reads, sizes=SIZES)
    assert torch.equal(datasets.samples(1)[0], torch.from_numpy(arrays(1)[0]))


def test_rows_of_several_clients_come_in_the_order_asked_for() -> None:
    whole = in_memory(Path())
    rows = torch.tensor([30, 2, 13, 0, 42, 12, 31, 2])
    for data in (loaded(Path()), read(Path())):
        for found, expected in zip(data.pick(rows), whole.pick(rows), strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("make", [loaded, read])
def test_evaluation_of_all_clients_data_reads_it_in_parts(make: Any, tmp_path: Path) -> None:
    expected = history(in_memory(tmp_path), probes=[fk.probes.Losses(every=1)])
    assert history(make(tmp_path), probes=[fk.probes.Losses(every=1)]) == expected


def test_a_resumed_run_must_have_the_same_data() -> None:
    def other(client: int) -> Any:
        return arrays(client)

    plain = loaded(Path()).fingerprint()
    assert loaded(Path()).fingerprint() == plain
    assert fk.Federation.from_clients(4, other, sizes=SIZES, classes=3).fingerprint() != plain
    named = [
        fk.Federation.from_clients(4, load, sizes=SIZES, fingerprint=word).fingerprint()
        for load, word in ((arrays, "v1"), (other, "v1"), (arrays, "v2"))
    ]
    assert named[0] == named[1] != named[2]


def broken(part: str) -> Any:
    def load(client: int) -> Any:
        x, y = arrays(client)
        if client != 2:
            return x, y
        return {
            "file": lambda: open("nowhere.npy"),
            "nan": lambda: (np.where(x > 1, np.nan, x), y),
            "label": lambda: (x, y + 2),
            "size": lambda: (x[:3], y[:3]),
            "shape": lambda: (x[:, :2], y),
            "kind": lambda: ({"x": x}, y),
            "nothing": lambda: None,
        }[part]()

    return load


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("file", r"client 2: load\(2\) failed with FileNotFoundError.*nowhere.npy"),
        ("nan", r"client 2: x\[\d+\] holds NaN or infinity"),
        ("label", r"client 2: y\[\d+\] is [34], but there are 3 classes"),
        ("size", r"client 2: load\(2\) gave 3 samples, but sizes says 15"),
        ("shape", r"client 2: a row of x is torch.float64 of shape \(2,\), but client 0 has"),
        ("kind", "client 2: x is a dict of x, but client 0 has one array"),
        ("nothing", r"client 2: load\(2\) gave NoneType: it must give a pair"),
    ],
)
@pytest.mark.parametrize("engine", ["serial", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_fault_of_one_client_is_named_when_it_is_loaded(part: str, told: str, engine: str) -> None:
    data = fk.Federation.from_clients(4, broken(part), sizes=SIZES, classes=3, test=arrays(0))
    with pytest.raises(fk.DataError, match=told):
        history(data, cohort=4, engine=engine)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: fk.Federation.from_clients(0, arrays), "count = 0: give the number of clients"),
        (lambda: fk.Federation.from_clients(4, "files"), "load = 'files': give a function"),
        (lambda: fk.Federation.from_clients(4, arrays, sizes=[3]), "1 sizes for 4 clients"),
        (lambda: fk.Federation.from_clients(2, arrays, sizes=[12, 0]), "client 1 has no samples"),
        (lambda: loaded(Path(), test=(np.zeros((3, 5)), [0, 1, 2])), "the test set: a row of x is"),
        (lambda: loaded(Path()).x, r"federation.samples\(client\) returns a client's"),
        (lambda: history(fk.Federation.from_clients(4, arrays, sizes=SIZES)), "say how many classes"),
        (
            lambda: history(fk.Federation.from_clients(4, arrays, sizes=SIZES, classes=9)),
            "9 classes, but .* has 3",
        ),
    ],
    ids=range(8),
)
def test_what_cannot_be_is_refused_at_once(call: Any, told: str) -> None:
    with pytest.raises(fk.DataError, match=told):
        call()
