"""Which clients are replaced, and by what."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Literal, NamedTuple

import torch

from fedkeel.common.errors import ConfigError
from fedkeel.data.federation import Federation
from fedkeel.running.population import Population
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.streams import Stream

Replaced = Literal["client", "sample"]
_EARLY_DRAWS = 20  # clients that the first rounds should have drawn, for a choice among many


class ReplacedClient(NamedTuple):
    """A client that is replaced: the round in which it first takes part, and in how many it does."""

    client: int
    first_round: int
    participations: int


class Candidates(NamedTuple):
    """The clients that may be replaced, in the order of a draw.

    Each takes part within the first `drawn_by` rounds, and in at least `drawn_at_least` rounds in all.
    """

    drawn_by: int
    drawn_at_least: int
    clients: list[ReplacedClient]

    def first(self, pairs: int) -> list[ReplacedClient]:
        """Return as many as there are pairs of runs; refuse where there are too few."""
        if pairs > len(self.clients):
            raise ConfigError(
                f"stability: pairs = {pairs}, but {len(self.clients)} clients are drawn within the first "
                f"{self.drawn_by} rounds (drawn_by) and at least {self.drawn_at_least} times "
                "(drawn_at_least): ask for fewer pairs, a larger drawn_by or a smaller drawn_at_least"
            )
        return self.clients[:pairs]


def candidates(
    settings: RunSettings, drawn_by: int | None = None, drawn_at_least: int | None = None
) -> Candidates:
    """Return the clients whose replacement shows early and often, from the cohorts that the run will draw.

    A client that is replaced changes nothing before it is first drawn. By default it must be drawn within the
    first tenth of the rounds (within more where these draw fewer than 20 clients), and at least half as often
    as clients are on average, T·N/(2C) times.
    """
    rounds, cohort = settings.rounds, settings.cohort_size
    if drawn_by is None:
        drawn_by = min(rounds, max(math.ceil(rounds / 10), math.ceil(_EARLY_DRAWS / cohort)))
    if drawn_at_least is None:
        drawn_at_least = math.ceil(rounds * cohort / len(settings.federation) / 2)
    for name, value in (("drawn_by", drawn_by), ("drawn_at_least", drawn_at_least)):
        if not 1 <= value <= rounds:
            raise ConfigError(
                f"stability: {name} = {value}, but the run has {rounds} rounds: give 1 to {rounds}"
            )
    found = {
        one.client: one
        for one in participations(settings)
        if one.first_round < drawn_by and one.participations >= drawn_at_least
    }
    drawn = Stream(settings.seed).branch("stability").numpy().permutation(sorted(found))
    return Candidates(drawn_by, drawn_at_least, [found[int(client)] for client in drawn])


def participations(settings: RunSettings) -> list[ReplacedClient]:
    """Return each client that takes part, with its first round and the number of its rounds."""
    population = Population.of(settings)
    first: dict[int, int] = {}
    counts: Counter[int] = Counter()
    for round in range(settings.rounds):
        for client in population.draw(round):
            first.setdefault(client, round)
            counts[client] += 1
    return [ReplacedClient(client, round, counts[client]) for client, round in first.items()]


def with_replacement(
    federation: Federation, client: int, number: int, replaced: Replaced, seed: int
) -> Federation:
    """Return the federation with a client, or one of its samples, replaced by held-out data.

    The `number` of the pair says which of the held-out clients it comes from.
    """
    source = len(federation) + number % federation.held_out
    rows = [federation.rows(i) for i in range(len(federation.offsets) - 1)]
    if replaced == "client":
        rows[client] = rows[source]
    else:
        rng = Stream(seed).branch("stability", client).numpy()
        own = rows[client].clone()
        own[int(rng.integers(len(own)))] = rows[source][int(rng.integers(len(rows[source])))]
        rows[client] = own
    sizes = torch.tensor([len(own) for own in rows])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    return replace(federation, index=torch.cat(rows), offsets=offsets)
