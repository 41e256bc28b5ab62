"""How splits allocate samples: client sizes, class pools, Dirichlet shares, and the repair of shortages."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


def by_client(owner: Ints, samples: Ints, clients: int) -> list[Ints]:
    """Turn (owner, sample) pairs into one sorted index array per client."""
    order = np.lexsort((samples, owner))
    ends = np.cumsum(np.bincount(owner, minlength=clients))
    return np.split(samples[order].astype(np.int64), ends[:-1])


def class_pools(which: Ints, rng: np.random.Generator) -> Ints:
    """All samples, class after class, shuffled within each class."""
    shuffled = rng.permutation(len(which))
    return shuffled[np.argsort(which[shuffled], kind="stable")]


def even(total: int, parts: int) -> Ints:
    """`total` as `parts` numbers that differ by at most one."""
    return total // parts + (np.arange(parts) < total % parts).astype(np.int64)


def client_sizes(total: int, clients: int, lognormal: float, rng: np.random.Generator) -> Ints:
    """Client sizes of at least one that sum to `total`: even, or lognormal."""
    if not lognormal:
        return even(total, clients)
    log_weights = lognormal * rng.standard_normal(clients)
    ends = np.cumsum(np.exp(log_weights - log_weights.max()))
    sizes = np.diff(np.rint(ends / ends[-1] * total).astype(np.int64), prepend=0)
    return raise_to_minimum(sizes, 1)


def raise_to_minimum(sizes: Ints, minimum: int) -> Ints:
    """Raise every size to `minimum`, and cut the largest to one common level to keep the total.

    If the k largest are cut, their level is (their sum - need) / k; the right k is the one that makes
    it highest (fewer would be cut too deep, more would include clients below the level).
    """
    raised = np.maximum(sizes, minimum)
    need = int((raised - sizes).sum())
    if need == 0:
        return sizes
    order = np.argsort(-sizes, kind="stable")
    left = np.cumsum(sizes[order]) - need
    k = int(np.argmax(left / np.arange(1, len(sizes) + 1))) + 1
    raised[order[:k]] = even(int(left[k - 1]), k)
    return raised


def repair(owner: Ints, clients: int, minimum: int, rng: np.random.Generator) -> Ints:
    """Give random samples of the largest clients to those with fewer than `minimum`."""
    before = np.bincount(owner, minlength=clients)
    after = raise_to_minimum(before, minimum)
    if after is before:
        return owner
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(before) - before, before)
    released = rng.permutation(order[nth >= after[owner[order]]])
    repaired = owner.copy()
    repaired[released] = np.repeat(np.arange(clients), np.maximum(after - before, 0))
    return repaired


def dirichlet_logits(alpha: float, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Rows of `alpha * log g` with g ~ Gamma(alpha): what a Dirichlet draw is the softmax of.

    Gamma(alpha) underflows to zero for a small alpha, and a row of zeros has no shares. Its
    logarithm does not: log g = log Gamma(alpha + 1) + log(u) / alpha, with u uniform. The factor
    alpha keeps even that in range; `normalise` divides by it after the largest is subtracted.
    """
    if alpha >= 1:
        return np.log(rng.standard_gamma(alpha, shape))
    return alpha * np.log(rng.standard_gamma(alpha + 1, shape)) + np.log1p(-rng.random(shape))


def normalise(logits: Floats, alpha: float) -> Floats:
    """Shares, one row per Dirichlet draw; the largest entry of a row has weight one before dividing."""
    with np.errstate(over="ignore"):  # a difference too large for a float is a share of zero
        weights = np.exp((logits - logits.max(axis=1, keepdims=True)) / min(alpha, 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


def draw_classes(shares: Floats, row: Ints, rng: np.random.Generator) -> Ints:
    """One class for each entry of `row`, drawn from that row of `shares`; never one with share 0."""
    ends = np.cumsum(shares, axis=1)
    ends /= ends[:, -1:]
    # All rows one after another are one rising sequence, so one search serves every draw. The factor
    # keeps a draw out of the next row when the row number takes the last bits of the sum.
    rising = (ends + np.arange(len(ends))[:, None]).ravel()
    at = row + rng.random(len(row)) * (1 - 1e-9)
    found: Ints = np.searchsorted(rising, at, side="right") - row * shares.shape[1]
    return found


def redraw_exhausted(
    owner: Ints, drawn: Ints, logits: Floats, *, alpha: float, count: Ints, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Shuffle the draws (an owner and a class each) into one queue that respects the pools' sizes.

    When a class runs out, the later draws of it (and only these: the others already follow the
    renormalised prior) are drawn again from the classes that are left. A class runs out once, so
    there are at most as many passes as classes.
    """
    order = rng.permutation(len(owner))
    owner, drawn = owner[order], drawn[order]
    open_logits = logits.copy()
    small = np.min_scalar_type(len(count))  # two bytes or fewer are sorted in linear time
    while True:
        queue = np.argsort(drawn.astype(small), kind="stable")
        used = np.bincount(drawn, minlength=len(count))
        over = np.flatnonzero(used > count)
        if over.size == 0:
            return owner, drawn
        starts = np.cumsum(used) - used
        refused = queue[starts[over] + count[over]]
        first = int(np.argmin(refused))
        gone = over[first]
        open_logits[:, gone] = -np.inf
        again = queue[starts[gone] + count[gone] : starts[gone] + used[gone]]
        shares = normalise(open_logits[owner[again]], alpha)
        drawn[again] = draw_classes(shares, np.arange(len(again)), rng)


def assign_classes(classes: int, per_client: int, clients: int, rng: np.random.Generator) -> Ints:
    """Assign different classes to each client from a shuffled list, and a new list when it is used up."""
    assigned = np.empty((clients, per_client), dtype=np.int64)
    rest: list[int] = []
    for i in range(clients):
        own, rest = rest[:per_client], rest[per_client:]
        if len(own) < per_client:
            shuffled = rng.permutation(classes).tolist()
            more = [c for c in shuffled if c not in own][: per_client - len(own)]
            rest = [c for c in shuffled if c not in more]
            own = own + more
        assigned[i] = own
    return assigned
