"""What one open page has been sent, and what it lacks: the whole document once, then changes alone."""

from __future__ import annotations

import json
from typing import Any

from fedkeel.report.page.runs import short
from fedkeel.web.following import FollowedRun
from fedkeel.web.live_page import (
    MOST_DRAWN,
    curve_state,
    drawn_axes,
    drawn_columns,
    empty_page,
    live_document,
)
from fedkeel.web.thinning import Point, ThinnedCurve
from fedkeel.web.watching import RunGroup, Watch


class Subscription:
    """An open page that shows a group of runs: the one asked for, else that where something happened last."""

    def __init__(self, watch: Watch, group: str | None) -> None:
        self._watch, self._asked = watch, group
        self._shown: RunGroup | None = None
        self._version = -1
        self._sent: dict[tuple[str, str, str], tuple[int, list[Point]]] = {}  # by run, kind and column
        self._runs: list[tuple[str, str, int]] = []
        self._head = ""

    def event(self) -> tuple[str, str] | None:
        """Return the name and the data of the next event, None where nothing is new."""
        if self._watch.version == self._version:
            return None
        self._version = self._watch.version
        group = self._choose()
        if group is None:
            return self._first("document", empty_page(self._watch).to_json())
        runs = group.runs[:MOST_DRAWN]
        if group is not self._shown or self._named(group, runs) != self._runs:
            return self._begin(group, runs)
        return self._changes(group, runs)

    def _choose(self) -> RunGroup | None:
        """Return the group to show; where none was asked for, the page stays with the first that it had."""
        if self._asked is None and self._shown is not None and self._shown.id in self._watch.groups:
            return self._watch.groups[self._shown.id]
        return self._watch.group(self._asked)

    @staticmethod
    def _named(group: RunGroup, runs: list[FollowedRun]) -> list[tuple[str, str, int]]:
        """Return the runs as a page knows them; it is sent the whole document where they are others."""
        return [(run.id, group.name_of(run), run.seed) for run in runs]

    def _first(self, name: str, data: str) -> tuple[str, str] | None:
        if data == self._head:
            return None
        self._head = data
        return name, data

    def _begin(self, group: RunGroup, runs: list[FollowedRun]) -> tuple[str, str]:
        self._shown, self._runs, self._sent = group, self._named(group, runs), {}
        for run in runs:
            for kind, curves in _kinds(run):
                for name, curve in curves.items():
                    self._sent[run.id, kind, name] = curve.stamp, curve.points()
        return "document", live_document(self._watch, group).to_json()

    def _changes(self, group: RunGroup, runs: list[FollowedRun]) -> tuple[str, str]:
        """Return the document without points, and the points that were added or have changed."""
        added = [self._added(run) for run in runs]
        head = live_document(self._watch, group, curves=False).model_dump(
            mode="json", exclude_none=True, exclude={"runs"}
        )
        return "changes", json.dumps({"document": head, "runs": added}, ensure_ascii=False, allow_nan=False)

    def _added(self, run: FollowedRun) -> dict[str, Any]:
        found: dict[str, Any] = {"id": run.id, "columns": {}, "axes": {}}
        for kind, curves in _kinds(run):
            for name, curve in curves.items():
                change = self._column(run, kind, name, curve)
                if change is not None:
                    found[kind][name] = change
        return {**found, "state": curve_state(run), "done": run.done}

    def _column(self, run: FollowedRun, kind: str, name: str, curve: ThinnedCurve) -> dict[str, Any] | None:
        stamp, before = self._sent.get((run.id, kind, name), (-1, []))
        if stamp == curve.stamp:
            return None
        points = curve.points()
        self._sent[run.id, kind, name] = curve.stamp, points
        keep = next(
            (at for at, (old, new) in enumerate(zip(before, points, strict=False)) if old != new),
            min(len(before), len(points)),
        )
        rest = points[keep:]
        return {
            "keep": keep,
            "rounds": [round for round, _ in rest],
            "values": [short(value) for _, value in rest],
        }


def _kinds(run: FollowedRun) -> tuple[tuple[str, dict[str, ThinnedCurve]], ...]:
    return ("columns", drawn_columns(run)), ("axes", drawn_axes(run))
