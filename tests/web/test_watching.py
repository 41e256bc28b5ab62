"""What is seen of runs below a directory: as they start, grow, end or break, however large or damaged."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from watched import WrittenRun, row_of

from fedkeel.common.errors import ConfigError
from fedkeel.common.jsonfiles import sealed
from fedkeel.running.requests import REQUEST_FILE
from fedkeel.running.run_directory import INTERRUPTION_FILE
from fedkeel.studies.comparison import Comparison
from fedkeel.web import finding, tailing, watching
from fedkeel.web.alerts import LossWatch, RowAlerts
from fedkeel.web.following import FollowedRun
from fedkeel.web.live_page import live_document
from fedkeel.web.subscription import Subscription
from fedkeel.web.watching import Watch


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch that searches for runs with every look."""
    monkeypatch.setattr(watching, "_SEARCH_SECONDS", 0.0)
    return Watch(tmp_path, control=True)


def only(watch: Watch) -> FollowedRun:
    (run,) = watch.runs.values()
    return run


def alerts(watch: Watch) -> list[str]:
    return [one.alert.text for one in watch.alerts]


def test_runs_appear_as_they_start_and_grow(watch: Watch, tmp_path: Path) -> None:
    watch.look()
    assert watch.runs == {}
    written = WrittenRun(tmp_path / "a").is_worked_on().add(3)
    watch.look()
    assert (only(watch).done, only(watch).state) == (3, "running")
    written.add(4)
    watch.look()
    assert only(watch).done == 7
    assert only(watch).curves["loss"].last == (7, 1 / 7)
    assert only(watch).time_left == pytest.approx(9.3)
    before = watch.version
    watch.look()
    assert watch.version == before


def test_only_what_was_appended_is_read(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = WrittenRun(tmp_path / "a").add(50)
    watch.look()
    read: list[int] = []
    whole = tailing.LineTail._read
    monkeypatch.setattr(
        tailing.LineTail, "_read", lambda tail: (content := whole(tail), read.append(len(content)))[0]
    )
    watch.look()
    assert read == []
    written.add(1)
    watch.look()
    assert sum(read) == sum(
        len((tmp_path / "a" / name).read_bytes().splitlines(keepends=True)[-1])
        for name in ("metrics.jsonl", "timings.jsonl")
    )


def test_half_a_line_waits_for_its_other_half(watch: Watch, tmp_path: Path) -> None:
    WrittenRun(tmp_path / "a")
    line = json.dumps(row_of(0)) + "\n"
    file = tmp_path / "a" / "metrics.jsonl"
    file.write_text(line[:20])
    watch.look()
    assert only(watch).done == 0
    file.write_text(line)
    with file.open("a") as more:
        more.write(json.dumps(row_of(1))[:5])
    watch.look()
    assert (only(watch).done, only(watch).damage) == (1, "")


def test_a_resumed_run_whose_rows_were_cut_is_read_anew(watch: Watch, tmp_path: Path) -> None:
    WrittenRun(tmp_path / "a").add(9)
    watch.look()
    for name in ("metrics.jsonl", "timings.jsonl"):
        file = tmp_path / "a" / name
        new = file.with_suffix(".new")
        new.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]))
        os.replace(new, file)
    watch.look()
    assert only(watch).done == 4
    assert only(watch).curves["loss"].last == (4, 1 / 4)
    assert only(watch).seconds == pytest.approx(0.4)


