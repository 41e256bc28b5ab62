"""Turns a run directory into what the version before formats and checksums would have written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def make_older(path: Path) -> dict[str, Any]:
    """Take the marks of format 2 off all files of a run; return its manifest."""
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
        own = hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()
        index.write_text(json.dumps({**table, "own": own}))
    return manifest
