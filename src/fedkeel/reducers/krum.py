"""Krum (Blanchard et al. 2017): the upload that lies among the others, or the mean of several such."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from fedkeel.common.errors import ConfigError, TooFewClients
from fedkeel.common.frozen import Count, frozen
from fedkeel.reducers.norms import NormReducer, Per, weighted_mean


def _count_or_share(given: Any) -> Any:
    whole = isinstance(given, int) and not isinstance(given, bool) and given >= 0
    if not whole and not (isinstance(given, float) and 0 <= given < 0.5):
        raise ConfigError(
            f"Krum: hostile = {given!r}: give how many of a cohort may be hostile: a count (2) or a fraction "
            "below one half (0.2)"
        )
    return given


Hostile = Annotated[int | float, BeforeValidator(_count_or_share)]


@frozen
class Krum(NormReducer):
    """The upload with the smallest sum of squared distances to its n − f − 2 nearest others.

    `hostile` is f, how many of a round's n clients may be hostile, or their fraction; n must be at least
    2·f + 3. Every client has one vote, whatever its weight.
    """

    hostile: Hostile = 0.2
    per: Per = "record"

    def check(self, clients: int) -> None:
        """Refuse cohorts that are too small."""
        if problem := _too_few(self.hostile, clients):
            raise ConfigError(f"reducer = {self!r}: {problem}: enlarge the cohort, or lower hostile")

    def reduce_parts(self, parts: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
        """Return the parts of the client with the best score, the first of several."""
        best = int(scores(parts, self.hostile).argmin())
        return [part[best].clone() for part in parts]


@frozen
class MultiKrum(NormReducer):
    """The weighted mean of the `keep` uploads with the best scores of Krum; by default of n − f."""

    hostile: Hostile = 0.2
    keep: Count | None = None
    per: Per = "record"

    def check(self, clients: int) -> None:
        """Refuse cohorts that are too small, and to keep more than are there."""
        if problem := _too_few(self.hostile, clients):
            raise ConfigError(f"reducer = {self!r}: {problem}: enlarge the cohort, or lower hostile")
        most = clients - count_hostile(self.hostile, clients)
        if self.keep is not None and self.keep > most:
            raise ConfigError(
                f"reducer = {self!r}: keep = {self.keep} of a cohort of {clients}, of which "
                f"{clients - most} may be hostile: give 1 to {most}"
            )

    def reduce_parts(self, parts: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
        """Average the best."""
        clients = len(weights)
        keep = min(self.keep or clients, clients - count_hostile(self.hostile, clients))
        best = scores(parts, self.hostile).argsort(stable=True)[:keep].sort().values.cpu()
        return weighted_mean([part[best] for part in parts], weights[best])


def count_hostile(hostile: float, clients: int) -> int:
    """Return f for a cohort of that size."""
    return math.ceil(hostile * clients - 1e-9) if isinstance(hostile, float) else hostile


def scores(parts: Sequence[Tensor], hostile: float) -> Tensor:
    """Return each client's sum of squared distances to its nearest others."""
    clients = len(parts[0])
    if problem := _too_few(hostile, clients):
        raise TooFewClients(f"Krum: {problem} in this round: enlarge the cohort, or lower hostile")
    squares = sum(
        torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist").square()
        for wide in (part.double() for part in parts)
    )
    assert isinstance(squares, Tensor)
    squares = torch.where(torch.isfinite(squares), squares, torch.inf)
    squares.fill_diagonal_(torch.inf)  # a client is none of its own neighbours
    nearest = squares.sort(dim=1).values[:, : clients - count_hostile(hostile, clients) - 2]
    return nearest.sum(1)


def _too_few(hostile: float, clients: int) -> str | None:
    """Say how many clients Krum needs where there are fewer."""
    f = count_hostile(hostile, clients)
    if clients >= 2 * f + 3:
        return None
    return f"{clients} clients, of which {f} may be hostile: it needs at least 2·{f} + 3 = {2 * f + 3}"