def test_how_a_run_stands(watch: Watch, tmp_path: Path) -> None:
    WrittenRun(tmp_path / "running").is_worked_on().add(2)
    WrittenRun(tmp_path / "finished").add(2).finish()
    WrittenRun(tmp_path / "killed").add(2)
    for kind in ("diverged", "stopped", "failed"):
        WrittenRun(tmp_path / kind).add(2)
        told = {"kind": kind, "message": f"it {kind}"}
        (tmp_path / kind / INTERRUPTION_FILE).write_text(json.dumps(told))
    paused = WrittenRun(tmp_path / "paused").is_worked_on().add(2)
    (paused.path / ".paused").touch()
    stalled = WrittenRun(tmp_path / "stalled").is_worked_on().add(2)
    for name in ("metrics.jsonl", "manifest.json"):
        os.utime(stalled.path / name, (0, 0))
    watch.look()
    states = {run.place: run.state for run in watch.runs.values()}
    assert states == {name: name for name in states if name != "killed"} | {"killed": "unfinished"}
    assert {"diverged: it diverged", "failed after round 2: it failed"} <= set(alerts(watch))
    assert any("stalled after round 2: no round for a minute" in text for text in alerts(watch))


def test_a_process_that_vanishes_is_told_of(watch: Watch, tmp_path: Path) -> None:
    written = WrittenRun(tmp_path / "a").is_worked_on().add(2)
    watch.look()
    (written.path / ".lock").write_text("")
    watch.look()
    assert alerts(watch) == [
        "its process ended after round 2 without a word: `fedkeel resume` goes on with it"
    ]


def test_clients_that_were_left_out_are_told_of(watch: Watch, tmp_path: Path) -> None:
    skipped = [{"client": 37, "reason": "it sent NaN"}]
    rows = [row_of(0), row_of(1, skipped=skipped)]
    WrittenRun(tmp_path / "a").is_worked_on().add(rows)
    watch.look()
    assert alerts(watch) == ["client 37 in round 2: skipped (it sent NaN)"]
    assert (only(watch).cohort, only(watch).skipped) == (3, 1)
    many = RowAlerts().see(row_of(4, skipped=skipped * 5))
    assert many == ["5 clients in round 5: skipped (it sent NaN)"]
    assert RowAlerts().see(row_of(4, skipped=[{"client": "<script>"}, 3, None])) == [
        "client <script> in round 5: skipped (no reason given)"
    ]


def test_a_loss_that_doubles_in_five_rounds_is_told_once() -> None:
    watched = LossWatch("the loss")
    rising = [1.0, 1.0, 1.0, 1.2, 1.5, 2.1, 2.5, 3.0, 4.0]
    told = [watched.see(value) for value in rising]
    assert [text for text in told if text] == ["the loss has doubled in five rounds, to 2.1"]
    again = [watched.see(value) for value in [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0]]
    assert [text for text in again if text] == ["the loss has doubled in five rounds, to 2"]
    assert watched.see(None) is None
    assert watched.see(float("nan")) is None


def test_a_loss_that_is_small_already_doubles_in_silence() -> None:
    """Near the end of a run that learns well it doubles by chance, from cohort to cohort."""
    watched = LossWatch("the training loss")
    falling = [2.3, 1.0, 0.5, 0.2, 0.1, 0.05, 0.12, 0.04, 0.02, 0.05, 0.11, 0.3]
    assert not any(watched.see(value) for value in falling)
    assert watched.see(0.8) == "the training loss has doubled in five rounds, to 0.8"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{torn\n", "metrics.jsonl cannot be read after round 0"),
        (b"[1, 2]\n", "metrics.jsonl cannot be read after round 0"),
        (b'{"round": 5}\n', "metrics.jsonl cannot be read after round 0"),
        (b"\xff\xfe\x00\n", "metrics.jsonl cannot be read after round 0"),
        (b"[" * 100_000 + b"\n", "metrics.jsonl cannot be read after round 0"),
        (b"x" * 3_000_000, "a line of metrics.jsonl is longer than 2,000,000 bytes"),
    ],
)
def test_damaged_rows_end_the_reading_of_that_run_alone(
    watch: Watch, tmp_path: Path, content: bytes, says: str
) -> None:
    WrittenRun(tmp_path / "good").add(2)
    (WrittenRun(tmp_path / "bad").path / "metrics.jsonl").write_bytes(content)
    watch.look()
    watch.look()
    states = {run.place: run.state for run in watch.runs.values()}
    assert states == {"good": "unfinished", "bad": "damaged"}
    assert alerts(watch) == [says]


