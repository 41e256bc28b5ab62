"""How much a run with private updates gives away: ε for a δ, by Google's dp-accounting.

With cohorts of a fixed size, two federations are neighbours where one client's data is replaced: the sum of
the uploads then changes by 2·clip at most. With Bernoulli sampling they are neighbours where one client
sends zeros instead of its uploads: the sum changes by clip at most. In both the number of clients is public
and the draw of cohorts secret. Rounds are composed by Rényi differential privacy, whose
orders are whole numbers here: those between them make the library's sums of Poisson samples slow, and are
worth something only where ε is far too large anyway.

Where clients keep a state (SCAFFOLD's c_i), what they send tells in which rounds they took part. With
Bernoulli sampling that says nothing about the others. In a cohort of a fixed size it does: who was not drawn
left a place to another. There the amplification by a secret draw is not proven for many rounds, and a weaker
bound is taken, which holds for those who know all cohorts too: a client is in a cohort by chance, q of the
rounds, and E[exp((α − 1)·loss)] over that chance is 1 − q + q·exp((α − 1)·ρ), ρ the Gaussian's divergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from fedkeel.common.errors import ConfigError

ORDERS = (*range(2, 65), 80, 96, 128, 256)
_ROUNDING = 1e-6  # by which a norm may exceed the bound in float32


class Mechanism(NamedTuple):
    """What a round does: noise in units of the clip, on a cohort of so many of the clients.

    `client_states` says that clients keep something from one round to the next.
    """

    noise: float
    clients: int
    cohort: int
    sampling: Literal["fixed", "bernoulli"] = "fixed"
    client_states: bool = False


def epsilon(
    *,
    noise: float,
    clients: int,
    cohort: int,
    rounds: int,
    delta: float,
    sampling: Literal["fixed", "bernoulli"] = "fixed",
    client_states: bool = False,
) -> float:
    """Return the ε of so many rounds for a δ; `client_states` where the method's clients keep something."""
    spent = divergences(Mechanism(noise, clients, cohort, sampling, client_states))
    return epsilon_of([rounds * one for one in spent], delta)


@cache
def divergences(mechanism: Mechanism) -> tuple[float, ...]:
    """Return the Rényi divergences of one round, one for each of `ORDERS`; those of rounds add up."""
    dp = _dp_accounting()
    noise, clients, cohort, sampling, client_states = mechanism
    noise /= 1 + _ROUNDING
    if sampling == "fixed":
        relation, gaussian = dp.NeighboringRelation.REPLACE_ONE, dp.GaussianDpEvent(noise / 2)
        known = _with_known_cohorts(_composed(dp, gaussian, relation), cohort / clients)
        if client_states:
            return known
        secret = _composed(dp, dp.SampledWithoutReplacementDpEvent(clients, cohort, gaussian), relation)
        return tuple(
            map(min, secret, known)
        )  # both hold; that of a secret draw is loose where noise is small
    event = dp.PoissonSampledDpEvent(cohort / clients, dp.GaussianDpEvent(noise))
    return _composed(dp, event, dp.NeighboringRelation.REPLACE_SPECIAL)


def epsilon_of(spent: Sequence[float], delta: float) -> float:
    """Return ε for a δ, from the divergences of all rounds so far."""
    found, _ = _dp_accounting().rdp.compute_epsilon(ORDERS, spent, delta)
    return float(found)


def _with_known_cohorts(plain: Sequence[float], q: float) -> tuple[float, ...]:
    """Return log(1 − q + q·exp((α − 1)·ρ))/(α − 1) for the divergences ρ, without overflow."""
    exponents = [(order - 1) * rho for order, rho in zip(ORDERS, plain, strict=True)]
    logs = [top + math.log(q + (1 - q) * math.exp(-top)) for top in exponents]
    return tuple(log / (order - 1) for order, log in zip(ORDERS, logs, strict=True))


def _composed(dp: Any, event: Any, relation: Any) -> tuple[float, ...]:
    """Return the divergences of an event."""
    accountant = dp.rdp.RdpAccountant(ORDERS, relation)
    accountant.compose(event)
    return tuple(accountant._rdp.tolist())


def _dp_accounting() -> Any:
    try:
        import dp_accounting  # noqa: PLC0415  seconds to import, and an extra
    except ImportError:
        raise ConfigError(
            'private(…) accounts for privacy with dp-accounting: pip install "fedkeel[private]"'
        ) from None
    return dp_accounting
