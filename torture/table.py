"""What the rows found, kept in docs/torture.json and written as docs/torture.md."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

HEAD = """# Torture

What is done to fedkeel on purpose, what must hold all the same, and what held. Written by `make torture`
(`torture/run.py`), a row at a time; a row that was not run to its full count says so by its count. A try is
*exact* where the end is that of an undisturbed run to the bit (or what was asked for was done), *refused*
where the user gets a message with the thing, the reason, the fix and the right code, *failed* otherwise.

| row | fault | must hold | tries | exact | refused | failed | minutes | date | version |
|---|---|---|--:|--:|--:|--:|--:|---|---|
"""


def read(path: Path) -> dict[str, Any]:
    """Return what is known of the rows so far."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(found: dict[str, Any], path: Path) -> None:
    """Keep what the rows found, and write the table beside it."""
    _replace(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    _replace(path.with_suffix(".md"), page(found))


def page(found: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    text = HEAD + "".join(_line(name, found[name]) for name in sorted(found))
    for name in sorted(found):
        if counted := found[name]["notes"]:
            text += f"\n{name}: " + ", ".join(f"{count} {what}" for what, count in counted.items()) + ".\n"
    for name in sorted(found):
        if failures := found[name]["failures"]:
            text += f"\n## What failed in {name}\n\n"
            text += "".join(f"- `{one['repeat']}`: {one['what']}\n" for one in failures)
    return text


def _line(name: str, row: dict[str, Any]) -> str:
    tries = f"{row['tries']:,}" + ("" if row["tries"] >= row["count"] else f" of {row['count']:,}")
    cells = [name, row["fault"], row["must_hold"], tries, f"{row['exact']:,}", f"{row['refused']:,}"]
    cells += [str(row["failed"]), f"{row['seconds'] / 60:.1f}", row["date"], row["version"]]
    return "| " + " | ".join(cells) + " |\n"


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(text)
    os.replace(unfinished, path)
