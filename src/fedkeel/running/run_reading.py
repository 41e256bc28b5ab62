"""Reads run directories: whatever is in them, the answer is what was written there, or a message."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedkeel.common.columns import LOST_WORKERS
from fedkeel.common.errors import StorageError
from fedkeel.common.files import read_whole
from fedkeel.common.jsonfiles import Shape, fitting, parse_object, read_object
from fedkeel.common.older import manifest_now
from fedkeel.running.manifest_file import ManifestShape
from fedkeel.running.row_files import FoundLines, RowLine, RunKey, read_lines

EXPERIMENT, MANIFEST = "experiment.toml", "manifest.json"
METRICS, COPY, TIMINGS_FILE, CLIENTS_FILE = (
    "metrics.jsonl",
    "metrics.jsonl.gz",
    "timings.jsonl",
    "clients.jsonl",
)
TIMINGS = ("seconds", LOST_WORKERS)  # what may differ between two equal runs; no worker is lost in most
RESTORE = "restore it, or start anew in another directory"


class _ClientShape(Shape):
    client: int
    samples: int
    visits: int
    evaluated_on: str
    evaluated: int
    loss: float
    accuracy: float = 0


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the run in a directory."""
    if not path.is_dir() and path.exists():
        raise StorageError(f"{path}: a file, not the directory of a run; `fedkeel runs` lists runs")
    if not (path / MANIFEST).exists():
        raise StorageError(f"{path}: no run here (manifest.json is missing); `fedkeel runs` lists runs")
    return read_object(path / MANIFEST, RESTORE, ManifestShape, manifest_now)


def read_experiment(path: Path) -> str:
    """Return a run's experiment: experiment.toml, where it is missing the manifest's copy."""
    told, file = read_manifest(path).get("experiment"), path / EXPERIMENT
    if not file.exists():
        if told is None:
            raise StorageError(f"{path}: experiment.toml is missing: {RESTORE}")
        return str(told)
    text = _read(file)
    if told is not None and text != told.encode():
        raise StorageError(
            f"{file}: not what the run was begun with, so it was damaged or edited: remove it, and the run "
            "goes on with the copy in its manifest; other settings are for another run"
        )
    try:
        return text.decode()
    except UnicodeDecodeError as problem:
        raise StorageError(f"{file}: byte {problem.start} is not UTF-8: {RESTORE}") from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return a run's rows with their timings, up to the first that is torn or lost.

    Rows that were damaged are read from their copy, and a warning says so.
    """
    if not any((path / name).exists() for name in (METRICS, COPY)):
        return []
    manifest = read_manifest(path)
    key = RunKey.of(manifest)
    lines, problems = _mended(path, key)
    timings = timing_lines(path, RunKey.of_timings(manifest))
    if not problems and timings.whole > len(lines) + 1:  # of a round that is not yet written there are some
        now, _ = _mended(path, key)  # a run that goes on has written more meanwhile
        if timings.whole > len(now) + 1:
            problems = [f"it has {len(lines)} rows, and {TIMINGS_FILE} {timings.whole}"]
    if problems:
        _warn(f"{path / METRICS}: {_listed(problems)}: {_what_is_left(lines, path)}")
    return with_timings(lines, timings.lines, path)


def count_rows(path: Path) -> int:
    """Return how many rows a run has written, quickly: the lines of its metrics, whole or not."""
    try:
        return (path / METRICS).read_bytes().count(b"\n")
    except OSError:
        return 0


def read_timings(path: Path) -> list[dict[str, Any]]:
    """Return what each round of a run took: `seconds` in all, of which `evaluation` and `probes`."""
    if not (path / TIMINGS_FILE).exists():
        return []
    found = timing_lines(path, RunKey.of_timings(read_manifest(path)))
    return [line.row for line in found.lines.values()]


def with_timings(lines: list[RowLine], timings: Mapping[int, RowLine], path: Path) -> list[dict[str, Any]]:
    """Return rows with the columns that are kept with the timings; 0 seconds where they are lost."""
    lost = [round for round in range(len(lines)) if round not in timings]
    if lost:
        _warn(
            f"{path / TIMINGS_FILE}: round {lost[0]} has no whole line ({len(lost)} in all): 0 seconds count"
        )
    known = [
        {"seconds": 0.0, **(timings[round].row if round in timings else {})} for round in range(len(lines))
    ]
    return [
        {**line.row, **{name: timing[name] for name in TIMINGS if name in timing}}
        for line, timing in zip(lines, known, strict=True)
    ]


def timing_lines(path: Path, key: RunKey) -> FoundLines:
    """Return the whole lines of the timings; a warning names what is wrong with the others."""
    found = read_lines(path / TIMINGS_FILE, key)
    if found.problems:
        _warn(f"{path / TIMINGS_FILE}: {_listed(found.problems)}: what is lost counts as 0 seconds")
    return found


def whole_rows(path: Path, key: RunKey, count: int, sha256: str | None) -> list[RowLine]:
    """Return the first rows of a run as a checkpoint wants them; a warning names what was mended.

    `sha256` is their hash as the checkpoint has it, None where it is older than hashes.
    """
    found, copy = read_lines(path / METRICS, key), read_lines(path / COPY, key)
    for lines in ({**copy.lines, **found.lines}, {**found.lines, **copy.lines}):
        if all(round in lines for round in range(count)):
            kept = [lines[round] for round in range(count)]
            if sha256 is None or _hash(kept) == sha256:
                if [found.lines.get(round) for round in range(count)] != kept:
                    told = found.problems or [f"it has {found.whole} rows, and the checkpoint {count}"]
                    _warn(f"{path / METRICS}: {_listed(told)}: restored from its copy, {COPY}")
                return kept
    told = [*found.problems, f"it has {found.whole} whole rows from the first on"]
    raise StorageError(
        f"{path / METRICS}: {_listed(told)}, but the checkpoint was made after {count} rounds, and {COPY} "
        f"does not have them either: {RESTORE}"
    )


def read_clients(path: Path) -> list[dict[str, Any]]:
    """Return how a run's last model does client by client; nothing where that was not evaluated."""
    if not has_end_file(path, CLIENTS_FILE):
        return []
    *lines, _ = read_end_file(path, CLIENTS_FILE).split(b"\n")
    try:
        return [fitting(parse_object(line), _ClientShape) for line in lines]
    except ValueError as problem:
        raise StorageError(f"{path / CLIENTS_FILE}: {problem}: {RESTORE}") from None


