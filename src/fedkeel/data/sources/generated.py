"""Data that needs no download: scikit-learn's digits, and FedDyn's synthetic logistic data."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from fedkeel.common.errors import DataError
from fedkeel.data.sources.dataset import Dataset
from fedkeel.tensors.streams import Stream


def digits() -> Dataset:
    """Return the 1,797 8×8 digits of scikit-learn as 64 numbers in [0, 1] each.

    Every fifth sample of each class, after a shuffle with seed 0, is test data (1,437 / 360).
    """
    x, y = _digits()
    order = np.random.default_rng(0).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    is_test = np.zeros(len(y), dtype=bool)
    is_test[order[::5]] = True
    images, labels = torch.from_numpy(x / 16).float(), torch.from_numpy(y).long()
    return Dataset(
        "digits",
        images[~is_test],
        labels[~is_test],
        test=(images[is_test], labels[is_test]),
        classes=10,
        class_names=tuple("0123456789"),
    )


@cache
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scikit-learn's numbers, read once: they are text, and take longer than a short run."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  a second to import, needed here only

    x, y = load_digits(return_X_y=True)
    return x, y


def synthetic(
    *,
    clients: int = 20,
    samples: int = 200,
    dimension: int = 30,
    classes: int = 5,
    gamma1: float | None = 0.0,
    gamma2: float | None = 0.0,
    lognormal: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """Return FedDyn's synthetic logistic data, one natural group per client.

    Client i labels x by argmax(W_i x + b_i). Entries of W_i and b_i are N(mu_i, 1) with
    mu_i ~ N(0, gamma1²); feature j of x is N(v_ij, j^-1.2) with v_ij ~ N(m_i, 1), m_i ~ N(0, gamma2²).
    gamma1=None gives all clients one labelling rule, gamma2=None one law of x with mean 0. Sizes are
    `samples` each, or lognormal around it. Where FedDyn tests on the training data, a fifth as many
    fresh samples of each client are the test set. Split it with `Natural()`.
    """
    if min(clients, samples, dimension, classes) < 1 or min(gamma1 or 0.0, gamma2 or 0.0, lognormal) < 0:
        raise DataError("synthetic: sizes must be at least 1 and gamma1, gamma2, lognormal not negative")
    rng = Stream(seed).branch("synthetic").numpy()
    sizes = np.maximum(1, (samples * np.exp(lognormal * rng.standard_normal(clients))).astype(np.int64))
    weights = rng.standard_normal((1 if gamma1 is None else clients, dimension + 1, classes))
    weights = weights + (gamma1 or 0.0) * rng.standard_normal((len(weights), 1, 1))
    means = rng.standard_normal((clients, dimension)) + (gamma2 or 0.0) * rng.standard_normal((clients, 1))
    if gamma2 is None:
        means = np.zeros_like(means)
    spread = np.arange(1, dimension + 1) ** -0.6  # the root of the variance j^-1.2

    def draw(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]:
        owner = np.repeat(np.arange(clients), counts)
        x = means[owner] + spread * rng.standard_normal((len(owner), dimension))
        rule = weights[owner if gamma1 is not None else np.zeros_like(owner)]
        y = (np.einsum("nd,ndc->nc", x, rule[:, :-1]) + rule[:, -1]).argmax(axis=1)
        return owner, torch.from_numpy(x).float(), torch.from_numpy(y)

    owner, x, y = draw(sizes)
    _, *test = draw(np.maximum(1, sizes // 5))
    names = tuple(f"client {i}" for i in range(clients))
    return Dataset(
        "synthetic", x, y, test=(test[0], test[1]), classes=classes, groups=owner, group_names=names
    )
