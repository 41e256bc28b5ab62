"""Histories of finished runs as small files, one for each run, to be kept in a repository or sent.

A file has what the run trained and its columns of numbers, to six digits; it is named as the run's directory
is, after all that the numbers depend on. A run whose history is there counts as finished.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkeel.common.errors import StorageError
from fedkeel.common.files import make_directory, storage_errors, write_durably
from fedkeel.common.jsonfiles import json_text, parse_object
from fedkeel.papers.reproduce.jobs import JobResult, JobRows
from fedkeel.papers.reproduce.plan import RecipeJob

_DIGITS = 6


def history_file(directory: Path, job: RecipeJob) -> Path:
    """Return the file of a run's history; studies that are read along two axes have one for each."""
    along = getattr(job.study, "along", None)
    name = f"{job.directory.parent.name}-{job.directory.name}{'' if along is None else f'-{along}'}"
    return directory / f"{name}.json.gz"


def read_history(directory: Path, job: RecipeJob) -> JobResult | None:
    """Return the history that is kept of a run, if there is one."""
    file = history_file(directory, job)
    try:
        kept = parse_object(gzip.decompress(file.read_bytes()))
        columns: Mapping[str, list[Any]] = kept["columns"]
        rows = [
            {key: value for key, value in zip(columns, values, strict=True) if value is not None}
            for values in zip(*columns.values(), strict=True)
        ]
        return JobResult(rows, kept["problem"])
    except FileNotFoundError:
        return None
    except (OSError, EOFError, KeyError, ValueError, TypeError, AttributeError) as problem:
        raise StorageError(
            f"{file}: no history of fedkeel's ({problem}): delete it to run it again"
        ) from None


def keep_history(directory: Path, job: RecipeJob, result: JobResult) -> None:
    """Write a run's history, if it is not there; the same run gives the same bytes but for its timings."""
    file = history_file(directory, job)
    if file.exists():
        return
    table = {key: value for key, value in job.table.items() if value is not None}
    content = {"experiment": table, "problem": result.problem, "columns": _columns(result.rows)}
    with storage_errors(file):
        make_directory(directory)
        write_durably(file, gzip.compress(json_text(content).encode(), mtime=0))


def _columns(rows: JobRows) -> dict[str, list[Any]]:
    """Return the numbers of all rows by column, None where a row has none; lists and texts are left out."""
    names = dict.fromkeys(key for row in rows for key, value in row.items() if _is_number(value))
    return {name: [_short(row.get(name)) for row in rows] for name in names}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> Any:
    """Return a number with six digits; what is not finite stays as it is, so that it counts as diverged."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value if _is_number(value) else None
    return float(f"{value:.{_DIGITS}g}")
