"""All pairs of methods compared at once: at most 5 % of comparisons make any false claim "A is above B".

The seeds of a comparison are shared by its methods, so scores are compared as differences within a seed.
Which method is best is seen from the data, so every pair counts. A pair's statistic is its mean difference
over a standard error; a claim is made where it exceeds what the *largest* statistic of all pairs exceeds in
5 % of comparisons of equal methods (single-step max-T), so the intervals hold together, too.

Three seeds say little about a pair's own spread, and methods differ in spread, so a common one misleads. The
variance of a pair's differences is therefore the mean of three estimates of it:

- from the pair's own differences (right for every pair, few degrees of freedom),
- the sum of both methods' own variances, found from all pairs (Grubbs 1948),
- the mean over all pairs (many degrees of freedom, right where methods spread alike).

How large the largest statistic becomes by chance depends on how the methods' spreads differ, which is not
known: the least favourable of several patterns counts, found by simulation with fixed random numbers. With
two methods all this is Student's paired t. `docs/statistics.md` has the measured false claims and the power.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

Floats = NDArray[np.float64]

DRAWS = 10_000
POWER = 0.8  # chance to find the present gap with the number of seeds that is asked for
_ROUGH_DRAWS = 2_000
_MANY_SEEDS = 20  # the critical value hardly falls beyond
_TINY = 1e-12  # scores are between 0 and 1: gaps below are rounding


class PairwiseComparison(NamedTuple):
    """Every method against every other, as matrices: how far row is above column.

    `half` is half the width of the simultaneous intervals; `p` the adjusted p-values; `variance` that of one
    seed's difference.
    """

    gap: Floats
    half: Floats
    p: Floats
    variance: Floats


def compare_pairs(scores: Floats, level: float = 0.95) -> PairwiseComparison:
    """Compare methods by their scores (methods, seeds); needs two methods and two seeds."""
    methods, seeds = scores.shape
    variance = pair_variances(scores)
    error = np.sqrt(variance / seeds)
    found = pair_statistics(scores)
    return PairwiseComparison(
        gap=_gaps(scores),
        half=critical_value(methods, seeds, level) * error,
        p=adjusted_p(found, methods, seeds),
        variance=variance,
    )


def mean_interval(
    scores: Sequence[float], level: float = 0.95, within: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, float] | None:
    """Return Student's interval for the mean of scores that lie `within` bounds; None below two seeds."""
    if len(scores) < 2:
        return None
    mean, error = float(np.mean(scores)), float(np.std(scores, ddof=1)) / np.sqrt(len(scores))
    half = float(stdtrit(len(scores) - 1, (1 + level) / 2) * error)
    return max(within[0], mean - half), min(within[1], mean + half)


def pair_statistics(scores: Floats) -> Floats:
    """Return |mean difference| / standard error of every pair; scores are (…, methods, seeds)."""
    gap, error = np.abs(_gaps(scores)), np.sqrt(pair_variances(scores) / scores.shape[-1])
    found: Floats = np.divide(gap, error, out=np.where(gap > 0, np.inf, 0.0), where=error > 0)
    return found


def pair_variances(scores: Floats) -> Floats:
    """Return the variance of one seed's difference for every pair: the mean of three estimates."""
    methods, seeds = scores.shape[-2:]
    # what all methods share of a seed goes first: it cancels in every difference
    left = scores - scores.mean(-2, keepdims=True)
    left = left - left.mean(-1, keepdims=True)
    products = left @ left.swapaxes(-1, -2) / (seeds - 1)
    own = np.diagonal(products, axis1=-2, axis2=-1)
    paired: Floats = np.maximum(own[..., :, None] + own[..., None, :] - 2 * products, 0.0)
    if methods == 2:
        return paired
    total = paired.sum((-1, -2))[..., None] / 2
    single = np.maximum((paired.sum(-1) - total / (methods - 1)) / (methods - 2), 0.0)
    summed = single[..., :, None] + single[..., None, :]
    common = 2 * total[..., None] / (methods * (methods - 1))
    mean: Floats = (paired + summed + common) / 3
    return mean