def test_files_that_are_no_files_are_not_read(watch: Watch, tmp_path: Path) -> None:
    pipe = WrittenRun(tmp_path / "pipe").path
    os.mkfifo(pipe / "metrics.jsonl")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(row_of(0)) + "\n")
    link = WrittenRun(tmp_path / "link").path
    (link / "metrics.jsonl").symlink_to(secret)
    watch.look()
    assert {run.state for run in watch.runs.values()} == {"damaged"}
    assert [run.done for run in watch.runs.values()] == [0, 0]


def test_links_are_not_followed_and_a_search_has_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    WrittenRun(outside / "a")
    WrittenRun(inside / "b")
    (inside / "link").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    assert [one.path.name for one in finding.find_runs(inside).runs] == ["b"]
    for index in range(5):
        WrittenRun(inside / f"c{index}")
    monkeypatch.setattr(finding, "MOST_RUNS", 3)
    found = finding.find_runs(inside)
    assert (len(found.runs), found.cut) == (3, True)


def test_comparisons_and_sweeps_are_groups(watch: Watch, tmp_path: Path) -> None:
    comparison = tmp_path / "compare"
    for method in ("FedAvg", "SCAFFOLD"):
        WrittenRun(comparison / method.lower() / "seed-0", method=method).is_worked_on().add(4)
    plan = Comparison.of(methods=["fedavg", "scaffold"], seeds=2).table()
    described = sealed({"study": "comparison", "settings": {}, "plan": plan})
    (comparison / "study.json").write_text(json.dumps(described))
    WrittenRun(tmp_path / "sweep" / "0.1" / "seed-0").add(2)
    (tmp_path / "sweep" / "study.json").write_text('{"study": "sweep"}')
    WrittenRun(tmp_path / "one").add(1)
    watch.look()
    assert {id: (group.kind, len(group.runs)) for id, group in watch.groups.items()} == {
        "compare": ("comparison", 2),
        "sweep": ("sweep", 1),
        "single": ("single runs", 1),
    }
    page = live_document(watch, watch.groups["compare"])
    assert page.facts[1] == ("finished", "0 of 4")
    assert [run.method for run in page.runs] == ["FedAvg", "SCAFFOLD"]
    assert page.verdict is not None
    assert page.verdict.text == "2 of 4 runs going on; about 20 s left."
    assert [run.method for run in live_document(watch, watch.groups["sweep"]).runs] == ["0.1"]


@pytest.mark.slow
def test_many_long_runs_stay_small(watch: Watch, tmp_path: Path) -> None:
    for index in range(30):
        WrittenRun(tmp_path / f"r{index}", seed=index).add(600)
    for _ in range(20):
        watch.look()
    assert not watch.is_behind
    page = live_document(watch, watch.groups["single"])
    assert [run.done for run in page.runs] == [600] * 30
    numbers = sum(
        len(column.values) for run in page.runs for column in (*run.columns.values(), *run.axes.values())
    )
    assert numbers < 70_000
    assert len(page.to_json()) < 1_000_000


def long_run(path: Path, seed: int, rounds: int = 6_000) -> FollowedRun:
    rows = [row_of(i, train_loss=((i * 7919 + seed) % 9973) / 97 ** (1 + seed)) for i in range(rounds)]
    return FollowedRun(WrittenRun(path, seed=seed).add(rows).finish().path, path.parent, 100)


def test_a_long_run_has_its_whole_curve_before_its_rows_are_read(tmp_path: Path) -> None:
    a, b = long_run(tmp_path / "a", 0), long_run(tmp_path / "b", 1)
    for run in (a, b):
        run.glimpse()
        assert (run.done, run.reached, run.state) == (0, 6_000, "finished")
        assert run.latest[-1]["round"] == 5_999
    rounds = [[round for round, _ in run.curves["loss"].points()] for run in (a, b)]
    assert (rounds[0][0], rounds[0][-1]) == (1, 6_000)
    assert set(range(1, 5_800, 128)) <= set(rounds[0]) & set(rounds[1])  # so that they have a mean
    unglimpsed = FollowedRun(a.path, tmp_path, 100)
    for run in (a, unglimpsed):
        run.look(math.inf)
        assert (run.done, run.state) == (6_000, "finished")
    assert a.curves["loss"].points() == unglimpsed.curves["loss"].points()
    assert a.latest == unglimpsed.latest


