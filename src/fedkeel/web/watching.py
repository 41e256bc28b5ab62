"""All runs below a directory, looked at again and again: in groups, with alerts, in bounded time."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from fedkeel.common.errors import ConfigError
from fedkeel.running.requests import ask
from fedkeel.web.alerts import MOST_ALERTS, Alert
from fedkeel.web.finding import FoundGroup, find_runs
from fedkeel.web.following import ALIVE, FollowedRun

SINGLE = "single"  # the group of runs that belong to none
_SEARCH_SECONDS = 2.0  # between two searches for new runs
_LOOK_SECONDS = 0.3  # that a look may take: what is left waits for the next
_MOST_NUMBERS = 100_000  # of all curves of a group
_FEWEST, _MOST = 16, 300  # buckets of a curve


class RunAlert(NamedTuple):
    """An alert and the run that it is of."""

    run: FollowedRun
    alert: Alert


class RunGroup:
    """Runs that are shown together: of a comparison, a sweep or a study, or those that belong to none."""

    def __init__(self, id: str, found: FoundGroup | None, place: str) -> None:
        self.id, self.found, self.place = id, found, place
        self.runs: list[FollowedRun] = []

    @property
    def kind(self) -> str:
        """Return what it is."""
        return "single runs" if self.found is None else self.found.kind

    @property
    def last_sign(self) -> float:
        """Return when one of its runs wrote something last; of those that go on, now counts."""
        return max((run.last_sign for run in self.runs), default=0.0)

    def name_of(self, run: FollowedRun) -> str:
        """Return what curves and lists name a run by: its method, in a sweep the value."""
        if self.found is not None and self.found.kind != "comparison":
            inner = run.path.relative_to(self.found.path).parts
            return inner[0].encode(errors="replace").decode() if inner else run.method
        if self.found is None and len(self.runs) > 1:
            return f"{run.method} [{run.place}]"
        return run.method

    def thin_out(self) -> None:
        """Keep so few points of each curve that the group stays drawable, however many runs it has."""
        curves = sum(len(run.curves) + len(run.axes) + 1 for run in self.runs)
        most = max(_FEWEST, min(_MOST, _MOST_NUMBERS // (3 * max(1, curves))))
        for run in self.runs:
            if most < run.most:
                run.limit(most)


class Watch:
    """What is known of the runs below a directory."""

    def __init__(self, root: Path, *, control: bool = False) -> None:
        self.root, self.control = root.resolve(), control
        self.runs: dict[Path, FollowedRun] = {}
        self.groups: dict[str, RunGroup] = {}
        self.cut = False
        self.version = 0  # grows with every change
        self.is_behind = False  # whether there is more to read at once
        self.alerts: deque[RunAlert] = deque(maxlen=MOST_ALERTS)
        self._asked: dict[str, str] = {}
        self._searched = -_SEARCH_SECONDS

    def look(self) -> None:
        """See what is new."""
        now = time.monotonic()
        changed = self.is_behind = False
        if now - self._searched >= _SEARCH_SECONDS:
            changed, self._searched = self._search(), now
        until = time.monotonic() + _LOOK_SECONDS
        for run in self.runs.values():  # of new runs a few rows first: a page soon has a curve of each
            if not run.is_glimpsed and time.monotonic() < until:
                run.glimpse()
                changed = True
        until = time.monotonic() + _LOOK_SECONDS
        for run in sorted(self.runs.values(), key=lambda run: (run.state not in ALIVE, -run.last_sign)):
            if run.look(until):
                changed = True
                self._take_alerts(run)
            self._acknowledge(run)
            if time.monotonic() > until:
                self.is_behind = True
                break
        self.is_behind |= any(run.is_behind for run in self.runs.values())
        if changed or self.is_behind:
            for group in self.groups.values():
                group.thin_out()
            self.version += 1

    def group(self, id: str | None) -> RunGroup | None:
        """Return a group, or that in which something happened last; None where there is none."""
        if id is not None and id in self.groups:
            return self.groups[id]
        return max(self.groups.values(), key=lambda group: group.last_sign, default=None)

    def ask(self, id: str, request: str) -> str:
        """Ask a run for something; return what is said to who asked, whether it can be or not."""
        run = next((run for run in self.runs.values() if run.id == id), None)
        if run is None:
            raise ConfigError("there is no such run here any more: load the page again")
        if run.state not in ALIVE:
            raise ConfigError(f"{run.place} is not running: there is nothing to {request}")
        ask(run.path, request)
        self._asked[run.id] = request
        self.version += 1
        return f"asked to {request} after this round"

    def asked(self, run: FollowedRun) -> str | None:
        """Return what a run was asked for and has not done yet."""
        return self._asked.get(run.id, "something") if run.asked else None

    def _acknowledge(self, run: FollowedRun) -> None:
        """Say that a run has done what it was asked for: it has removed the request."""
        if run.id in self._asked and not run.asked and not (run.path / ".request").exists():
            request = self._asked.pop(run.id)
            if request == "checkpoint":
                run.alert(f"checkpoint written after round {run.done}", "good")
            self._take_alerts(run)
            self.version += 1

    def _take_alerts(self, run: FollowedRun) -> None:
        while run.alerts:
            self.alerts.append(RunAlert(run, run.alerts.popleft()))

    def _search(self) -> bool:
        found = find_runs(self.root)
        self.cut = found.cut
        known = {one.path: one.group for one in found.runs}
        same = known.keys() == self.runs.keys() and all(
            run.group == known[path] for path, run in self.runs.items()
        )
        if same:
            return False
        self.runs = {
            path: self.runs[path] if path in self.runs else FollowedRun(path, self.root, _MOST)
            for path in known
        }
        self.groups = {}
        for path, run in self.runs.items():
            run.group = known[path]
            place = "" if run.group is None else self._place(run.group.path)
            group = self.groups.setdefault(place or SINGLE, RunGroup(place or SINGLE, run.group, place))
            group.runs.append(run)
        self.alerts = deque((one for one in self.alerts if one.run.path in known), maxlen=MOST_ALERTS)
        return True

    def _place(self, path: Path) -> str:
        return "/".join(path.relative_to(self.root).parts).encode(errors="replace").decode() or "."
