"""What `fedkeel sweep` prints of a sweep, also of one that is read back by `fedkeel show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkeel.cli.wide_table import print_table
from fedkeel.common.progress import console

if TYPE_CHECKING:
    from fedkeel.report.measures import Measure


def print_sweep(found: dict[str, Any]) -> None:
    """Print the table with the intervals over seeds, the best value, and how sure that is."""
    from fedkeel.report.measures import parse_measure  # noqa: PLC0415
    from fedkeel.report.table_columns import COLUMNS, SCORE  # noqa: PLC0415
    from fedkeel.report.tables import MethodSummary, cells, headings  # noqa: PLC0415

    measure, columns = parse_measure(found.get("measure", "final")), found.get("columns", COLUMNS)
    at = columns.index(SCORE) + 2 if SCORE in columns else None  # the intervals stand behind the score
    names = [found["over"], *headings(found["target"], measure, columns)[1:]]
    below = {one["other"]: _behind(one, measure) for one in found["verdict"]["differences"]}
    rows = []
    for line in found["table"]:
        summary = MethodSummary(**{key: part for key, part in line.items() if key != "interval"})
        row = list(cells(summary, columns))
        if at is not None:
            row[at:at] = [_interval(line["interval"], measure), below.get(line["label"], "—")]
        rows.append(row)
    if at is not None:
        names[at:at] = ["95 % interval", f"{_behind_what(found, measure)} (interval)"]
    print_table(console(), names, rows)
    best = f"{found['best'] or 'none'} ({found['best_note']})"
    ends = [f"Best: {best}{_how_sure(found)}", *found["problems"]]
    directory = Path(found["directory"])
    if (directory / "page.html").exists():
        ends.append(f"Page with curves: {directory / 'page.html'}")
    console().print("\n" + "\n".join(ends), markup=False, soft_wrap=True)


def _interval(ends: tuple[float, float] | None, measure: Measure) -> str:
    if ends is None:
        return "—"
    low, high = (f"{'−' * (end < 0)}{measure.shown(abs(end))}" for end in ends)
    return f"{low.removesuffix(' %')} to {high}"


def _behind_what(found: dict[str, Any], measure: Measure) -> str:
    """Say what the differences are: less is worse, or more."""
    where = "" if found["best_by"] == measure.metric else " in validation"
    return f"{'below' if measure.sign > 0 else 'above'} the best{where}"


def _behind(one: dict[str, Any], measure: Measure) -> str:
    gap = measure.shown_gap(one["mean"]).removesuffix(" points")
    if one["low"] is None:
        return gap
    return f"{gap} ({measure.shown_bound(one['low'])} to {measure.shown_bound(one['high'])})"


def _how_sure(found: dict[str, Any]) -> str:
    """Say which values the seeds cannot tell from the best; with one seed, that they can tell nothing."""
    verdict = found["verdict"]
    if verdict["seeds"] == 1:
        return "; with one seed there is no interval, so this may be chance: take --seeds 3 or more"
    if not verdict["differences"]:
        return ""
    unclear = [one["other"] for one in verdict["differences"] if not one["resolved"]]
    count = f"{verdict['seeds']} seeds"
    if unclear:
        return (
            f"; {count} cannot tell it from {', '.join(unclear)} (the intervals hold for all pairs together)"
        )
    return f"; {count} tell it from all others (the intervals hold for all pairs together)"
