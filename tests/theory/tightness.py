"""How tight the bounds are on the simulated federations: `python tests/theory/tightness.py`."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import simulated_convergence
import simulated_lemmas
import simulated_stability

Ratios = dict[str, list[float]]  # of every comparison whose bound is guaranteed: measured/bound, by its name


def lemmas() -> Ratios:
    """The lemmas of FedInit."""
    return by_name(
        (f"FedInit Lemma {name}", measured / bound)
        for name in simulated_lemmas.LEMMAS
        for measured, bound in (
            simulated_lemmas.compared(name, case) for case in simulated_lemmas.cases(name)
        )
    )


def convergence() -> Ratios:
    """The theorems on convergence and generalisation."""
    bounds = [(case, case.bound().guaranteed) for case in simulated_convergence.all_cases()]
    return by_name(
        (case.theorem, case.measured / bound) for case, bound in bounds if math.isfinite(bound) and bound > 0
    )


def stability() -> Ratios:
    """Table 1 of FedSAGD."""
    return by_name(
        (f"Table 1, {case.method}", case.measured / case.bound().guaranteed)
        for case in simulated_stability.all_cases()
    )


def by_name(found: Iterable[tuple[str, float]]) -> Ratios:
    """Return the values of each name."""
    ratios: Ratios = defaultdict(list)
    for name, ratio in found:
        ratios[name].append(ratio)
    return ratios


def on_the_page(begins: str) -> dict[str, tuple[float, ...]]:
    """Return the rows of docs/theory.md whose names begin so: federations, median, worst."""
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\S+) \| (\S+) \|$", page, re.MULTILINE)
    return {name: tuple(map(float, numbers)) for name, *numbers in rows if re.match(begins, name)}


def summary(ratios: Ratios) -> dict[str, tuple[float, ...]]:
    """Return the rows of the table: federations, median, worst."""
    return {name: (len(found), median(found), max(found)) for name, found in ratios.items()}


def main() -> None:
    """Print the table of docs/theory.md."""
    ratios = lemmas() | convergence() | stability()
    print("| bound | federations | median | worst |\n|---|---|---|---|")
    for name, found in ratios.items():
        print(f"| {name} | {len(found)} | {median(found):.2g} | {max(found):.2g} |")


if __name__ == "__main__":
    main()
