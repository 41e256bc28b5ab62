"""The file that says which study a directory holds, with its settings; read without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedkeel.common.jsonfiles import Shape, read_object
from fedkeel.common.older import identity_now, settings_now
from fedkeel.experiments import STUDY_FILE


class _StudyShape(Shape):
    study: Annotated[str, Field(min_length=1)]
    settings: dict[str, Any]


def read_description(directory: Path) -> dict[str, Any]:
    """Return which `study` a directory holds, and its `settings`."""
    return read_object(directory / STUDY_FILE, "restore it, or choose another directory", _StudyShape, _now)


def _now(table: dict[str, Any]) -> dict[str, Any]:
    settings = table.get("settings")
    return (
        {**table, "settings": settings_now(identity_now(settings))} if isinstance(settings, dict) else table
    )
