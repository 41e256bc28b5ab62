"""Stability as a difference of losses: FedInit's Definition 11 and FedSAGD's Definition 3.4, as printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from fedkeel.core.oracle import EVALUATION_BATCH
from fedkeel.data.federation import Batch, Federation
from fedkeel.engines.serial import threads
from fedkeel.running.session import Session
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.trees import call_at, count, each, part, split


class LossDifference(NamedTuple):
    """How the losses f(x; z) and f(x'; z) of coupled models differ after so many rounds.

    `signed` = max over z of the mean over pairs of f(x; z) − f(x'; z) (FedInit, Definition 11); `absolute`
    the same of |f(x; z) − f(x'; z)| (FedSAGD, Definition 3.4); `mean` is its mean over z instead. The
    expectation of the definitions is here the mean over the replaced clients.
    """

    rounds: int
    signed: float
    absolute: float
    mean: float


def loss_points(federation: Federation, points: int, seed: int) -> Batch:
    """Draw samples z from all clients' data, held-out clients included, and the test set; all if so few."""
    own, test = len(federation.index), federation.test
    whole = own + (0 if test is None else test.size)
    rng = Stream(seed).branch("stability losses").numpy()
    rows = torch.from_numpy(np.sort(rng.choice(whole, min(points, whole), replace=False)))
    batch = federation.pick(federation.index[rows[rows < own]])
    if test is None:
        return batch
    rest = test.take(rows[rows >= own] - own)
    x, y = (each(lambda a, b: torch.cat([a, b.to(a)]), *pair) for pair in zip(batch, rest, strict=True))
    return x, y


@torch.no_grad()
def sample_losses(session: Session, data: Batch) -> list[float]:
    """Return the loss of a session's present model on each sample."""
    context, state = session.context, session.state
    oracle, prepare = context.oracle, context.settings.federation.prepare
    tensors = {
        **oracle.layout.views(context.model(state)),
        **oracle.buffer_layout.views(state.buffers),
    }
    found: list[float] = []
    with threads(context.engine.threads):
        for x, y in zip(*(split(tree, EVALUATION_BATCH) for tree in data), strict=True):
            inputs, target = oracle.to_device((prepare(x), y))
            output = call_at(oracle.eval_copy, tensors, inputs)
            loss = oracle.task.training_loss
            found += [float(loss(part(output, i, i + 1), part(target, i, i + 1))) for i in range(count(y))]
    return found


def loss_difference(
    rounds: int, unchanged: Sequence[float], others: Sequence[Sequence[float]]
) -> LossDifference:
    """Compare the losses of the unchanged run with those of each other run, sample by sample."""
    apart = np.asarray(unchanged)[None] - np.asarray(others)
    absolute = np.abs(apart)
    return LossDifference(
        rounds,
        signed=float(apart.mean(axis=0).max()),
        absolute=float(absolute.mean(axis=0).max()),
        mean=float(absolute.mean()),
    )
