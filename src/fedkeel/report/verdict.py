"""Who won, by how much, and whether the seeds can tell.

A method with a diverged seed is not ranked: the mean of the seeds that survived would flatter it. The others
are compared on the seeds that all of them finished, every pair at once (`significance.py`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError
from fedkeel.report.measures import FINAL, Measure
from fedkeel.report.ranking import Difference, Ranked
from fedkeel.report.sentence import MOST_SEEDS, write_sentence
from fedkeel.report.tables import Trial, by_method, is_unfinished, score, why_diverged


class ComparisonVerdict(NamedTuple):
    """A sentence, and the numbers it was made of. The winner has the best mean score of those ranked.

    `seeds` counts those that all ranked methods finished. `differences` are the winner's, in the order of the
    ranking.
    """

    sentence: str
    winner: str | None
    score: float | None
    measure: str
    seeds: int
    ranking: list[Ranked]
    differences: list[Difference]
    level: float

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        return {
            **self._asdict(),
            "ranking": [method._asdict() for method in self.ranking],
            "differences": [{**one._asdict(), "resolved": one.resolved} for one in self.differences],
        }


def no_verdict(why: str, measure: str = str(FINAL)) -> ComparisonVerdict:
    """Return the verdict on runs that cannot be compared."""
    return ComparisonVerdict(why, None, None, measure, 0, [], [], 0.95)


def verdict_of(table: Mapping[str, Any]) -> ComparisonVerdict:
    """Return a verdict from what `as_dict` gave."""
    ranking = [Ranked(**one) for one in table["ranking"]]
    leads = [{key: part for key, part in one.items() if key != "resolved"} for one in table["differences"]]
    return ComparisonVerdict(
        **{**table, "ranking": ranking, "differences": [Difference(**one) for one in leads]}
    )


def find_verdict(trials: Sequence[Trial], measure: Measure = FINAL, level: float = 0.95) -> ComparisonVerdict:
    """Rank the methods by a measure and compare the best with every other.

    Among methods without a difference, at most 1 − `level` of verdicts resolve any.
    """
    if not 0.5 <= level <= 0.99:
        raise ConfigError(f"level = {level!r}: give the intervals' probability, between 0.5 and 0.99")
    groups = by_method(trials)
    scores = {method: _scores(group, measure) for method, group in groups.items()}
    ranked = {method: found for method, found in scores.items() if found}
    shared = sorted(set.intersection(*map(set, ranked.values()))) if ranked else []
    means = {
        method: statistics.fmean([found[seed] for seed in shared] or found.values())
        for method, found in ranked.items()
    }
    order = sorted(means, key=lambda method: -measure.sign * means[method])
    ranking = [_ranked(method, groups[method], order, means) for method in order]
    ranking += [
        _ranked(method, group, order, means) for method, group in groups.items() if method not in means
    ]
    table = [[measure.sign * ranked[method][seed] for seed in shared] for method in order]
    leads = {method: measure.sign * mean for method, mean in means.items()}
    differences = _differences(order, leads, table, level)
    return ComparisonVerdict(
        sentence=write_sentence(ranking, differences, measure, level),
        winner=order[0] if order else None,
        score=means[order[0]] if order else None,
        measure=str(measure),
        seeds=len(shared),
        ranking=ranking,
        differences=differences,
        level=level,
    )


def _scores(group: Sequence[Trial], measure: Measure) -> dict[int, float]:
    """Return a method's scores by seed; none where a seed diverged."""
    if any(why_diverged(trial) for trial in group):
        return {}
    return {trial.seed: found for trial in group if (found := score(trial, measure)) is not None}


def _ranked(method: str, group: Sequence[Trial], order: Sequence[str], means: Mapping[str, float]) -> Ranked:
    return Ranked(
        method,
        rank=order.index(method) + 1 if method in means else None,
        score=means.get(method),
        seeds=len(group),
        diverged=sum(why_diverged(trial) is not None for trial in group),
        unfinished=sum(map(is_unfinished, group)),
    )


def _differences(
    order: Sequence[str], means: Mapping[str, float], table: Sequence[Sequence[float]], level: float
) -> list[Difference]:
    """Compare the first method with the others; `table` has their scores in that order, more being better."""
    seeds = len(table[0]) if table else 0
    if seeds < 2:
        gaps = [(other, means[order[0]] - means[other]) for other in order[1:]]
        return [Difference(other, gap, None, None, None, seeds, None) for other, gap in gaps]
    if len(order) < 2:
        return []
    import numpy as np  # noqa: PLC0415  heavy

    from fedkeel.report.significance import compare_pairs, seeds_needed  # noqa: PLC0415  heavy

    found = compare_pairs(np.array(table), level)
    differences = []
    for index, other in enumerate(order[1:], start=1):
        gap, half, variance = (float(part[0, index]) for part in (found.gap, found.half, found.variance))
        needed = None if gap > half else seeds_needed(gap, variance, len(order), level, MOST_SEEDS)
        p = float(found.p[0, index])
        differences.append(Difference(other, gap, gap - half, gap + half, p, seeds, needed))
    return differences
