"""What a reader of the constants must know of this run, in sentences."""

from __future__ import annotations

from typing import NamedTuple

from fedkeel.core.work import Work

_ZERO = 0.01  # a loss below this share of the first is on its way to zero
_FALLING = 0.5
_KINKED = 2.0


class PilotFacts(NamedTuple):
    """What the notes are made of: loss and ‖∇f‖/√f by round, how many clients were measured, the work,
    whether any steps are safe, and how many times the L of pairs exceeds that of Hessians."""

    losses: tuple[tuple[int, float], ...]
    tau1: tuple[tuple[int, float], ...]
    measured: int
    clients: int
    work: Work
    promising: bool
    kinks: float


def notes(facts: PilotFacts, problem: str | None) -> tuple[str, ...]:
    """Return the notes of a study."""
    found = [*_about_tau1(facts)]
    if problem is not None:
        found.insert(0, f"The pilot diverged and was cut: {problem}. Constants are of the rounds before.")
    if facts.kinks > _KINKED:
        found.append(
            f"L from pairs is {facts.kinks:.3g} times L from Hessians: the loss bends more between models "
            "than at them (kinks, as ReLU's; then smaller steps raise L further). Limits with L are of these "
            "distances only."
        )
    if facts.measured < facts.clients:
        found.append(f"f is the mean of {facts.measured} of {facts.clients} clients, drawn by the seed.")
    if facts.work.weight_decay:
        decay = f"{facts.work.weight_decay:g}"
        found.append(f"Losses are without weight decay; it adds {decay} to L and keeps the loss above zero.")
    return tuple(found)


def _about_tau1(facts: PilotFacts) -> list[str]:
    first, best = facts.losses[0][1], min(loss for _, loss in facts.losses)
    values = [ratio for _, ratio in facts.tau1]
    half = max(1, len(values) // 2)
    falling = min(values[half:], default=values[0]) < _FALLING * min(values[:half])
    stays = best > _ZERO * first
    found = []
    if falling:
        head = f"τ1 fell from {values[0]:.3g} to {values[-1]:.3g} in {facts.losses[-1][0]} rounds"
        why = (
            f"the loss (now {best:.3g}) does not go to zero here, and there τ1 → 0"
            if stays
            else "the gradient vanishes faster than √f (cross-entropy's goes like f itself), so τ1 → 0"
        )
        found.append(f"{head}: {why}; the value is of these rounds only, Theorem 4.7 promises no further.")
    elif stays:
        found.append(
            f"The loss is still {best / first:.0%} of the first: if it does not go to zero, τ1 → 0 "
            "and Theorem 4.7 promises nothing in the long run."
        )
    if not facts.promising:
        found.append("No pair (a, b), (α, β) that holds on the samples gives Λ > 0 for any steps.")
    return found