def critical_value(methods: int, seeds: int, level: float = 0.95, draws: int = DRAWS) -> float:
    """Return what a pair's statistic must exceed for a claim."""
    if methods == 2:
        return float(stdtrit(seeds - 1, (1 + level) / 2))
    allowed = int(np.searchsorted(_p_by_count(draws), 1 - level + 1e-12)) - 1  # draws that may lie above
    return float(null_maxima(methods, seeds, draws)[:, -1 - allowed].max())


def adjusted_p(statistics: Floats, methods: int, seeds: int, draws: int = DRAWS) -> Floats:
    """Return how often, among equal methods, the largest of all pairs' statistics comes to these values.

    A standard error of the simulation is added, so that its chance does not raise the rate of false claims.
    """
    if methods == 2:
        two_sided: Floats = 2 * stdtr(seeds - 1, -statistics)
        return two_sided
    above = [draws - np.searchsorted(maxima, statistics) for maxima in null_maxima(methods, seeds, draws)]
    p: Floats = _p_by_count(draws)[np.max(above, axis=0)]
    return p


def seeds_needed(gap: float, variance: float, methods: int, level: float, most: int) -> int | None:
    """Return how many seeds find a gap with probability `POWER`; None for more than `most`."""

    def enough(seeds: int) -> bool:
        critical = critical_value(methods, min(seeds, _MANY_SEEDS), level, _ROUGH_DRAWS)
        return bool(gap * np.sqrt(seeds) >= (critical + ndtri(POWER)) * np.sqrt(variance))

    low, high = 2, most
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


@lru_cache(maxsize=4)
def _p_by_count(draws: int) -> Floats:
    """Return the p-value where 0, 1, 2 … draws of the simulation are as large."""
    share = (1 + np.arange(draws + 1)) / (1 + draws)
    return np.minimum(share + np.sqrt(share * (1 - share) / draws), 1.0)


@lru_cache(maxsize=64)
def null_maxima(methods: int, seeds: int, draws: int) -> Floats:
    """Return the largest statistics of comparisons of equal methods, sorted: a line per pattern of errors."""
    noise = np.random.default_rng(0).standard_normal((draws, methods + 1, seeds))
    return np.sort([largest_statistics(pattern @ noise) for pattern in error_patterns(methods)], axis=1)


def error_patterns(methods: int) -> list[Floats]:
    """Return how the errors of equal methods may be made of independent ones: (methods, methods + 1) weights.

    All alike; one, two, half or all but one of them wider, five times or ten thousand times; two groups of
    methods with one error for each group, equal in size or one against the rest; an effect of the seed that
    weighs more on each method than on the one before.
    """
    alike = np.eye(methods, methods + 1)
    index = np.arange(methods)
    found = [alike]
    for wide in sorted({1, 2, methods // 2, methods - 1} - {0, methods}):
        found += [alike * np.where(index < wide, 1.0, 1.0 / ratio)[:, None] for ratio in (5.0, 1e4)]
    found += [np.eye(methods + 1)[group] for group in (index % 2, np.minimum(index, 1))]
    growing = alike.copy()
    growing[:, -1] = np.linspace(0.0, 3.0, methods)
    return [*found, growing]


def largest_statistics(scores: Floats) -> Floats:
    """Return the largest statistic of each comparison; in slices that fit a processor's cache."""
    slices = np.array_split(scores, max(1, scores.size // 20_000))
    return np.concatenate([pair_statistics(part).max((-1, -2)) for part in slices])


def _gaps(scores: Floats) -> Floats:
    means = scores.mean(-1)
    gaps: Floats = means[..., :, None] - means[..., None, :]
    return np.where(np.abs(gaps) < _TINY, 0.0, gaps)
