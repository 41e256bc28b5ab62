"""What command lines and Python calls gave in version 0.1 is what they give now; tests/recorded says how.

Every line has a second column for its new spelling, and `RENAMED` has the keys of JSON that are another word
on purpose. Any other difference is a commit of its own with its reason: `python tests/recorded` writes it.
"""

from __future__ import annotations

import shlex
import tarfile
import traceback
from pathlib import Path
from typing import Any

import pytest
from commands import COMMANDS, command_of
from recorded.likeness import alike, differences
from recorded.lines import LINES, OLD, OUTPUTS, TABLE, Outcome, Session, file_content, spelling
from recorded.placeholders import plain, plain_text

# keys of JSON as they were recorded (everywhere, at some places, or in one file), and as they are now
RENAMED: dict[str, str] = {
    "algorithm": "method",  # of the identity in a manifest
    "explain-json.json: stdout.memory": "client_state",
    "explain-json.json: stdout.knobs": "settings",
    # a score may be a loss, and what a sweep's line is of is a value; a line of `methods` is of a method
    "stdout.methods[].accuracy": "score",
    "stdout.table[].accuracy": "score",
    "stdout.table[].method": "label",
    "stdout.verdict.accuracy": "score",
    "stdout.verdict.ranking[].accuracy": "score",
    "stdout.verdict.ranking[].method": "label",
    "python-compare-verdict.json: stdout.accuracy": "score",
    "python-compare-verdict.json: stdout.ranking[].accuracy": "score",
    "python-compare-verdict.json: stdout.ranking[].method": "label",
    "python-compare-table.json: stdout[].accuracy": "score",
    "python-compare-table.json: stdout[].method": "label",
    "tune-json.json: stdout.accuracy": "score",
}

IDS = [entry["id"] for entry in LINES]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Outcome]]:
    """What every line gives, by its id: in order, as later ones read what earlier ones made."""
    session = Session(tmp_path_factory.mktemp("recorded") / "here")
    found: dict[str, dict[str, Outcome]] = {}
    for entry in LINES:
        try:
            found[entry["id"]] = session.outcomes(entry)
        except Exception:
            found[entry["id"]] = {f"{entry['id']}.txt": traceback.format_exc()}
    return found


@pytest.mark.slow(14, thorough=False)
@pytest.mark.parametrize("entry", LINES, ids=IDS)
def test_a_line_gives_what_is_recorded(entry: dict[str, Any], played: dict[str, dict[str, Outcome]]) -> None:
    made = played[entry["id"]]
    told = []
    for name in {**dict.fromkeys(recorded(entry["id"])), **made}:
        if name not in made or not (OUTPUTS / name).exists():
            told.append(f"{name} is {'not made any more' if name not in made else 'not recorded'}\n{made}")
        else:
            told += [f"{name} {one}" for one in differences(file_content(name), made[name], renamed_in(name))]
    line = spelling(entry).strip()
    assert not told, "\n".join(
        [f"{entry['id']}: {line}", *told[:20], *([f"and {len(told)} in all"] * (len(told) > 20))]
    )


def renamed_in(file: str) -> dict[str, str]:
    """Return the keys that are another word now in a file."""
    parts = [(*key.rpartition(": "), now) for key, now in RENAMED.items()]
    return {key: now for only, _, key, now in parts if only in ("", file)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OLD)
def test_a_directory_of_version_0_1_is_read_and_nothing_in_it_is_trained_anew(
    kind: str, played: dict[str, dict[str, Outcome]]
) -> None:
    """The numbers and messages are recorded ones; here is what no new recording may change."""
    if kind == "unfinished":
        told: Any = played["old-unfinished-resume"]["old-unfinished-resume.json"]
        assert (told["exit code"], told["stdout"]["rounds"]) == (0, 3)
        return
    names = [entry["id"] for entry in LINES if kind in (entry.get("again"), entry.get("keeps"))]
    assert names
    if kind == "search":
        said = str(played["old-search-again"]["old-search-again.txt"])
        assert "2 of 2 runs are there already in old/search\n" in said
        assert "trial 1 of" not in said
        return
    for name in names:
        written = str(played[name][f"{name}.written.txt"])
        parts = int(written.split(maxsplit=1)[0])
        assert parts > 0
        assert written == f"{parts} parts, of which written:\n"


def recorded(name: str) -> list[str]:
    return sorted(path.name for path in OUTPUTS.iterdir() if owner(path) == name)


