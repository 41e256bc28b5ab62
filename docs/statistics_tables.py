"""Makes the tables of docs/statistics.md by simulation: python docs/statistics_tables.py (about five minutes)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import studentized_range
from scipy.stats import t as student

from fedkeel.report.significance import critical_value, pair_statistics

PAGE = Path(__file__).parent / "statistics.md"
COMPARISONS, SLICE = 10_000, 500
METHODS, SEEDS = (2, 3, 5, 8, 12), (3, 5, 10)
LEADS = {3: 5.0, 5: 3.0, 10: 2.0}
Floats = NDArray[np.float64]
Claims = NDArray[np.bool_]  # (comparisons, methods, methods): who is said to be above whom
Procedure = Callable[[Floats], Claims]


def ours(scores: Floats) -> Claims:
    """The verdict's."""
    return pair_statistics(scores) > critical_value(*scores.shape[1:])


def each_pair(scores: Floats) -> Claims:
    """Student's t of each pair for itself: the verdict of before."""
    return paired_t(scores) > student.ppf(0.975, scores.shape[-1] - 1)


def bonferroni(scores: Floats) -> Claims:
    """Student's t of each pair, at 5 % divided by the number of pairs."""
    pairs = math.comb(scores.shape[1], 2)
    return paired_t(scores) > student.ppf(1 - 0.025 / pairs, scores.shape[-1] - 1)


def tukey(scores: Floats) -> Claims:
    """Tukey's range test with one variance for all methods, seeds as blocks."""
    _, methods, seeds = scores.shape
    common = paired_variances(scores).sum((1, 2), keepdims=True) / (methods * (methods - 1))
    return gaps(scores) / np.sqrt(common / seeds) > range_quantile(methods, (methods - 1) * (seeds - 1))


def games_howell(scores: Floats) -> Claims:
    """Games and Howell's test: each method's own variance, Satterthwaite's degrees of freedom."""
    _, methods, seeds = scores.shape
    if methods == 2:
        return each_pair(scores)
    paired = paired_variances(scores)
    total = paired.sum((1, 2))[:, None] / 2
    single = np.maximum((paired.sum(2) - total / (methods - 1)) / (methods - 2), 1e-30)
    summed = single[:, :, None] + single[:, None]
    freedom = (seeds - 1) * summed**2 / (single[:, :, None] ** 2 + single[:, None] ** 2)
    grid = (seeds - 1) * np.array([1.0, 1.2, 1.5, 2.0])
    quantiles = np.interp(freedom, grid, [range_quantile(methods, float(at)) for at in grid])
    return gaps(scores) / np.sqrt(summed / seeds) > quantiles


@cache
def range_quantile(methods: int, freedom: float) -> float:
    """Return the 95 % point of the studentised range, for differences instead of ranges."""
    return float(studentized_range.ppf(0.95, methods, freedom)) / math.sqrt(2)


def paired_t(scores: Floats) -> Floats:
    """Return Student's t of every pair's differences."""
    variances = paired_variances(scores) + np.eye(scores.shape[1])
    return gaps(scores) / np.sqrt(variances / scores.shape[-1])


def paired_variances(scores: Floats) -> Floats:
    """Return the variance of every pair's differences."""
    apart = scores[:, :, None] - scores[:, None]
    return apart.var(-1, ddof=1)


def gaps(scores: Floats) -> Floats:
    """Return the distance of every pair's means."""
    means = scores.mean(-1)
    return np.abs(means[:, :, None] - means[:, None])


PROCEDURES: dict[str, Procedure] = {
    "fedkeel": ours,
    "each pair alone (before)": each_pair,
    "Tukey, one variance": tukey,
    "Games–Howell": games_howell,
    "Bonferroni, paired t": bonferroni,
}


