"""Whether a claim holds: in the paper's own numbers, and in our runs, with intervals over the seeds.

Our runs share their seeds, so a contrast is computed within each seed and its mean has Student's interval. A
claim holds where every contrast's 95 % interval lies above its threshold: that all do by chance is at most as
likely as that one does. Where some of its rows or columns were not run it is not resolved. It does not hold
where some contrast's interval lies below, at a level that allows for picking the worst of them (Bonferroni).
All else is not resolved: more seeds may tell. Where a similarity number that decides the claim is not the
paper's, what it hangs on is not printed, or a treated method diverges without the treatment too, our runs are
about something else: not comparable here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from scipy.special import stdtrit

from fedkeel.papers.recipes.claims import CellKey, Claim, Contrast
from fedkeel.papers.recipes.recipe import Column, Recipe, RecipeScale
from fedkeel.papers.reproduce.reading import CellResult, Rule, Score, oriented, shown_number
from fedkeel.papers.reproduce.similarity import decisive, not_comparable, why_decisive

Finding = Literal["holds", "does not hold", "not resolved", "not comparable here", "not run", "not printed"]
HOLDS, FAILS, OPEN = "holds", "does not hold", "not resolved"
_LEVEL = 0.95
_ROUNDING = 1e-9


class ContrastFinding(NamedTuple):
    """A contrast over the seeds: its mean, the ends of its interval, and what follows."""

    contrast: Contrast
    mean: float
    low: float
    high: float
    seeds: int
    finding: Finding


class JudgedClaim(NamedTuple):
    """A claim, what the paper's numbers and our runs say of it, why, and what decides it."""

    claim: Claim
    in_paper: Finding
    finding: Finding
    why: str
    decided_by: tuple[str, ...]
    because: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "claim": self.claim.text,
            "paper": self.in_paper,
            "ours": self.finding,
            "why": self.why,
            "decided_by": list(self.decided_by),
            "because": self.because,
        }


def judge_in_paper(claim: Claim, recipe: Recipe) -> Finding:
    """Tell what a claim is worth in the numbers that the paper prints."""
    signs = {column.heading: oriented(column) for column in recipe.columns}
    printed = {CellKey(*key): Score(number.value, number.beyond) for key, number in recipe.printed.items()}
    printed = {key: Score(math.inf, True) if score.value is None else score for key, score in printed.items()}
    found: list[Finding] = []
    for contrasts in claim.alternatives(set(printed)):
        bounds = [(one, *_bounds(one, printed, signs)) for one in contrasts]
        if not bounds:
            return "not printed"
        if all(low > one.above - _ROUNDING * (one.above < 0) for one, low, _ in bounds):
            return "holds"
        fails = any(high <= one.above + _ROUNDING for one, _, high in bounds)
        found.append("does not hold" if fails else "not resolved")
    return "not resolved" if OPEN in found else "does not hold"


def judge(
    claim: Claim,
    recipe: Recipe,
    scale: RecipeScale,
    columns: Sequence[Column],
    cells: Mapping[CellKey, CellResult],
) -> JudgedClaim:
    """Judge a claim by our runs of a scale."""
    finding, why = _judged(claim, recipe, scale, columns, cells)
    in_paper = judge_in_paper(claim, recipe)
    return JudgedClaim(claim, in_paper, finding, why, decisive(claim, recipe), why_decisive(claim, recipe))


def _judged(
    claim: Claim,
    recipe: Recipe,
    scale: RecipeScale,
    columns: Sequence[Column],
    cells: Mapping[CellKey, CellResult],
) -> tuple[Finding, str]:
    signs = {column.heading: oriented(column) for column in columns}
    there = {key for key, cell in cells.items() if cell.scores}
    alternatives = claim.alternatives(there)
    if not any(alternatives):
        return "not run", "none of its cells was run"
    contrasts = [contrast for some in alternatives for contrast in some]
    other = not_comparable(claim, recipe, scale, columns, contrasts)
    if other is not None:
        return "not comparable here", other
    baseline = next(filter(None, (_without_baseline(claim, one, cells) for one in contrasts)), None)
    kept = [[one for one in some if not _without_baseline(claim, one, cells)] for some in alternatives]
    tests = sum(map(len, alternatives))
    found = [[_find(one, cells, signs, tests, len(alternatives)) for one in some] for some in kept]
    findings = [_together(some) for some in found]
    if baseline is not None and not all(one == FAILS for one in findings):
        return "not comparable here", baseline
    if HOLDS in findings:
        best = found[findings.index("holds")]
        shown, left_out = _shown(_tightest(best), cells, len(best)), _not_run(claim, recipe, there)
        return ("not resolved", f"{left_out}; {shown}") if left_out else ("holds", shown)
    if all(one == FAILS for one in findings):
        some = max(found, key=lambda group: min(one.mean - one.contrast.above for one in group))
        worst = min(some, key=lambda one: one.high - one.contrast.above)
        return "does not hold", _shown(worst, cells, tests)
    near = found[findings.index("not resolved")]
    return "not resolved", _shown(_tightest(near), cells, len(near))


def _not_run(claim: Claim, recipe: Recipe, there: set[CellKey]) -> str:
    """Return what of a claim that holds was not run, in words; empty where all of it was.

    A claim with alternatives (a peak somewhere) is about the rows that there are, and about all its columns.
    """
    whole = {CellKey(row, one.heading) for one in recipe.columns for row in recipe.setups[one.setup].lines}
    alternatives = claim.alternatives(whole)
    headings = {cell.heading for some in alternatives for contrast in some for cell in contrast.cells}
    run = headings & {cell.heading for cell in there}
    told = []
    if len(alternatives) == 1:
        comparisons = len(alternatives[0])
        held = sum(there.issuperset(contrast.cells) for contrast in alternatives[0])
        if held < comparisons:
            told.append(f"holds for {held} of {comparisons} comparisons, the others were not run")
    if run < headings:
        told.append(f"{len(run)} of {len(headings)} columns were run")
    return "; ".join(told)


