"""The interaction tensor (Rethinking §3.3, after Jiang et al. 2024): which model has learnt which feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkeel.common.errors import ConfigError

Array = NDArray[np.float64]
Entries = Literal["absolute", "signed"]
_TINY = 1e-300


class Interaction(NamedTuple):
    """The tensor Ω[model, point, cluster] and what follows from it.

    `clusters[m][k]` is the cluster of component k of model m. `frequency[f]` is the number of models with
    feature f, `histogram[c − 1]` the number of features that c models have.
    """

    omega: NDArray[np.bool_]
    clusters: NDArray[np.int64]

    @property
    def features(self) -> int:
        """Return the number of clusters."""
        return int(self.omega.shape[2])

    @property
    def has(self) -> NDArray[np.bool_]:
        """Return which model has which feature, in any point."""
        return np.asarray(self.omega.any(axis=1))

    @property
    def frequency(self) -> NDArray[np.int64]:
        """Return for each feature how many models have it."""
        return np.asarray(self.has.sum(axis=0))

    @property
    def histogram(self) -> list[int]:
        """Return how many features 1, 2, …, M models have."""
        counts = np.bincount(self.frequency, minlength=self.omega.shape[0] + 1)
        return [int(count) for count in counts[1:]]

    def shared(self, a: int, b: int) -> int:
        """Return how many features two models share."""
        return int((self.has[a] & self.has[b]).sum())


def interaction(
    features: Sequence[Any],
    *,
    components: int = 20,
    gamma_corr: float = 0.5,
    gamma_data: float | None = None,
    centre: bool = False,
    entries: Entries = "absolute",
) -> Interaction:
    """Return the tensor of models from their penultimate features, an array (points, width) each.

    Features are the top right singular vectors of a model's array (`centre=True`: of the centred one; the
    paper does not centre); v is the projection on them. In the order (model, component) a feature joins the
    first cluster that holds a member of another model with |ρ| > `gamma_corr`, else it opens one. A point
    contains a feature where |v| / max|v| exceeds `gamma_data`: by default the 90th percentile of all.
    `entries="signed"` takes v / max|v| in both places, the paper's words to the letter ("normalize by its
    ℓ∞-norm; if the entry exceeds a threshold"). The sign of a singular vector is arbitrary and the paper
    fixes none: here the entry of largest size counts as positive.
    """
    check_correlation(gamma_corr)
    check_entries(entries)
    projected = [_project(np.asarray(one, dtype=np.float64), components, centre) for one in features]
    clusters = _merge(projected, gamma_corr)
    weights = np.stack([_normalised(v, entries) for v in projected])
    bound = float(np.percentile(weights, 90)) if gamma_data is None else gamma_data
    contains = weights > bound
    models, points, _ = contains.shape
    omega = np.zeros((models, points, int(clusters.max()) + 1), dtype=bool)
    for m in range(models):
        for k, cluster in enumerate(clusters[m]):
            omega[m, :, cluster] |= contains[m, :, k]
    return Interaction(omega, clusters)


def _normalised(v: Array, entries: Entries) -> Array:
    """Return the entries over the largest size in their column, without or with their sign."""
    size = np.abs(v)
    scale = np.maximum(size.max(axis=0), _TINY)
    if entries == "absolute":
        return np.asarray(size / scale)
    largest = np.take_along_axis(v, size.argmax(axis=0)[None], axis=0)
    return np.asarray(np.where(largest < 0, -v, v) / scale)


def check_entries(entries: str) -> None:
    """Refuse what is no way of reading entries."""
    if entries not in ("absolute", "signed"):
        raise ConfigError(f"interaction: entries = {entries!r}: choose one of absolute, signed")


def check_correlation(gamma_corr: float) -> None:
    """Refuse what is no correlation."""
    if not 0 < gamma_corr < 1:
        raise ConfigError(f"interaction: gamma_corr = {gamma_corr}: give a number between 0 and 1")


def check_components(phi: Array, components: int) -> None:
    """Refuse more components than features can have."""
    most = min(phi.shape)
    if not 0 < components <= most:
        raise ConfigError(
            f"interaction: components = {components}, but the features span at most {most} directions "
            f"({phi.shape[0]} points of width {phi.shape[1]}): give 1 to {most}"
        )


def _project(phi: Array, components: int, centre: bool) -> Array:
    if centre:
        phi = phi - phi.mean(axis=0)
    check_components(phi, components)
    _, _, v = np.linalg.svd(phi, full_matrices=False)
    return np.asarray(phi @ v[:components].T)


def _merge(projected: Sequence[Array], gamma_corr: float) -> NDArray[np.int64]:
    """Cluster the features greedily in the order (model, component)."""
    count, width = len(projected), projected[0].shape[1]
    columns = np.concatenate([v - v.mean(axis=0) for v in projected], axis=1)
    columns = columns / np.maximum(np.linalg.norm(columns, axis=0), _TINY)
    alike = np.abs(columns.T @ columns) > gamma_corr
    model = np.repeat(np.arange(count), width)
    members: list[list[int]] = []
    found = np.empty(count * width, dtype=np.int64)
    for feature in range(count * width):
        others = (
            number
            for number, group in enumerate(members)
            if any(alike[feature, other] and model[other] != model[feature] for other in group)
        )
        cluster = next(others, len(members))
        if cluster == len(members):
            members.append([])
        members[cluster].append(feature)
        found[feature] = cluster
    return found.reshape(count, width)
