"""What `fedkeel sweep` prints of a sweep, also of one that is read back by `fedkeel show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedkeel.progress import console, plain_table


def print_sweep(found: dict[str, Any]) -> None:
    """Print the table with the intervals over seeds, the best value, and how sure that is."""
    from fedkeel.report.tables import MethodSummary, cells  # noqa: PLC0415

    target = found["target"]
    shown = "target" if target is None else f"{100 * target:g} %"
    below_what = "below the best" if found["best_by"] == "accuracy" else "below the best in validation"
    headings = (
        *(found["over"], "final accuracy", "95 % interval", f"{below_what} (interval)"),
        *(f"rounds to {shown}", f"sent to {shown}", "seconds"),
    )
    below = {one["other"]: _below(one) for one in found["verdict"]["differences"]}
    rows = []
    for line in found["table"]:
        summary = MethodSummary(**{key: part for key, part in line.items() if key != "interval"})
        value, accuracy, *rest = cells(summary)
        rows.append((value, accuracy, _interval(line["interval"]), below.get(line["method"], "—"), *rest))
    console().print(plain_table(headings, rows))
    best = f"{found['best'] or 'none'} ({found['best_note']})"
    ends = [f"Best: {best}{_how_sure(found)}", *found["problems"]]
    ends.append(f"Plot: {Path(found['directory']) / 'sweep.svg'}")
    console().print("\n" + "\n".join(ends), markup=False, soft_wrap=True)


def _interval(ends: tuple[float, float] | None) -> str:
    return "—" if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"


def _below(one: dict[str, Any]) -> str:
    gap = f"{100 * one['mean']:.1f}"
    if one["low"] is None:
        return gap
    return f"{gap} ({100 * one['low']:.1f} to {100 * one['high']:.1f})".replace("-", "−")


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
