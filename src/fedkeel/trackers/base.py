"""What all trackers share: which numbers of a round they are given, and that no round is given twice."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkeel.common.errors import Stopped
from fedkeel.common.files import storage_errors
from fedkeel.common.jsonfiles import json_text
from fedkeel.running.callbacks import Callback

if TYPE_CHECKING:
    from fedkeel.running.result import Result
    from fedkeel.running.round import Row

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"


class Tracker(Callback, ABC):
    """Writes runs to a tracker, one after the other: `open`, `log` for each round, `close`."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.settings: Mapping[str, Any] = {}
        self._is_open = False

    def on_settings(self, settings: Mapping[str, Any]) -> None:
        """Keep what the run is until it begins."""
        self.settings = settings

    def on_run_begin(self, rows: Sequence[Row]) -> None:
        """Begin, or go on with, the run at the tracker; give it the rounds before that it lacks."""
        logged = self.open(len(rows))
        self._is_open = True
        for row in rows[logged:]:
            self.log(row["round"], numbers_of(row))

    def on_round_end(self, row: Row) -> None:
        """Log a round."""
        self.log(row["round"], numbers_of(row))

    def on_run_end(self, result: Result) -> None:
        """Log the summary, and close."""
        self._end(FINISHED, summary_of(result))

    def on_run_error(self, problem: BaseException) -> None:
        """Close, and say that the run was stopped or has failed."""
        if self._is_open:
            self._end(STOPPED if isinstance(problem, Stopped) else FAILED, {"problem": str(problem)})

    def _end(self, state: str, summary: Mapping[str, Any]) -> None:
        self._is_open = False
        self.close(state, summary)

    @abstractmethod
    def open(self, done: int) -> int:
        """Open the run at the tracker, `done` of whose rounds are played; return how many it has already."""

    @abstractmethod
    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Give the tracker the numbers of a round, unless it has them."""

    @abstractmethod
    def close(self, state: str, summary: Mapping[str, Any]) -> None:
        """Give the tracker what came out ("finished", "stopped" or "failed"), and close the run there."""

    @property
    def run_dir(self) -> Path | None:
        """Return the run's directory; None where it keeps nothing."""
        given = self.settings.get("run_dir")
        return None if given is None else Path(given)

    @property
    def run_name(self) -> str:
        """Return what the run is called: as asked for, else by its directory, else by its method and time."""
        if self.name is not None:
            return self.name
        if self.run_dir is None:
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
            return f"{self.settings.get('method', 'run')} seed {self.settings.get('seed')} {stamp}"
        where = self.run_dir.resolve()
        with suppress(ValueError):
            where = where.relative_to(Path.cwd())
        return "/".join(where.parts[-3:])


class NoteInRunDirectory:
    """What a tracker remembers of a run between two processes: a small file in the run's directory."""

    def __init__(self, run_dir: Path | None, tracker: str) -> None:
        self.path = None if run_dir is None else run_dir / f"{tracker}.json"

    def read(self) -> dict[str, Any]:
        """Return what was noted; nothing where there is none, or it cannot be read."""
        if self.path is not None:
            with suppress(OSError, ValueError):
                found = json.loads(self.path.read_text())
                return found if isinstance(found, dict) else {}
        return {}

    def write(self, values: Mapping[str, Any]) -> None:
        """Note something instead of what was noted before."""
        if self.path is not None:
            with storage_errors(self.path):
                self.path.write_text(json_text(values))


def numbers_of(row: Row) -> dict[str, float]:
    """Return the numbers of a row; of lists, as of the clients that were left out, how long they are."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if name == "round" or isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            found[name] = value
        elif isinstance(value, list):
            found["clients" if name == "cohort" else name] = len(value)
    return found


def summary_of(result: Result) -> dict[str, Any]:
    """Return what came out of a run, as plain values."""
    rows = result.history
    summary: dict[str, Any] = {
        "rounds": len(rows),
        "bytes": sum(row["bytes_down"] + row["bytes_up"] for row in rows),
        "gradients": sum(row["gradients"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
    }
    if result.best is not None:
        summary |= {"best_round": result.best.round, f"best_{result.best.column}": _best_value(result)}
    if result.stopped_by is not None:
        summary["stopped_by"] = result.stopped_by
    return summary


def _best_value(result: Result) -> Any:
    assert result.best is not None
    return result.best.row.get(result.best.column)
