"""A client's memory on its node's disk: two versions, each whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedkeel.flower.engine import committed_versions
from fedkeel.flower.memory import MemoryDirectory, MemoryLost
from fedkeel.methods import FedAvg, FedDyn, stages


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"method.c_i": torch.full((3,), value), "notes.0": torch.arange(2)}


def test_a_version_is_read_back_and_the_one_it_came_from_stays(tmp_path: Path) -> None:
    kept = MemoryDirectory(tmp_path / "client")
    with kept.locked():
        kept.write(1, tensors(1.0), base=0)
        kept.write(4, tensors(4.0), base=1)
    assert kept.versions() == [1, 4]
    assert kept.read(4)["method.c_i"].equal(torch.full((3,), 4.0))
    assert kept.read(1)["method.c_i"].equal(torch.full((3,), 1.0))


def test_a_refused_version_is_dropped_when_the_next_is_made_from_the_one_before(tmp_path: Path) -> None:
    kept = MemoryDirectory(tmp_path)
    kept.write(3, tensors(3.0), base=0)
    kept.write(5, tensors(5.0), base=3)  # the server refuses this one
    kept.write(8, tensors(8.0), base=3)
    assert kept.versions() == [3, 8]


def test_a_message_that_comes_late_a_second_time_drops_nothing_newer(tmp_path: Path) -> None:
    kept = MemoryDirectory(tmp_path)
    kept.write(3, tensors(3.0), base=0)
    kept.write(4, tensors(4.0), base=3)
    kept.write(3, tensors(3.0), base=0)  # the message of round 2 once more
    assert kept.read(4)["method.c_i"].equal(torch.full((3,), 4.0))


@pytest.mark.parametrize("name", ["00000002.safetensors", "00000002.json"])
@pytest.mark.parametrize("damage", ["absent", "cut", "flipped"])
def test_a_damaged_version_counts_as_lost(tmp_path: Path, name: str, damage: str) -> None:
    kept = MemoryDirectory(tmp_path)
    kept.write(2, tensors(2.0), base=0)
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    if damage == "absent":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-3])
    else:
        content[-8] ^= 1
        path.write_bytes(content)
    with pytest.raises(MemoryLost, match="version 2 of its memory"):
        kept.read(2)


def row(round: int, cohort: list[int], stage: int = 0, **further: object) -> dict[str, object]:
    return {"round": round, "cohort": cohort, "stage": stage, **further}


def test_the_history_says_which_version_counts() -> None:
    one = stages(FedAvg())
    history = [row(0, [0, 1]), row(1, [1, 2], skipped=[{"client": 1, "reason": "NaN"}]), row(2, [0])]
    assert committed_versions(history, one, 0) == {0: (3, False), 1: (1, False), 2: (2, False)}
    assert committed_versions([*history, row(3, [2], restarted=True)], one, 0) == {2: (4, False)}


def test_a_new_stage_makes_the_methods_part_void_unless_it_carries_over() -> None:
    history = [row(0, [0, 1]), row(1, [1], stage=1)]
    fresh = stages((FedDyn(0.1), 1), FedAvg())
    assert committed_versions(history, fresh, 1) == {0: (1, True), 1: (2, False)}
    carried = stages((FedDyn(0.1), 1), FedDyn(0.2))
    assert committed_versions(history, carried, 1) == {0: (1, False), 1: (2, False)}


@given(st.lists(st.tuples(st.sets(st.integers(0, 4), min_size=1), st.sets(st.integers(0, 4)))))
def test_a_version_is_never_one_that_was_refused(rounds: list[tuple[set[int], set[int]]]) -> None:
    history = [
        row(n, sorted(cohort), skipped=[{"client": client, "reason": "x"} for client in cohort & refused])
        for n, (cohort, refused) in enumerate(rounds)
    ]
    for client, (version, fresh) in committed_versions(history, stages(FedAvg()), 0).items():
        cohort, refused = rounds[version - 1]
        assert client in cohort - refused
        assert not fresh
        assert not any(client in cohort - refused for cohort, refused in rounds[version:])