def spreads(methods: int) -> dict[str, Floats]:
    """Return the standard deviations of the methods: equal, and unequal at one to five."""
    index = np.arange(methods)
    return {
        "equal": np.ones(methods),
        "one wide": np.where(index < 1, 5.0, 1.0),
        "half wide": np.where(index < methods // 2, 5.0, 1.0),
        "one narrow": np.where(index < 1, 1.0, 5.0),
        "growing": np.geomspace(1.0, 5.0, methods),
    }


def normal(methods: int, seeds: int, spread: Floats, effect: float) -> Floats:
    """Return comparisons of equal methods; `effect` is the deviation of what a seed adds to all of them."""
    stream = np.random.default_rng([methods, seeds, int(1000 * spread.sum()), int(effect)])
    shared = effect * stream.standard_normal((COMPARISONS, 1, seeds))
    return shared + spread[:, None] * stream.standard_normal((COMPARISONS, methods, seeds))


def slices(scores: Floats) -> Iterator[Floats]:
    """Yield comparisons by the hundred, which fit a processor's cache."""
    yield from np.array_split(scores, max(1, len(scores) // SLICE))


def false_claims(scores: Floats, procedure: Procedure, *, any_pair: bool = False) -> float:
    """Return the share of comparisons in which the best (or any) method is said to be above some other."""
    wrong = 0
    for part in slices(scores):
        claims = procedure(part)
        if not any_pair:
            claims = claims[np.arange(len(part)), part.mean(-1).argmax(1)][:, None]
        wrong += int(claims.any((1, 2)).sum())
    return wrong / len(scores)


def power(scores: Floats, procedure: Procedure) -> tuple[float, float]:
    """Return how often method 0 is found above another one, and above all of them."""
    found = np.concatenate([procedure(part)[:, 0, 1:] for part in slices(scores)])
    return float(found.mean()), float(found.all(1).mean())


def table_of_false_claims() -> list[str]:
    """Worst of five spreads, with and without an effect of the seed."""
    lines = [*header("methods", "seeds", *PROCEDURES, "fedkeel, all pairs")]
    for methods in METHODS:
        for seeds in SEEDS:
            drawn = [normal(methods, seeds, s, e) for s in spreads(methods).values() for e in (0.0, 10.0)]
            worst = [max(false_claims(one, procedure) for one in drawn) for procedure in PROCEDURES.values()]
            worst.append(max(false_claims(one, ours, any_pair=True) for one in drawn))
            lines.append(row(str(methods), str(seeds), *(f"{100 * rate:.1f} %" for rate in worst)))
    return lines


def table_of_power() -> list[str]:
    """One method leads all others, which are equal, by so many standard deviations of a run."""
    shown = {name: p for name, p in PROCEDURES.items() if p is not each_pair}
    lines = [*header("methods", "seeds", "lead", "spreads", *shown)]
    for methods in METHODS[1:]:
        for seeds in SEEDS:
            for name, spread in (
                ("equal", np.ones(methods)),
                ("the last wide", spreads(methods)["one wide"][::-1]),
            ):
                scores = normal(methods, seeds, spread, 10.0)
                scores[:, 0] += LEADS[seeds]
                found = [power(scores, procedure) for procedure in shown.values()]
                cells = [f"{100 * pair:.0f} % ({100 * all_:.0f} %)" for pair, all_ in found]
                lines.append(row(str(methods), str(seeds), f"{LEADS[seeds]:g} σ", name, *cells))
    return lines


def table_of_leads() -> list[str]:
    """The lead that is found in 80 % of comparisons with one other method."""
    seeds_shown = (2, 3, 4, 5, 7, 10, 20)
    lines = [*header("methods", *(f"{seeds} seeds" for seeds in seeds_shown))]
    for methods in METHODS:
        cells = []
        for seeds in seeds_shown:
            scores = normal(methods, seeds, np.ones(methods), 10.0)[:4_000]
            low, high = 0.0, 100.0
            while high - low > 0.05:
                middle = (low + high) / 2
                moved = scores.copy()
                moved[:, 0] += middle
                low, high = (low, middle) if power(moved, ours)[0] > 0.8 else (middle, high)
            cells.append(f"{high:.1f} σ")
        lines.append(row(str(methods), *cells))
    return lines


def table_of_other_errors() -> list[str]:
    """Errors that are not normal, or that methods share in other ways than a seed's effect."""
    lines = [*header("errors", *(f"{m} methods, {n} seeds" for m in (2, 3, 5, 12) for n in (3, 10)))]
    for name, draw in other_errors().items():
        cells = []
        for methods in (2, 3, 5, 12):
            for seeds in (3, 10):
                stream = np.random.default_rng([methods, seeds])
                rate = false_claims(draw(stream, methods, (COMPARISONS, methods, seeds)), ours)
                cells.append(f"{100 * rate:.1f} %")
        lines.append(row(name, *cells))
    return lines


def other_errors() -> dict[str, Callable[[np.random.Generator, int, tuple[int, ...]], Floats]]:
    """Return by name how scores of equal methods are drawn."""

    def skewed_and_wider(stream: np.random.Generator, methods: int, shape: tuple[int, ...]) -> Floats:
        scale: Floats = np.geomspace(1.0, 5.0, methods)[:, None]
        return scale * (1 - stream.standard_exponential(shape))

    def weighed(stream: np.random.Generator, methods: int, shape: tuple[int, ...]) -> Floats:
        weights = np.linspace(0.0, 1.0, methods)[:, None]
        return stream.standard_normal(shape) + 3 * weights * stream.standard_normal((shape[0], 1, shape[2]))

    def grouped(stream: np.random.Generator, methods: int, shape: tuple[int, ...]) -> Floats:
        common = stream.standard_normal((shape[0], 2, shape[2]))[:, np.arange(methods) % 2]
        return 5 * common + stream.standard_normal(shape)

    return {
        "heavy tails (t, 4 degrees of freedom)": lambda stream, methods, shape: stream.standard_t(4, shape),
        "skewed alike (exponential)": lambda stream, methods, shape: stream.standard_exponential(shape),
        "skewed downwards, wider from method to method (1:5)": skewed_and_wider,
        "a seed weighs more on each method than on the one before": weighed,
        "two groups of methods that err together, five times as much as alone": grouped,
    }


def header(*names: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [row(*names), "|" + "---|" * len(names)]


def row(*cells: str) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


TABLES = {
    "false claims": table_of_false_claims,
    "power": table_of_power,
    "leads": table_of_leads,
    "other errors": table_of_other_errors,
}


def main() -> None:
    """Put each table between its two marks on the page."""
    began = time.perf_counter()
    text = PAGE.read_text()
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, after = text.split(begin)[0], text.split(end)[1]
        text = before + begin + "\n".join(table()) + "\n" + end + after
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
