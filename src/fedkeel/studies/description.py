"""The file that says which study a directory holds, with its settings; read without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedkeel.common.jsonfiles import Shape, read_object
from fedkeel.common.older import identity_now, settings_now
from fedkeel.experiments import STUDY_FILE


class StudyShape(Shape):
    """What study.json holds; those of version 0.1 have no plan."""

    study: Annotated[str, Field(min_length=1)]
    settings: dict[str, Any]
    plan: dict[str, Any] | None = None
    command: str | None = None
    placement: dict[str, Any] | None = None


def read_description(directory: Path) -> dict[str, Any]:
    """Return which `study` a directory holds, its `settings`, and its `plan` where it has one."""
    return read_object(directory / STUDY_FILE, "restore it, or choose another directory", StudyShape, _now)


def _now(table: dict[str, Any]) -> dict[str, Any]:
    """Return a description by the names of today: what 0.1 wrote had others."""
    settings = table.get("settings")
    found = dict(table)
    if isinstance(settings, dict):
        found["settings"] = settings_now(identity_now(settings))
    return found