def owner(path: Path) -> str:
    """Return the id of the entry that a file belongs to."""
    return path.name.split(".")[0]


def test_every_line_has_a_name_of_its_own_and_every_file_a_line() -> None:
    assert len(set(IDS)) == len(IDS)
    assert {owner(path) for path in OUTPUTS.iterdir()} == set(IDS)


def test_every_command_is_recorded_or_has_a_reason_why_not() -> None:
    lines = [spelling(entry) for entry in LINES]
    called = {command_of(shlex.split(line)[1:]) for line in lines if line.startswith("fedkeel ")}
    excused = {tuple(name.split()) for name in TABLE["not_recorded"]}
    assert called | excused == set(COMMANDS)
    assert not called & excused
    assert all(TABLE["not_recorded"].values())


def test_every_kind_of_old_directory_has_its_archive_of_some_kilobytes() -> None:
    archives = {
        path.name.removesuffix(".tar.gz"): path for path in (OUTPUTS.parent / "directories").glob("*.gz")
    }
    assert archives.keys() == OLD.keys()
    for kind, path in archives.items():
        assert path.stat().st_size < 50_000, kind
        with tarfile.open(path) as archive:
            assert all(name.startswith(f"old/{kind}/") for name in archive.getnames())


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("accuracy 18.3 % of 360", "accuracy   18.4 %\nof 360", True),
        ("accuracy 18.3 %", "accuracy 18.5 %", False),
        ("accuracy 18.3 %", "score 18.3 %", False),
        ("3 of 3 runs", "2 of 3 runs", False),
        ("loss 0.00100", "loss 0.00102", False),
        ("beta=0.05", "beta=0.1", False),
        ("beta=0.1", "beta=0.10", True),
        ("p 0.033", "p 0.034", False),
        ("p 0.0332", "p 0.0333", True),
        ("1.02e-05", "1.03e-05", True),
        ("1.0e-05", "1.0e-06", False),
        ("8,857 rounds", "8,858 rounds", True),
        ("a b", "a b c", False),
    ],
)
def test_texts_are_alike_by_words_and_numbers(before: str, now: str, same: bool) -> None:
    assert alike(before, now) == same


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.001, 2.0]}, []),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.01]}, [".a[1]: 2.0 → 2.01"]),
        ({"a": 3}, {"a": 4}, [".a: 3 → 4"]),
        ({"a": None}, {"a": 0}, [".a: None → 0"]),
        ({"a": True}, {"a": 1}, [".a: True → 1"]),
        ({"a": [1]}, {"a": []}, [".a[0]: 1 is gone"]),
        ({"old": 1}, {"new": 1}, []),
        ({"in": [{"it": 1}]}, {"in": [{"new": 1}]}, []),
        ({"out": [{"it": 1}]}, {"out": [{"new": 1}]}, [".out[0].it: 1 is gone", ".out[0].new: 1 is new"]),
        ({"a": 1}, {"b": 1}, [".a: 1 is gone", ".b: 1 is new"]),
        ({"a": "one"}, {"a": "two"}, [".a: 'one' → 'two'"]),
        ({"a": float("nan")}, {"a": float("nan")}, []),
        ("one\ntwo\n", "one\n2\n", ["--- recorded\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+2"]),
    ],
)
def test_differences_are_told_with_their_place(before: Any, now: Any, told: list[str]) -> None:
    assert list(differences(before, now, {"old": "new", "in[].it": "new"})) == told


def test_times_versions_paths_and_hashes_are_left_out() -> None:
    here = Path("/tmp/somewhere")
    assert (
        plain_text("took 3 min 05 s, 2.1 s left in /tmp/somewhere/runs", here)
        == "took <time>, <time> left in <here>/runs"
    )
    assert plain_text("fedkeel 0.1.0, python 3.11.7", here) == "fedkeel <version>, python <version>"
    assert plain({"seconds": 1.0, "seconds_to_target": None}, here) == {
        "seconds": "<time>",
        "seconds_to_target": None,
    }
    table = "method  score    seconds\nFedAvg     12  0.1 ± 0.0\n\nFedAvg     12  0.1 ± 0.0"
    assert (
        plain_text(table, here)
        == "method  score    seconds\nFedAvg     12  <time>\n\nFedAvg     12  0.1 ± 0.0"
    )
    page = {"headings": ["method", "seconds"], "rows": [["FedAvg", "0.1"]]}
    assert plain(page, here)["rows"] == [["FedAvg", "<time>"]]
