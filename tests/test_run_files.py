"""Every file of a run belongs to it: what was damaged or put there from elsewhere is mended or named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from older_run import make_older
from torch import nn

import fedkeel as fk
from fedkeel.running import run_reading
from fedkeel.running.row_files import FoundLines, RunKey
from fedkeel.running.run_directory import is_whole, read_rows, read_timings

GENERATOR = torch.Generator().manual_seed(0)
CLIENTS = [(torch.randn(6, 3, generator=GENERATOR), torch.arange(6) % 2) for _ in range(8)]


def task() -> fk.Task:
    return fk.Task(lambda: nn.Linear(3, 2))


def train(path: Path | None = None, *, rounds: int = 6, seed: int = 0, **options: Any) -> fk.Result:
    given = {"cohort": 3, "work": fk.Work(steps=2), "engine": "serial", "checkpoint_every": 2, **options}
    federation = fk.Federation.from_arrays(CLIENTS, test=CLIENTS[0])
    return flat.train(
        task(),
        federation,
        fk.SCAFFOLD(),
        rounds=rounds,
        seed=seed,
        run_dir=path,
        keep_client_states=True,
        **given,
    )


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of four rounds, to be made longer: two seeds; and one of six rounds that nothing happened to."""
    folder = tmp_path_factory.mktemp("originals")
    train(folder / "a", rounds=4)
    train(folder / "b", rounds=4, seed=1)
    train(folder / "whole")
    return folder


@pytest.fixture
def run(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals / "a", tmp_path / "run"))


def ends_as_if_nothing_had_happened(run: Path, originals: Path) -> bool:
    train(run, resume=True)
    names = ("model.safetensors", "metrics.jsonl")
    return all((run / name).read_bytes() == (originals / "whole" / name).read_bytes() for name in names)


def lines(run: Path, name: str = "metrics.jsonl") -> list[str]:
    return (run / name).read_text().splitlines(keepends=True)


def test_a_checkpoint_of_another_run_is_passed_over(run: Path, originals: Path) -> None:
    newest = "checkpoints/round-00000004"
    shutil.rmtree(run / newest)
    shutil.copytree(originals / "b" / newest, run / newest)
    with pytest.warns(UserWarning, match="round-00000004: damaged .it is a checkpoint of another run"):
        assert ends_as_if_nothing_had_happened(run, originals)


def test_where_all_are_of_another_run_it_is_refused(run: Path, originals: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(originals / "b" / "checkpoints", run / "checkpoints")
    with (
        pytest.warns(UserWarning, match="another run"),
        pytest.raises(fk.StorageError, match=r"none of 2 checkpoints can be used .*: restore one"),
    ):
        train(run, resume=True)


def test_a_checkpoint_under_the_name_of_another_round_is_passed_over(run: Path, originals: Path) -> None:
    (run / "checkpoints/round-00000004").rename(run / "checkpoints/round-00000009")
    with pytest.warns(UserWarning, match="the checkpoint of another round"):
        assert ends_as_if_nothing_had_happened(run, originals)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda rows: [rows[0], *rows[2:]], "the line of round 1 is missing"),
        (lambda rows: [], "it has 0 rows, and"),
        (lambda rows: [rows[0].replace('"loss": ', '"loss": 9'), *rows[1:]], "line 1: it does not match its"),
        (lambda rows: ["[" * 100_000 + "\n", *rows[1:]], "line 1: it does not match its checksum"),
    ],
    ids=["lost", "all lost", "changed", "nested"],
)  # fmt: skip
def test_rows_before_the_checkpoint_come_back_from_their_copy(
    damage: Any, told: str, run: Path, originals: Path
) -> None:
    (run / "metrics.jsonl").write_text("".join(damage(lines(run))))
    with pytest.warns(UserWarning, match=f"metrics.jsonl: {told}"):
        assert len(read_rows(run)) == 4
    with pytest.warns(UserWarning, match=f"metrics.jsonl: {told}.*: restored from its copy"):
        assert ends_as_if_nothing_had_happened(run, originals)


