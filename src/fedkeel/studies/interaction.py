"""The interaction tensor (Rethinking §3.3, after Jiang et al. 2024): which model has learnt which feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Batch, Federation
from fedkeel.errors import ConfigError
from fedkeel.methods import Stages
from fedkeel.oracle import Oracle
from fedkeel.probes import Divergence
from fedkeel.runner import open_session
from fedkeel.task import Task, watched
from fedkeel.training import Session
from fedkeel.vector import Vector
from fedkeel.work import Work

Array = NDArray[np.float64]
GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


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
) -> Interaction:
    """Return the tensor of models from their penultimate features, an array (points, width) each.

    Features are the top right singular vectors of a model's array (`centre=True`: of the centred one; the
    paper does not centre); v is the projection on them. In the order (model, component) a feature joins the
    first cluster that holds a member of another model with |ρ| > `gamma_corr`, else it opens one. A point
    contains a feature where |v| / max|v| exceeds `gamma_data`: by default the 90th percentile of all.
    """
    if not 0 < gamma_corr < 1:
        raise ConfigError(f"interaction: gamma_corr = {gamma_corr}: give a number between 0 and 1")
    projected = [_project(np.asarray(one, dtype=np.float64), components, centre) for one in features]
    clusters = _merge(projected, gamma_corr)
    weights = np.stack([np.abs(v) / np.maximum(np.abs(v).max(axis=0), 1e-300) for v in projected])
    bound = float(np.percentile(weights, 90)) if gamma_data is None else gamma_data
    contains = weights > bound
    models, points, _ = contains.shape
    omega = np.zeros((models, points, int(clusters.max()) + 1), dtype=bool)
    for m in range(models):
        for k, cluster in enumerate(clusters[m]):
            omega[m, :, cluster] |= contains[m, :, k]
    return Interaction(omega, clusters)


def _project(phi: Array, components: int, centre: bool) -> Array:
    if centre:
        phi = phi - phi.mean(axis=0)
    _, _, v = np.linalg.svd(phi, full_matrices=False)
    if len(v) < components:
        raise ConfigError(
            f"interaction: components = {components}, but the features span at most {len(v)} directions "
            f"({phi.shape[0]} points of width {phi.shape[1]}): give {len(v)} or fewer"
        )
    return np.asarray(phi @ v[:components].T)


def _merge(projected: Sequence[Array], gamma_corr: float) -> NDArray[np.int64]:
    """Cluster the features greedily in the order (model, component)."""
    count, width = len(projected), projected[0].shape[1]
    columns = np.concatenate([v - v.mean(axis=0) for v in projected], axis=1)
    columns = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
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


class Moment(NamedTuple):
    """The study after one round: numbers of clusters and of shared features.

    `local_current`: features that a local model shares with the current global one, mean over the cohort.
    `current_next`: shared by the current and the next global model; `current_mean`: by the current one and
    the mean of the end models, the next global model before the server's own step. `sweep` gives pairs
    (γ_corr, clusters).
    """

    round: int
    features: int
    histogram: list[int]
    local_current: float
    current_next: int
    current_mean: int
    sweep: list[tuple[float, int]]


def study(
    task: Task,
    federation: Federation,
    algorithm: Algorithm | Stages,
    *,
    rounds: int,
    cohort: int | float,
    work: Work,
    seed: int = 0,
    every: int = 10,
    points: int = 500,
    components: int = 20,
    gamma_corr: float = 0.5,
    centre: bool = False,
    gammas: Sequence[float] = GAMMAS,
) -> Iterable[Moment]:
    """Train, and after every so many rounds compare the global model, the cohort's models and the next one.

    M = N + 2 models on `points` test points, as the paper has it; the mean of the end models is compared
    beside them with an M + 1st place, so it changes no other number.
    """
    session = open_session(
        task,
        federation,
        algorithm,
        rounds=rounds,
        cohort=cohort,
        work=work,
        seed=seed,
        engine="serial",
        probes=[Divergence()],
    )
    data = federation.everything if federation.test is None else federation.test
    inputs = federation.prepare(data[0][:points])
    with closing(session.loop.engine):
        current = _x(session)
        for row in session.rounds():
            following = _x(session)
            if (row["round"] + 1) % every == 0:
                ends = [_end(session, client) for client in row["cohort"]]
                seen = [
                    features_of(session.loop.oracle, v, session.state.buffers, (inputs, data[1]))
                    for v in (current, *ends, following, torch.stack(ends).mean(0))
                ]
                yield _moment(
                    row["round"] + 1,
                    seen,
                    gammas,
                    components=components,
                    gamma_corr=gamma_corr,
                    centre=centre,
                )
            current = following


def _moment(
    round: int,
    seen: list[Array],
    gammas: Sequence[float],
    *,
    components: int,
    gamma_corr: float,
    centre: bool,
) -> Moment:
    *paper, mean = seen
    found = interaction(paper, components=components, gamma_corr=gamma_corr, centre=centre)
    wide = interaction([*paper, mean], components=components, gamma_corr=gamma_corr, centre=centre)
    last = len(paper) - 1
    return Moment(
        round,
        found.features,
        found.histogram,
        float(np.mean([found.shared(0, m) for m in range(1, last)])),
        found.shared(0, last),
        wide.shared(0, last + 1),
        [
            (g, interaction(paper, components=components, gamma_corr=g, centre=centre).features)
            for g in gammas
        ],
    )


@torch.no_grad()
def features_of(oracle: Oracle, vector: Vector, buffers: Vector, data: Batch) -> Array:
    """Return the penultimate features of a model on prepared samples."""
    inputs, _ = oracle.place(data)
    tensors = {**oracle.layout.views(vector), **oracle.buffer_layout.views(buffers)}
    with watched(oracle.still, oracle.task.features) as found:
        functional_call(oracle.still, tensors, (inputs,))
    return np.asarray(found[-1].flatten(1).double().cpu().numpy())


def _x(session: Session) -> Vector:
    state = session.state
    models = session.loop.stages.parts[state.stage].method.models(state.server)
    return next(iter(models.values())).clone()


def _end(session: Session, client: int) -> Vector:
    """Return the model with which a client last ended, from the notes of the divergence probe."""
    notes: list[Vector] = [note.last for note in session.store[client].notes if hasattr(note, "last")]
    return notes[0]