def read_end_file(path: Path, name: str) -> bytes:
    """Return a file that a run wrote when it ended, as its manifest knows it."""
    told, content = _hashes(read_manifest(path)), _read(path / name)
    if told and told.get(name) != hashlib.sha256(content).hexdigest():
        raise StorageError(
            f"{path / name}: does not match its hash in the manifest, so it was damaged or is of another "
            f"run: `fedkeel resume {path}` (resume=True) writes it again from the checkpoint"
        )
    return content


def has_end_file(path: Path, name: str) -> bool:
    """Tell whether a file is there that runs write when they end; raise where the manifest misses it."""
    if (path / name).exists():
        return True
    if name in _hashes(read_manifest(path)):
        raise StorageError(
            f"{path / name}: missing: `fedkeel resume {path}` (resume=True) writes it again from the "
            "checkpoint"
        )
    return False


def check_end(path: Path) -> None:
    """Check all files that a run wrote when it ended against the hashes in its manifest."""
    for name in _hashes(read_manifest(path)):
        if has_end_file(path, name):
            read_end_file(path, name)


def is_whole(path: Path) -> bool:
    """Tell whether a run has ended and nothing is wrong with its rows and last files; resuming mends them."""
    try:
        manifest = read_manifest(path)
        check_end(path)
        found = read_lines(path / METRICS, RunKey.of(manifest))
    except StorageError:
        return False
    if "format" in manifest and manifest.get("end") is None:  # it was ended amid writing its last files
        return False
    return not (found.problems or found.torn) and found.whole >= _rounds_checkpointed(path)


def _hashes(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of the files that a run wrote at its end; none where it is older than hashes."""
    return dict((manifest.get("end") or {}).get("sha256") or {})


def _mended(path: Path, key: RunKey) -> tuple[list[RowLine], list[str]]:
    """Return the rows from the first on, taken from the copy where they are lost, and what is wrong."""
    found = read_lines(path / METRICS, key)
    problems, lines = found.problems, found.lines
    if found.whole < _rounds_checkpointed(path):
        problems = problems or [f"it has {found.whole} rows, and there is a later checkpoint"]
    if problems:
        lines = {**read_lines(path / COPY, key).lines, **lines}
    return list(_from_the_first(lines)), problems


def _rounds_checkpointed(path: Path) -> int:
    """Return how many rounds the newest checkpoint has, by its name."""
    names = [folder.name.removeprefix("round-") for folder in (path / "checkpoints").glob("round-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _from_the_first(lines: Mapping[int, RowLine]) -> Iterator[RowLine]:
    for round in range(len(lines)):
        if round not in lines:
            return
        yield lines[round]


def _what_is_left(lines: list[RowLine], path: Path) -> str:
    if len(lines) >= _rounds_checkpointed(path):
        return f"{len(lines)} rounds are whole, with the copy in {COPY}; resuming the run mends it"
    return f"only the first {len(lines)} rounds are whole: restore it"


def _listed(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"{problems[0]} (and {len(problems) - 1} more)"


def _hash(lines: list[RowLine]) -> str:
    return hashlib.sha256(b"".join(line.content for line in lines)).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return read_whole(path)
    except OSError as problem:
        raise StorageError(f"{path}: cannot be read: {problem.strerror or problem}: {RESTORE}") from None


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)