def _without_baseline(claim: Claim, contrast: Contrast, cells: Mapping[CellKey, CellResult]) -> str | None:
    """Return why a contrast says nothing of a treatment: a run diverges with it, and without it too."""
    for cell in contrast.cells:
        other = cells.get(claim.baseline(cell) or cell)
        if other is None or other.key == cell or not _diverged(cells[cell]):
            continue
        if _diverged(other):
            many = f"{_diverged(other)} of {len(other.scores)} seeds"
            return f"{cell.row} diverges without the treatment too ({other.key.heading}: {many})"
    return None


def _diverged(cell: CellResult) -> int:
    return sum(score.diverged for score in cell.scores.values())


def _together(found: Sequence[ContrastFinding]) -> Finding:
    kinds = {one.finding for one in found}
    return "does not hold" if FAILS in kinds else "holds" if kinds == {HOLDS} else "not resolved"


def _tightest(found: Sequence[ContrastFinding]) -> ContrastFinding:
    """Return the contrast that is nearest to failing: one that is not resolved before one that holds."""
    return min(found, key=lambda one: (one.finding == HOLDS, one.low - one.contrast.above))


def _find(
    contrast: Contrast, cells: Mapping[CellKey, CellResult], signs: Mapping[str, int], tests: int, ways: int
) -> ContrastFinding:
    """Judge one contrast; `tests` are all of the claim's, `ways` its alternatives, one of which is enough."""
    seeds = sorted(set.intersection(*(set(cells[key].scores) for key in contrast.cells)))
    bounds = [_bounds(contrast, {key: cells[key].scores[s] for key in contrast.cells}, signs) for s in seeds]
    lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
    above = contrast.above
    low = _end([*lows], -1, 1 - (1 - _LEVEL) / ways)
    high = _end([*highs], 1, 1 - (1 - _LEVEL) / tests)
    finding: Finding = "holds" if low > above else "does not hold" if high < above else "not resolved"
    return ContrastFinding(contrast, _middle(bounds), low, high, len(seeds), finding)


def _middle(bounds: Sequence[tuple[float, float]]) -> float:
    """Return the mean over seeds; NaN where there is none, as when one seed is at −∞ and another at ∞."""
    each = [(low + high) / 2 if math.isfinite(low) and math.isfinite(high) else low for low, high in bounds]
    return sum(each) / len(each) if each else math.nan  # statistics.fmean raises where infinities meet


def _end(values: list[float], side: int, level: float) -> float:
    """Return the lower (side −1) or upper end of the interval for a mean; infinite where unknown."""
    if any(math.isinf(value) for value in values):
        same = values[0] if len(set(values)) == 1 else None
        return same if same is not None else side * math.inf
    if len(values) < 2:
        return side * math.inf
    error = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) + side * float(stdtrit(len(values) - 1, (1 + level) / 2)) * error


def _bounds(
    contrast: Contrast, scores: Mapping[CellKey, Score], signs: Mapping[str, int]
) -> tuple[float, float]:
    """Return between which numbers a contrast lies in one seed, or in the paper."""
    low = high = 0.0
    for weight, key in contrast.terms:
        sign = signs[key.heading]
        least, most = _range(scores[key], sign)
        if not contrast.oriented:
            least, most = sorted((sign * least, sign * most))
        ends = sorted((weight * least, weight * most))
        low, high = low + ends[0], high + ends[1]
    return (-math.inf, math.inf) if math.isnan(low) or math.isnan(high) else (low, high)


def _range(score: Score, sign: int) -> tuple[float, float]:
    """Return between which numbers a score lies, more being better."""
    if score.value is None:
        return -math.inf, -math.inf
    if not score.beyond:
        return sign * score.value, sign * score.value
    return (score.value, math.inf) if sign > 0 else (-math.inf, -score.value)


def _shown(found: ContrastFinding, cells: Mapping[CellKey, CellResult], count: int) -> str:
    """Return a contrast with its interval, as the reason of a verdict, with the signs of the table."""
    contrast, rule = found.contrast, cells[found.contrast.cells[0]].rule
    flip = -1 if contrast.oriented and rule.sign < 0 else 1
    flip = -1 if not contrast.oriented and contrast.terms[0][0] < 0 else flip
    name = ", ".join(contrast.cells[0]) if len(contrast.terms) == 1 else str(contrast)
    diverged = [cells[cell] for cell in contrast.cells if _diverged(cells[cell])]
    if diverged:
        shown = (f"{cell.key.row}: {_diverged(cell)} of {len(cell.scores)}" for cell in diverged)
        return f"diverged: {', '.join(dict.fromkeys(shown))} seeds, which is worse than any number"
    which = "the nearest to failing" if found.finding == HOLDS else "one"
    among = f"; {which} of {count}" if count > 1 else ""
    number = _number(flip * found.mean, rule)
    if found.seeds < 2:
        return f"{name}: {number} in one seed, which has no interval{among}"
    ends = sorted((flip * found.low, flip * found.high))
    limit = flip * contrast.above
    side = "above" if flip > 0 else "below"
    against = f", to be {side} {limit:g}" if contrast.above or len(contrast.terms) == 1 else ""
    return f"{name}: {number} ({_number(ends[0], rule)} to {_number(ends[1], rule)}{against}){among}"


def _number(value: float, rule: Rule) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return "unknown" if math.isnan(value) else shown_number(value, rule, sign=True)
