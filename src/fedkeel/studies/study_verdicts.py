"""What came out of a study, in a sentence or two, from the numbers that it leaves in its directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from fedkeel.report.page.document import Tone, Verdict
from fedkeel.report.significance import mean_interval
from fedkeel.studies.constants_page import constant_text

_LEVEL = 0.95


def stability_verdict(found: Mapping[str, Mapping[str, Any]]) -> Verdict:
    """Say whose coupled runs end closest together, and by how much, with intervals over the pairs.

    Methods are compared pair by pair, where the same clients were replaced; the intervals hold together.
    """
    ranked = sorted(found.items(), key=lambda item: item[1]["mean"][-1])
    best, first = ranked[0]
    setting = (
        f"Runs that differ in one {first['replaced']}, after {_several(len(first['mean']) - 1, 'round')}, "
        f"{_several(len(first['clients']), 'pair')}"
    )
    if len(ranked) == 1:
        return Verdict(text=f"{setting}: {best} ends {_spread(first)} apart.")
    others = [(name, *_farther(one, first, 1 - (1 - _LEVEL) / (len(ranked) - 1))) for name, one in ranked[1:]]
    told = "; ".join(
        f"{name} {gap:.3g} farther"
        + (f" ({low:+.2g} to {high:+.2g})".replace("-", "−") if low is not None else "")
        for name, gap, low, high in others
    )
    settled = all(low is not None and low > 0 for _, _, low, _ in others)
    tone: Tone = "good" if settled else "unclear"
    end = "" if settled else " Whose end closest is not settled by these pairs."
    return Verdict(text=f"{setting}: {best} ends closest, {_spread(first)} apart; {told}.{end}", tone=tone)


def _spread(one: Mapping[str, Any]) -> str:
    return f"{one['mean'][-1]:.3g} (at most {one['largest'][-1]:.3g})"


def _farther(
    one: Mapping[str, Any], than: Mapping[str, Any], level: float
) -> tuple[float, float | None, float | None]:
    """Return how much farther apart runs end, with the interval over pairs of the same replaced clients."""
    replaced = [[client["client"] for client in study["clients"]] for study in (one, than)]
    gap = one["mean"][-1] - than["mean"][-1]
    if replaced[0] != replaced[1]:
        return gap, None, None
    gaps = [a[-1] - b[-1] for a, b in zip(one["curves"], than["curves"], strict=True)]
    interval = mean_interval(gaps, level, (-inf, inf))
    return (gap, None, None) if interval is None else (gap, *interval)


def interaction_verdict(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Verdict | None:
    """Say how many features of the global model local models keep at the last snapshot."""
    last = {name: seen[-1] for name, seen in found.items() if seen}
    if not last:
        return None
    ranked = sorted(last.items(), key=lambda item: -item[1]["local_current"])
    told = "; ".join(
        f"{name} {one['local_current']:.1f} of {one['features']} features" for name, one in ranked
    )
    rounds = " and ".join(str(round) for round in sorted({one["round"] for one in last.values()}))
    return Verdict(
        text=f"After round {rounds} a local model shares with the global one, on average: {told}. "
        "That is one run of each method, and no test.",
        tone="unclear" if len(last) > 1 else "",
    )


def robustness_verdict(found: Mapping[str, Any]) -> Verdict:
    """Say with which reducers each method holds out against every attack."""
    held_by = found["held_by"]
    methods = {
        method: [
            reducer
            for reducer in dict.fromkeys(line["reducer"] for line in found["lines"])
            if all(reducer in held[method] for held in held_by.values())
        ]
        for method in found["clean"]
    }
    told = "; ".join(f"{method} with {', '.join(held) or 'none'}" for method, held in methods.items())
    attacks = _several(len(held_by), "attack")
    tone: Tone = "good" if all(methods.values()) else "bad" if not any(methods.values()) else "unclear"
    return Verdict(
        text=f"What holds out against {'all ' * (len(held_by) > 1)}{attacks}, within "
        f"{100 * found['margin']:g} points over {_several(len(found['seeds']), 'seed')}: {told}.",
        tone=tone,
    )


def constants_verdict(found: Mapping[str, Any]) -> Verdict:
    """Say what the losses are like: how smooth, how noisy, how unlike clients are, how steep."""
    constants = found["constants"]

    def told(name: str) -> str:
        one = constants[name]
        ends = f" ({constant_text(one['low'])} to {constant_text(one['high'])})"
        return constant_text(one["value"]) + (ends if one["low"] != one["high"] else "")

    return Verdict(
        text=f"Along a pilot of {_several(found['pilot_rounds'], 'round')}: smoothness L = {told('L')}, "
        f"noise of minibatches σ_l² = {told('sigma_l2')}, unlikeness of clients σ_g² = {told('sigma_g2')}, "
        f"steepness τ1 = {told('tau1')}; in brackets the range of what was seen."
    )


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


VERDICTS: dict[str, Callable[[Any], Verdict | None]] = {
    "stability": stability_verdict,
    "interaction": interaction_verdict,
    "robustness": robustness_verdict,
    "constants": constants_verdict,
}
