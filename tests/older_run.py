"""Turns a run directory into what older versions would have written: 0.1, and the one before checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedkeel.common.jsonfiles import sealed
from fedkeel.common.older import CHECKPOINT, COLUMNS, identity_before
from fedkeel.running.row_files import RunKey, compressed, line_of


def name_as_before(path: Path) -> None:
    """Give all files of a run the names of version 0.1, with their checksums."""
    manifest = json.loads((path / "manifest.json").read_text())
    key = RunKey.of(manifest)
    text = manifest["experiment"].replace("keep_client_states", "keep_memories")
    text = text.replace('on_client_error = "skip"', 'on_client_error = "leave_out"')
    manifest |= {"identity": identity_before(manifest["identity"]), "experiment": text}
    del manifest["sha256"]
    (path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    (path / "experiment.toml").write_text(text)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["check"]
    lines = [line_of(renamed_back(row, COLUMNS), key) for row in rows]
    (path / "metrics.jsonl").write_bytes(b"".join(lines))
    (path / "metrics.jsonl.gz").write_bytes(compressed(lines))
    for file in (path / "checkpoints").glob("*/client_states.safetensors"):
        file.rename(file.with_name("memories.safetensors"))
    for file in (path / "checkpoints").glob("*/checkpoint.json"):
        index = renamed_back(json.loads(file.read_text()), CHECKPOINT)
        del index["own"]
        index["values"]["rows"] = hashlib.sha256(b"".join(lines[: index["round"]])).hexdigest()
        file.write_text(json.dumps({**index, "own": digest(index)}))


def renamed_back(table: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    before = {now: old for old, now in names.items()}
    return {before.get(key, key): value for key, value in table.items()}


def digest(index: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def make_older(path: Path) -> dict[str, Any]:
    """Take the marks of format 2 off all files of a run; return its manifest."""
    name_as_before(path)
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    for key in ("format", "sha256", "experiment"):
        del manifest[key]
    manifest.get("end", {}).pop("sha256", None)
    file.write_text(json.dumps(manifest))
    for name in ("metrics.jsonl", "timings.jsonl"):
        rows = [json.loads(line) for line in (path / name).read_text().splitlines()]
        for row in rows:
            del row["check"]
        (path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "metrics.jsonl.gz").unlink()
    for index in (path / "checkpoints").glob("*/checkpoint.json"):
        table = json.loads(index.read_text())
        for key in ("own", "run", "round"):
            del table[key]
        del table["values"]["rows"]
        index.write_text(json.dumps({**table, "own": digest(table)}))
    return manifest
