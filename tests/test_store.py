"""The store of client memories: where a memory lies changes no bit of it, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import flat
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from selecting import one_in
from torch import Tensor

import fedkeel as fk
from fedkeel.running import mmap_store, segments
from fedkeel.running.checkpoints import Checkpoints
from fedkeel.running.store import BUDGET, Store
from fedkeel.tensors.records import Nothing, Record, leaves, rebuild


class Inner(NamedTuple):
    c_i: Tensor


class Memory(NamedTuple):
    inner: Inner | Nothing
    last: Tensor
    seen: Tensor | None


def memory(value: float, size: int = 5, seen: bool = True) -> Memory:
    inner = Inner(torch.full((size,), value, dtype=torch.float64))
    return Memory(inner, torch.arange(size) + value, torch.tensor([value]) if seen else None)


def same(one: Record, other: Record) -> bool:
    pairs = zip(leaves(one), leaves(other), strict=True)
    return type(one) is type(other) and all(
        a == b and left.dtype == right.dtype and torch.equal(left, right) for (a, left), (b, right) in pairs
    )


def read_back(path: Path, template: Record) -> dict[int, Record]:
    loaded = Checkpoints(path).read(report=pytest.fail)
    return {} if loaded is None else {client: rebuild(template, named) for client, named in loaded.memories}


def test_memories_past_the_budget_lie_in_a_file_and_come_back_as_they_were(tmp_path):
    store = Store(budget=5_000, directory=tmp_path)
    for client in range(40):
        store.commit({client: memory(client + 0.1)})
    assert store.in_file > 30
    assert list(tmp_path.iterdir()) == []  # the file has no name
    assert set(store) == set(range(40))
    assert len(store) == 40
    assert 41 not in store
    for client in range(40):
        assert same(store[client], memory(client + 0.1))


def test_the_clients_that_took_part_longest_ago_go_to_the_file_first():
    store = Store({client: memory(client) for client in range(3)}, budget=10**6)
    store.commit({0: memory(7)})
    store.budget = 3_500
    store.commit({9: memory(9)})
    assert [client in store._in_ram for client in (1, 2, 0, 9)] == [False, False, True, True]


def test_a_memory_read_from_the_file_is_not_changed_by_later_ones():
    store = Store({1: memory(1.0)}, budget=0)
    old = store[1]
    store.commit({1: memory(2.0)})
    store.commit({2: memory(3.0)})
    assert same(old, memory(1.0))
    assert same(store[1], memory(2.0))


def test_rows_of_the_file_are_used_again():
    store = Store(budget=0)
    for value in range(100):
        store.commit({3: memory(value)})
    (rows,) = store._tables.values()
    assert rows.put(memory(0)) <= 1


def test_the_file_grows_over_several_extents(monkeypatch):
    monkeypatch.setattr(mmap_store, "_GROWTH", 4096)
    store = Store(budget=0)
    store.commit({client: memory(client, size=100) for client in range(50)})
    assert all(same(store[client], memory(client, size=100)) for client in store)


def test_memories_of_several_shapes_live_side_by_side(tmp_path):
    store = Store({1: memory(1.0), 2: memory(2.0, size=3, seen=False)}, budget=0)
    store.commit({3: Inner(torch.ones(2, dtype=torch.bfloat16)), 4: Inner(torch.empty(0))})
    assert same(store[2], memory(2.0, size=3, seen=False))
    assert same(store[3], Inner(torch.ones(2, dtype=torch.bfloat16)))
    segments.write(tmp_path / "client_states.safetensors", store, store)
    found = dict(segments.read(tmp_path / "client_states.safetensors"))
    assert {client: dict(leaves(store[client])).keys() for client in store} == {
        i: m.keys() for i, m in found.items()
    }
    assert all(torch.equal(found[i][name], t) for i in store for name, t in leaves(store[i]))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.integers(0, 9), st.floats(allow_nan=False, width=32), max_size=4),
            st.just("clear"),
            st.just("checkpoint"),
        ),
        max_size=20,
    ),
    st.sampled_from([0, 900, 4_000, 10**6]),
)
def test_any_history_is_remembered_and_restored(tmp_path_factory, history, budget):
    path = tmp_path_factory.mktemp("run")
    store, plain, kept, checkpoints = Store(budget=budget), {}, {}, Checkpoints(path)
    for place, event in enumerate(history):
        if event == "clear":
            store.clear()
            plain = {}
        elif event == "checkpoint":
            checkpoints.write(place, {}, {"x0": torch.zeros(1)}, store)
            kept = dict(plain)
        else:
            store.commit({client: memory(value) for client, value in event.items()})
            plain.update(event)
        assert {client: float(store[client].seen) for client in store} == plain
    restored = read_back(path, memory(0.0))
    assert set(restored) == set(kept)
    assert all(same(restored[client], memory(value)) for client, value in kept.items())


@pytest.mark.slow
def test_a_checkpoint_costs_what_changed_and_all_segments_less_than_twice_the_memories(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a thousand of them would take most of the time
    store, checkpoints = Store(), Checkpoints(tmp_path)
    written = []
    for round in range(200):
        cohort = [(7 * round + client) % 1000 for client in range(7)]
        store.commit({client: memory(round) for client in cohort})
        checkpoints.write(round, {"round": round}, {"x0": torch.zeros(1)}, store)
        folder = tmp_path / "checkpoints" / f"round-{round:08d}"
        written.append(len(segments.clients_of(folder / "client_states.safetensors")))
        assert (folder / "checkpoint.json").stat().st_size < 2_000
        assert sum(len(segment.clients) for segment in checkpoints._segments) <= 2 * len(store)
    assert sum(written) < 200 * 7 * 8  # a change is written again a few times, as segments merge
    assert sorted(written)[100] < 7 * 8
    restored = read_back(tmp_path, memory(0.0))
    assert all(same(restored[client], store[client]) for client in store)
    assert len(restored) == len(store) == 1000


def test_segments_are_ordinary_safetensors_files(tmp_path):
    store = Store({3: memory(3.0), 1: memory(1.0)})
    segments.write(tmp_path / "m.safetensors", store, store)
    found = load_file(tmp_path / "m.safetensors")
    assert found["clients.0"].tolist() == [1, 3]
    assert found["memory.0.inner.c_i"].tolist() == [[1.0] * 5, [3.0] * 5]


def test_changes_count_as_kept_only_once_a_checkpoint_holds_them(tmp_path, monkeypatch):
    store, checkpoints = Store({}), Checkpoints(tmp_path)
    store.commit({1: memory(1.0)})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(fk.StorageError, match="free some room"):
            checkpoints.write(1, {}, {"x0": torch.zeros(1)}, store)
    checkpoints.write(2, {}, {"x0": torch.zeros(1)}, store)
    assert same(read_back(tmp_path, memory(0.0))[1], memory(1.0))


def test_a_damaged_segment_sends_the_reader_to_the_checkpoint_before_and_is_replaced(tmp_path):
    store, checkpoints = Store(), Checkpoints(tmp_path)
    store.commit({client: memory(client) for client in range(9)})
    checkpoints.write(1, {"round": 1}, {"x0": torch.zeros(1)}, store)
    store.commit({0: memory(5.0)})
    checkpoints.write(2, {"round": 2}, {"x0": torch.zeros(1)}, store)
    damaged = tmp_path / "checkpoints" / "round-00000002" / "client_states.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    told: list[str] = []
    again = Checkpoints(tmp_path)
    loaded = again.read(report=told.append)
    assert loaded is not None
    assert loaded.values == {"round": 1}
    assert "client_states.safetensors does not match its hash" in told[0]
    restored = Store({client: rebuild(memory(0.0), named) for client, named in loaded.memories})
    restored.commit({0: memory(5.0)})
    again.write(2, {"round": 2}, {"x0": torch.zeros(1)}, restored)
    assert same(read_back(tmp_path, memory(0.0))[0], memory(5.0))


@pytest.mark.parametrize("algorithm", one_in(3, [fk.SCAFFOLD(), fk.FedInit(), fk.FedSMOO()]), ids=repr)
def test_training_with_spilled_memories_equals_training_in_ram(algorithm, tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    clients = [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(12)]
    ends = []
    for budget in ("1G", "0"):
        monkeypatch.setenv(BUDGET, budget)
        torch.manual_seed(0)
        task = fk.Task(torch.nn.Linear(3, 2))
        options = {"rounds": 6, "cohort": 0.75, "work": fk.Work(epochs=1, batch_size=3), "engine": "serial"}
        federation = fk.Federation.from_arrays(clients)
        result = flat.train(
            task, federation, algorithm, run_dir=tmp_path / budget, checkpoint_every=2, **options
        )
        ends.append((result, (tmp_path / budget / "model.safetensors").read_bytes()))
    (ram, model), (spilled, other) = ends
    assert spilled.client_states.store.in_file == len(spilled.client_states) > 0
    assert ram.client_states.store.in_file == 0
    assert model == other
    assert all(same(ram.client_states[client], spilled.client_states[client]) for client in ram.client_states)


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1000", 1000), ("2K", 2048), ("1.5 MiB", 1572864), ("3gb", 3 * 2**30)]
)
def test_the_budget_is_read_from_the_environment(text, bytes_, monkeypatch):
    monkeypatch.setenv(BUDGET, text)
    assert Store().budget == bytes_


def test_a_budget_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv(BUDGET, "plenty")
    with pytest.raises(
        fk.ConfigError, match="FEDKEEL_MEMORY_BUDGET = 'plenty': give bytes, as in 512M or 8G"
    ):
        Store()
