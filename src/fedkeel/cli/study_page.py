"""What `fedkeel study` prints of a study that is finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedkeel.common.progress import console, plain_table


def print_stability(found: dict[str, dict[str, Any]], page: Path) -> None:
    """Print the numbers of every method after the last round, and who was replaced."""
    from fedkeel.studies.study_pages import stability_table, stability_text  # noqa: PLC0415

    console().print(plain_table(*stability_table(found)))
    text = stability_text(next(iter(found.values())))
    console().print(f"\n{text}\nPage with curves: {page}", markup=False, soft_wrap=True)


def print_interaction(found: dict[str, list[dict[str, Any]]], page: Path) -> None:
    """Print every snapshot of every method."""
    from fedkeel.studies.study_pages import interaction_table  # noqa: PLC0415

    console().print(plain_table(*interaction_table(found)))
    console().print(f"\nPage with curves: {page}", markup=False, soft_wrap=True)
