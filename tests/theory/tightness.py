"""How tight the bounds are on the simulated federations: `python tests/theory/tightness.py`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import simulated_convergence
import simulated_stability
import test_simulated_lemmas


def measured_over_bound() -> Iterable[tuple[str, float]]:
    """Every comparison whose bound is guaranteed, as its name and measured/bound."""
    for name in test_simulated_lemmas.LEMMAS:
        for lemma in test_simulated_lemmas.cases(name):
            measured, bound = test_simulated_lemmas.compared(name, lemma)
            yield f"FedInit Lemma {name}", measured / bound
    for case in simulated_convergence.all_cases():
        bound = case.bound().guaranteed
        if math.isfinite(bound) and bound > 0:
            yield case.theorem, case.measured / bound
    for replaced in simulated_stability.all_cases():
        yield f"Table 1, {replaced.method}", replaced.measured / replaced.bound().guaranteed


def main() -> None:
    """Print the table of docs/theory.md."""
    ratios = defaultdict(list)
    for name, ratio in measured_over_bound():
        ratios[name].append(ratio)
    print("| bound | federations | median | worst |\n|---|---|---|---|")
    for name, found in ratios.items():
        print(f"| {name} | {len(found)} | {median(found):.2g} | {max(found):.2g} |")


if __name__ == "__main__":
    main()
