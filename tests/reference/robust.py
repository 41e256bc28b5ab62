"""Robust rules and attacks in plain NumPy, one client after another, written from their definitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]
FINE = 20  # copies per unit of weight: trimmed shares of hundredths of small cohorts are whole copies


def repeated(values: Array, weights: list[int], times: int = 1) -> Array:
    """Return a client of weight w as w clients."""
    return np.repeat(values, np.array(weights) * times, axis=0)


def median(values: Array, weights: list[int]) -> Array:
    return np.median(repeated(values, weights), axis=0)


def trimmed_mean(values: Array, weights: list[int], share: float) -> Array:
    copies = np.sort(repeated(values, weights, FINE), axis=0)
    cut = round(share * len(copies))
    assert abs(cut - share * len(copies)) < 1e-9, "choose a share that cuts whole copies"
    return copies[cut : len(copies) - cut].mean(axis=0)


def norm_clip(values: Array, weights: list[int], norm: float | None) -> Array:
    norms = [float(np.sqrt((row**2).sum())) for row in values]
    bound = float(np.median(np.repeat(norms, weights))) if norm is None else norm
    clipped = [row * min(1.0, bound / length) for row, length in zip(values, norms, strict=True)]
    return np.average(clipped, axis=0, weights=weights)


def krum_scores(values: Array, hostile: int) -> list[float]:
    scores = []
    for i, row in enumerate(values):
        squares = sorted(float(((row - other) ** 2).sum()) for j, other in enumerate(values) if j != i)
        scores.append(sum(squares[: len(values) - hostile - 2]))
    return scores


def krum(values: Array, hostile: int) -> Array:
    return values[int(np.argmin(krum_scores(values, hostile)))]


def multi_krum(values: Array, weights: list[int], hostile: int, keep: int) -> Array:
    best = np.argsort(krum_scores(values, hostile), kind="stable")[:keep]
    return np.average(values[best], axis=0, weights=np.array(weights)[best])


def geometric_median(values: Array, weights: list[int]) -> Array:
    """Return the minimiser that a general optimiser finds: by gradients where there are many coordinates."""

    def away(z: Array) -> Array:
        return np.sqrt(((values - z) ** 2).sum(axis=1))

    def objective(z: Array) -> float:
        return float((np.array(weights) * away(z)).sum())

    def gradient(z: Array) -> Array:
        return ((z - values) * (np.array(weights) / away(z))[:, None]).sum(axis=0)

    start = np.median(repeated(values, weights), axis=0)
    if values.shape[1] > 10:
        return minimize(objective, start, jac=gradient, method="BFGS", options={"gtol": 1e-12}).x
    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000}
    return minimize(objective, start, method="Nelder-Mead", options=options).x
