"""What `fedkeel study` prints and draws of a study that is finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedkeel.progress import console, plain_table


def print_stability(found: dict[str, dict[str, Any]], directory: Path) -> None:
    """Print the numbers of every method after the last round, and who was replaced."""
    first = next(iter(found.values()))
    measured = [one["round"] for one in first["local"]]
    rows = [
        (
            name,
            f"{one['mean'][-1]:.4f}",
            f"{one['largest'][-1]:.4f}",
            f"{one['losses'][-1]['absolute']:.4f}",
            f"{one['losses'][-1]['signed']:.4f}",
            *(f"{local['distances'][-1]:.4f}" for local in one["local"]),
            f"{one['gap']:+.4f}",
        )
        for name, one in found.items()
    ]
    local = (f"local, round {round}" for round in measured)
    header = ("method", "‖x − x'‖ mean", "largest", "max |f − f'|", "max f − f'", *local, "R_u − R_e")
    console().print(plain_table(header, rows))
    console().print(
        f"\n{stability_text(first)}\nCurves: {directory / 'stability.svg'}", markup=False, soft_wrap=True
    )
    console().print(f"Local curves: {directory / 'local.svg'}", markup=False, soft_wrap=True)


def stability_text(found: dict[str, Any]) -> str:
    """Say what was replaced and what the columns are."""
    replaced = ", ".join(
        f"{one['client']} (first in round {one['first_round']}, {one['participations']} times)"
        for one in found["clients"]
    )
    what = "Replaced clients" if found["replaced"] == "client" else "Clients with one sample replaced"
    chosen = (
        f"chosen among {found['eligible']} that are drawn within the first {found['drawn_by']} rounds and at "
        f"least {found['drawn_at_least']} times"
    )
    return (
        f"After {len(found['mean']) - 1} rounds. {what}: {replaced}; {chosen}.\n"
        "f − f': losses of the two models on a sample, mean over pairs, largest over samples (FedSAGD's "
        "Definition 3.4, and without the absolute value FedInit's Definition 11).\n"
        "local: the largest distance between two clients' models at the end of their walks in that round."
    )


def local_curves(found: dict[str, dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Return the local distances against the step, one curve per method and measured round."""
    return {
        f"{name}, round {one['round']}": list(enumerate(one["distances"]))
        for name, result in found.items()
        for one in result["local"]
    }


def print_interaction(found: dict[str, list[dict[str, Any]]], directory: Path) -> None:
    """Print every snapshot of every method."""
    rows = [
        (
            name,
            f"{m['round']}",
            f"{m['features']}",
            f"{m['local_current']:.1f}",
            f"{m['current_mean']}",
            f"{m['current_next']}",
            ", ".join(f"{gamma:g}: {count}" for gamma, count in m["sweep"]),
        )
        for name, seen in found.items()
        for m in seen
    ]
    shared = ("local ∩ global", "global ∩ mean", "global ∩ next")
    console().print(plain_table(("method", "round", "features", *shared, "features by γ_corr"), rows))
    console().print(f"\nCurves: {directory / 'interaction.svg'}", markup=False, soft_wrap=True)