@pytest.mark.parametrize("more", ["\udcff", "[]\n", "null\n", '{"round": 4}\n', "half a li"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
@pytest.mark.filterwarnings("ignore:.*(metrics|timings).jsonl")
def test_what_stands_behind_the_checkpoint_is_cut(more: str, name: str, run: Path, originals: Path) -> None:
    with (run / name).open("a", errors="surrogateescape") as file:
        file.write(more)
    assert ends_as_if_nothing_had_happened(run, originals)
    assert len(read_timings(run)) == 6


def test_a_doubled_line_blocks_nothing(run: Path, originals: Path) -> None:
    rows = lines(run)
    (run / "metrics.jsonl").write_text("".join([*rows[:2], rows[1], *rows[2:]]))
    assert ends_as_if_nothing_had_happened(run, originals)


def test_rows_that_no_copy_has_are_named(run: Path) -> None:
    (run / "metrics.jsonl").write_text("".join(lines(run)[1:]))
    (run / "metrics.jsonl.gz").unlink()
    with pytest.raises(fk.StorageError, match=r"the line of round 0 is missing .*made after 4 rounds"):
        train(run, resume=True)


def test_rows_of_another_run_are_told_apart(run: Path, originals: Path) -> None:
    shutil.copyfile(originals / "b" / "metrics.jsonl", run / "metrics.jsonl")
    with pytest.warns(UserWarning, match="line 1: it does not match its checksum, so it was damaged or"):
        assert ends_as_if_nothing_had_happened(run, originals)


def test_a_manifest_that_was_changed_is_refused(run: Path) -> None:
    file = run / "manifest.json"
    file.write_text(file.read_text().replace('"rounds": 4', '"rounds": 9', 1))
    for use in (lambda: train(run, resume=True), lambda: fk.load(run), lambda: read_rows(run)):
        with pytest.raises(fk.StorageError, match=r"manifest.json: .*does not match its own checksum"):
            use()


def test_a_model_with_a_flipped_bit_is_noticed_and_mended(run: Path, originals: Path) -> None:
    from fedkeel.cli.show import show

    file = run / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    for use in (lambda: fk.load(run, task()), lambda: show(run)):
        with pytest.raises(fk.StorageError, match=r"model.safetensors: does not match its hash .*resume"):
            use()
    assert ends_as_if_nothing_had_happened(run, originals)
    show(run)


def test_a_run_from_before_there_were_checksums_is_read_and_resumed(run: Path, originals: Path) -> None:
    history = fk.load(run, task()).history
    make_older(run)
    assert fk.load(run, task()).history == history
    train(run, resume=True)
    assert (run / "model.safetensors").read_bytes() == (originals / "whole/model.safetensors").read_bytes()
    assert [row["round"] for row in read_rows(run)] == list(range(6))


def test_a_run_of_a_later_format_is_refused_by_name(run: Path) -> None:
    file = run / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 3}))
    with pytest.raises(fk.StorageError, match=r"it has format 3, and this version of fedkeel reads up to 2"):
        train(run, resume=True)


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "timings.jsonl", "metrics.jsonl.gz"])
@pytest.mark.filterwarnings("ignore:.*jsonl")
def test_no_link_is_followed_to_a_file_elsewhere(name: str, run: Path, tmp_path: Path) -> None:
    """What a link leads to stays as it is, whether the run is refused or the link replaced."""
    (tmp_path / "precious").write_text("precious")
    (run / name).unlink()
    (run / name).symlink_to(tmp_path / "precious")
    if name == ".lock":
        with pytest.raises(fk.StorageError, match=r"lock: .*a symbolic link, which is not followed"):
            train(run, resume=True)
    else:
        train(run, resume=True)
        assert not (run / name).is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_no_checkpoint_is_written_into_a_directory_elsewhere(run: Path, tmp_path: Path) -> None:
    shutil.move(run / "checkpoints", tmp_path / "elsewhere")
    (run / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(fk.StorageError, match=r"checkpoints: .*a symbolic link, which is not followed"):
        train(run, resume=True)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2


def test_the_directory_above_a_new_run_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    own = os.fsync

    def noted(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        own(handle)

    monkeypatch.setattr(os, "fsync", noted)
    train(tmp_path / "new" / "run", rounds=1)
    assert {str(tmp_path), str(tmp_path / "new")} <= set(synced)


def test_to_go_on_with_another_engine_warns_that_bits_may_differ(run: Path) -> None:
    told = r"begun with engine serial .now stacked-uncompiled.*last bits may differ"
    with pytest.warns(UserWarning, match=told):
        train(run, resume=True, engine="stacked-uncompiled")


@pytest.mark.filterwarnings("ignore:.*timings.jsonl")
def test_timings_of_the_same_run_made_twice_are_told_apart(run: Path, originals: Path) -> None:
    shutil.copy(originals / "whole" / "timings.jsonl", run / "timings.jsonl")
    with pytest.warns(UserWarning, match=r"timings\.jsonl: line 1: it does not match its checksum"):
        rows = read_rows(run)
    assert {row["seconds"] for row in rows} == {0.0}


def test_rows_that_only_the_timings_know_of_are_missed(run: Path) -> None:
    (run / "metrics.jsonl").write_text("".join(lines(run)[:-2]))
    (run / "metrics.jsonl.gz").unlink()
    shutil.rmtree(run / "checkpoints")  # as before the first of them
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: it has 2 rows, and timings\.jsonl 4"):
        read_rows(run)


@pytest.mark.filterwarnings("ignore:.*(metrics|timings).jsonl")
def test_a_finished_run_that_lost_its_model_says_so_and_not_that_it_is_unfinished(run: Path) -> None:
    (run / "model.safetensors").unlink()
    with pytest.raises(fk.StorageError, match=r"model\.safetensors: missing: `fedkeel resume"):
        fk.load(run, task())


def test_bytes_behind_the_last_row_of_a_finished_run_are_damage(run: Path) -> None:
    assert is_whole(run)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\x93half a li")
    assert not is_whole(run)


def test_a_run_that_goes_on_while_it_is_read_is_whole(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, read = (run / "metrics.jsonl").read_bytes(), run_reading.timing_lines
    (run / "metrics.jsonl").write_text("".join(lines(run)[:1]))
    shutil.rmtree(run / "checkpoints")

    def meanwhile(path: Path, key: RunKey) -> FoundLines:
        (path / "metrics.jsonl").write_bytes(whole)
        return read(path, key)

    monkeypatch.setattr(run_reading, "timing_lines", meanwhile)
    assert len(read_rows(run)) == 1
    assert len(read_rows(run)) == 4
