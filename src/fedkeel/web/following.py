"""One run that is looked at: its rows as they are appended, how it stands, and what is to be said of it."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Literal

from pydantic_core import from_json

from fedkeel.common.columns import HistoryColumn, KnownColumns, columns_in
from fedkeel.common.older import manifest_now, row_now
from fedkeel.report.page.runs import has_curve
from fedkeel.running.requests import PAUSED_FILE, REQUEST_FILE
from fedkeel.running.run_directory import INTERRUPTION_FILE, is_held
from fedkeel.web.alerts import Alert, RowAlerts
from fedkeel.web.finding import FoundGroup
from fedkeel.web.glimpsing import glimpse
from fedkeel.web.tailing import DamagedFile, FileStamp, LineTail, read_small
from fedkeel.web.thinning import ThinnedCurve

RunStanding = Literal[
    "running", "paused", "stalled", "finished", "diverged", "stopped", "failed", "unfinished", "damaged"
]
ALIVE: tuple[RunStanding, ...] = ("running", "paused", "stalled")
_MOST_COLUMNS = 60  # curves of a run; of more, as of norms per layer, the first
_LATEST = 12  # rows that are kept as they are
_AT_ONCE = 2_000  # rows that are taken together
_WINDOW = 16  # rounds by which the next ones are estimated
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)  # rows
_SLOWER, _LEAST_STALL = 20.0, 60.0  # times the usual round, and seconds, after which a run has stalled


class FollowedRun:
    """A run below the watched directory."""

    def __init__(self, path: Path, root: Path, most: int) -> None:
        self.path, self.most = path, most
        self.id = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:16]
        self.place = "/".join(path.relative_to(root).parts).encode(errors="replace").decode() or path.name
        self.group: FoundGroup | None = None
        self.manifest: Mapping[str, Any] = {}
        self.declared: tuple[HistoryColumn, ...] = ()
        self.known = KnownColumns()
        self.interruption: Mapping[str, Any] = {}
        self.state: RunStanding = "unfinished"
        self.paused, self.asked = False, False
        self.alerts: deque[Alert] = deque(maxlen=50)
        self._written = ""
        self._rows, self._timings = LineTail(path / "metrics.jsonl"), LineTail(path / "timings.jsonl")
        self._stamps = {
            name: FileStamp(path / name)
            for name in ("manifest.json", "experiment.toml", INTERRUPTION_FILE, PAUSED_FILE, REQUEST_FILE)
        }
        self.is_glimpsed = self._seen_before = False
        self._begin_rows()
        self._begin_timings()
        self._read_descriptions()

    def _begin_rows(self) -> None:
        self.done, self.damage = 0, ""
        self.curves: dict[str, ThinnedCurve] = {}
        self._without_curve: set[str] = set()
        self.axes = {name: ThinnedCurve(self.most) for name in ("bytes", "gradients")}
        self.latest: deque[dict[str, Any]] = deque(maxlen=_LATEST)
        self.skipped_in_all = 0
        self._totals = {"bytes": 0, "gradients": 0}
        self._row_alerts = RowAlerts()

    def _begin_timings(self) -> None:
        self.times: dict[int, float] = {}  # of the latest rounds
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self.seconds = 0.0
        self.seconds_curve = ThinnedCurve(self.most)

    def glimpse(self) -> None:
        """Read a few rows of a long run from beginning to end, so that its curves can be drawn at once."""
        try:
            rows = glimpse(self._rows.path)
            for name, (rounds, values) in self._columns(rows).items():
                self.curves[name].ahead = sorted(zip(rounds, values, strict=True))
            self._keep_latest(rows)
        except _UNREADABLE:  # which is said when it is read in its turn
            self._begin_rows()
        self.state, self.is_glimpsed = self._standing(), True

    def look(self, until: float) -> bool:
        """Read what is new until that time (of time.monotonic); tell whether anything has changed."""
        changed = self._read_descriptions()
        changed |= self._read(self._rows, self._begin_rows, self._take_rows, until)
        changed |= self._read(self._timings, self._begin_timings, self._take_timings, until)
        before, self.state = self.state, self._standing()
        if before != self.state or not self._seen_before:
            self._tell(before)
        changed |= before != self.state or not self._seen_before
        self._seen_before = True
        return changed

    @property
    def is_behind(self) -> bool:
        """Tell whether there are rows that have not been read yet."""
        return not self._seen_before or self._rows.is_behind or self._timings.is_behind

    @property
    def reached(self) -> int:
        """Return the rounds that it has done, as far as its last rows say."""
        return max(self.done, self.latest[-1]["round"] + 1) if self.latest else self.done

    @property
    def cohort(self) -> int:
        """Return how many clients took part in its last round."""
        return int(self.latest[-1]["cohort"]) if self.latest else 0

    @property
    def skipped(self) -> int:
        """Return how many of them it skipped."""
        return len(self.latest[-1].get("skipped") or ()) if self.latest else 0

    def _read_descriptions(self) -> bool:
        changed = [name for name, stamp in self._stamps.items() if stamp.changed()]
        if "manifest.json" in changed:
            self.manifest = manifest_now(_json_object(self.path / "manifest.json") or self.manifest)
            self.declared = tuple(columns_in(self.manifest))
            self.known = KnownColumns(self.declared)
        if INTERRUPTION_FILE in changed:
            self.interruption = _json_object(self.path / INTERRUPTION_FILE) or {}
        if "experiment.toml" in changed:
            self._written = _method(self.path / "experiment.toml")
        self.paused, self.asked = self._stamps[PAUSED_FILE].exists, self._stamps[REQUEST_FILE].exists
        return bool(changed)

    def _read(
        self, tail: LineTail, begin: Callable[[], None], take: Callable[[list[Any]], None], until: float
    ) -> bool:
        changed = False
        while not self.damage:
            try:
                anew, lines = tail.look()
                if anew:
                    begin()
                for start in range(0, len(lines), _AT_ONCE):
                    take([row_now(from_json(line)) for line in lines[start : start + _AT_ONCE]])
                changed |= anew or bool(lines)
            except DamagedFile as problem:
                self.damage = str(problem)
            except _UNREADABLE:
                self.damage = f"{tail.path.name} cannot be read after round {self.done}"
            if not tail.is_behind or time.monotonic() > until:
                break
        return changed

    def _take_rows(self, rows: list[dict[str, Any]]) -> None:
        if [row["round"] for row in rows] != list(range(self.done, self.done + len(rows))):
            raise ValueError("a round is missing")
        rounds = list(range(self.done + 1, self.done + 1 + len(rows)))
        traffic = [int(row["bytes_down"]) + int(row["bytes_up"]) for row in rows]
        self._add_up("bytes", rounds, traffic)
        self._add_up("gradients", rounds, [int(row.get("gradients") or 0) for row in rows])
        for name, column in self._columns(rows).items():
            self.curves[name].add(*column)
        self.done += len(rows)
        self.skipped_in_all += sum(len(row.get("skipped") or ()) for row in rows)
        self._keep_latest(rows)
        for row in rows:
            for text in self._row_alerts.see(row):
                self.alert(text)

    def _add_up(self, name: str, rounds: Sequence[int], values: Sequence[int]) -> None:
        """Continue an axis: the sum of all values up to a round."""
        sums = list(accumulate(values, initial=self._totals[name]))[1:]
        self.axes[name].add(rounds, sums)
        self._totals[name] = sums[-1]

    def _columns(self, rows: list[dict[str, Any]]) -> dict[str, tuple[list[int], list[float]]]:
        """Return the numbers of rows that have a curve, by columns: rounds, counted from 1, and values."""
        found: dict[str, tuple[list[int], list[float]]] = {}
        all_rounds = [row["round"] + 1 for row in rows]
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name in self._without_curve:
                continue
            rounds, values = _numbers(all_rounds, [row.get(name) for row in rows])
            if values and (name in self.curves or self._new_curve(name) is not None):
                found[name] = rounds, values
        return found

    def _keep_latest(self, rows: list[dict[str, Any]]) -> None:
        for row in rows[-_LATEST:]:
            if not self.latest or row["round"] > self.latest[-1]["round"]:
                self.latest.append({**row, "cohort": len(row["cohort"])})

    def _new_curve(self, name: str) -> ThinnedCurve | None:
        """Begin a curve; None for columns that have none, and where there are too many."""
        if (
            name in self._without_curve
            or len(self.curves) >= _MOST_COLUMNS
            or not has_curve(name, self.known)
        ):
            self._without_curve.add(name)
            return None
        return self.curves.setdefault(name, ThinnedCurve(self.most))

    def _take_timings(self, rows: list[dict[str, Any]]) -> None:
        rounds = [int(row["round"]) for row in rows]
        taken = [float(row["seconds"]) for row in rows]
        sums = list(accumulate(taken, initial=self.seconds))[1:]
        self.seconds_curve.add([round + 1 for round in rounds], sums)
        self.seconds = sums[-1]
        self._recent.extend(taken)
        self.times.update(zip(rounds[-_LATEST:], taken[-_LATEST:], strict=True))
        for round in list(self.times)[:-_LATEST]:
            del self.times[round]

    def limit(self, most: int) -> None:
        """Keep fewer points of each curve."""
        self.most = min(self.most, most)
        for curve in (*self.curves.values(), *self.axes.values(), self.seconds_curve):
            curve.limit(most)

    def alert(self, text: str, tone: Literal["", "good", "bad", "unclear"] = "unclear") -> None:
        """Say something of the run; of what lies before the first look, the time is that of its last row."""
        when = time.time() if self._seen_before else self.last_sign or time.time()
        self.alerts.append(Alert(when, text, tone))

    @property
    def planned(self) -> int | None:
        """Return the rounds that it is to have."""
        found = self.manifest.get("rounds")
        return found if isinstance(found, int) else None

    @property
    def method(self) -> str:
        """Return the method as it was written, else as Python has it."""
        identity = self.manifest.get("identity")
        known = identity.get("method", "") if isinstance(identity, Mapping) else ""
        return self._written or str(known) or self.place

    @property
    def seed(self) -> int:
        """Return its seed."""
        identity = self.manifest.get("identity")
        found = identity.get("seed", 0) if isinstance(identity, Mapping) else 0
        return found if isinstance(found, int) else 0

    @property
    def pace(self) -> float | None:
        """Return the seconds of a usual round; None before there are two."""
        return statistics.median(self._recent) if len(self._recent) > 1 else None

    @property
    def time_left(self) -> float | None:
        """Return the seconds that its rounds will take yet; None where it does not run or that is unknown."""
        if self.state not in ALIVE or self.pace is None or self.planned is None:
            return None
        return max(0, self.planned - self.done) * self.pace

    @property
    def last_sign(self) -> float:
        """Return when something was written last, in seconds since 1970; 0 where nothing is."""
        stamps = (self._rows.changed_at, self._stamps["manifest.json"].changed_at)
        return max(stamps)

    def _standing(self) -> RunStanding:
        if self.damage:
            return "damaged"
        end = self.manifest.get("end")
        if isinstance(end, Mapping) and (self.is_behind or end.get("rounds") == self.done):
            return "finished"
        if is_held(self.path):
            return "paused" if self.paused else "stalled" if self._is_late() else "running"
        kind = self.interruption.get("kind")
        return kind if kind in ("diverged", "stopped", "failed") else "unfinished"

    def _is_late(self) -> bool:
        return self.pace is not None and time.time() - self.last_sign > max(_LEAST_STALL, _SLOWER * self.pace)

    def _tell(self, before: RunStanding) -> None:
        """Say how it stands now, where somebody should know."""
        message = str(self.interruption.get("message", ""))[:500]
        after = f"after round {self.done}"
        if self.state == "diverged":
            self.alert(f"diverged: {message}", "bad")
        elif self.state == "failed":
            self.alert(f"failed {after}: {message}", "bad")
        elif self.state == "damaged":
            self.alert(self.damage, "bad")
        elif self.state == "stalled":
            usual = self.pace or 0.0
            self.alert(
                f"stalled {after}: no round for a minute or more; one took {usual:.2g} s before", "bad"
            )
        elif self._seen_before and self.state == "stopped":
            self.alert(message or f"stopped {after}")
        elif self._seen_before and self.state == "paused":
            self.alert(f"paused {after}")
        elif before in ALIVE and self.state == "unfinished":
            self.alert(f"its process ended {after} without a word: `fedkeel resume` goes on with it", "bad")
        elif before in ALIVE and self.state == "finished":
            self.alert(f"finished {after}", "good")
        elif before in ("paused", "stalled") and self.state == "running":
            self.alert(f"goes on {after}", "good")


def _numbers(rounds: list[int], values: list[Any]) -> tuple[list[int], list[float]]:
    """Return the values that are finite numbers as JSON has them (a bool is none), with their rounds."""
    if {float, int}.issuperset(map(type, values)) and math.isfinite(sum(values)):
        return rounds, values
    kept = [
        (round, value)
        for round, value in zip(rounds, values, strict=True)
        if type(value) in (float, int) and math.isfinite(value)
    ]
    return [round for round, _ in kept], [value for _, value in kept]


def _json_object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(read_small(path) or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _method(path: Path) -> str:
    """Return the method as an experiment file writes it."""
    try:
        return str(tomllib.loads((read_small(path, 1_000_000) or b"").decode()).get("method", ""))
    except (ValueError, RecursionError):
        return ""