@pytest.mark.parametrize("line", [b"[" * 100, b'{"round": "x"}', b'{"round": 1e999}', b"3", b"\xff", b"{}"])
def test_a_long_damaged_run_is_told_of_when_its_rows_are_read(
    watch: Watch, tmp_path: Path, line: bytes
) -> None:
    bad = WrittenRun(tmp_path / "bad").path / "metrics.jsonl"
    bad.write_bytes((line.ljust(150) + b"\n") * 6_000)
    watch.look()
    assert alerts(watch) == ["metrics.jsonl cannot be read after round 0"]


def test_only_finite_numbers_are_drawn(watch: Watch, tmp_path: Path) -> None:
    odd = [1.0, math.nan, None, True, "2", math.inf, 3]
    WrittenRun(tmp_path / "a").add(row_of(i, drift=value) for i, value in enumerate(odd))
    watch.look()
    assert only(watch).curves["drift"].points() == [(1, 1.0), (7, 3)]
    WrittenRun(tmp_path / "b").add([row_of(0, drift=10**400)])
    watch._search()
    watch.look()
    assert alerts(watch) == ["metrics.jsonl cannot be read after round 0"]


def applied(document: dict[str, Any], changes: dict[str, Any]) -> None:
    """Do what the page does with changes."""
    by_id = {run["id"]: run for run in document["runs"]}
    for change in changes["runs"]:
        run = by_id[change["id"]]
        for kind in ("columns", "axes"):
            for name, part in change[kind].items():
                old = run[kind].setdefault(name, {"rounds": [], "values": []})
                for key in ("rounds", "values"):
                    old[key] = old[key][: part["keep"]] + part[key]


def points_of(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: (part["rounds"], part["values"]) for name, part in columns.items()}


def test_a_page_that_hears_changes_has_what_a_new_page_has(watch: Watch, tmp_path: Path) -> None:
    written = WrittenRun(tmp_path / "a").is_worked_on().add(2)
    watch.look()
    page = Subscription(watch, None)
    name, data = page.event() or ("", "")
    assert name == "document"
    document = json.loads(data)
    for rows in (1, 3, 400, 1, 900):
        written.add([row_of(written.done + i, train_loss=float((i * 7919) % 97)) for i in range(rows)])
        watch.look()
        name, data = page.event() or ("", "")
        assert name == "changes"
        applied(document, json.loads(data))
    _, data = Subscription(watch, None).event() or ("", "")
    new = json.loads(data)["runs"][0]
    for kind in ("columns", "axes"):
        assert points_of(document["runs"][0][kind]) == points_of(new[kind])
    assert page.event() is None


def test_requests_reach_runs_that_are_worked_on_and_are_acknowledged(watch: Watch, tmp_path: Path) -> None:
    written = WrittenRun(tmp_path / "a").is_worked_on().add(2)
    watch.look()
    run = only(watch)
    assert watch.ask(run.id, "checkpoint") == "asked to checkpoint after this round"
    assert (written.path / REQUEST_FILE).read_text() == "checkpoint"
    watch.look()
    assert watch.asked(run) == "checkpoint"
    (written.path / REQUEST_FILE).unlink()
    watch.look()
    assert watch.asked(run) is None
    assert alerts(watch) == ["checkpoint written after round 2"]
    written.finish()
    watch.look()
    with pytest.raises(ConfigError, match="a is not running: there is nothing to stop"):
        watch.ask(run.id, "stop")
    for wrong in ("../../etc", str(written.path), "a"):
        with pytest.raises(ConfigError, match="no such run"):
            watch.ask(wrong, "stop")
