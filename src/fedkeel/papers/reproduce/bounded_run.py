"""Beyond smoothness as a run: FedAvg with two steps on a wide network, beside Theorem 4.7's bound.

The network is over-parameterised (more weights than samples, so the loss goes to zero). With ReLU units it
is not smooth: between two models that differ in active units the gradient jumps, so the sampled L is several
times the largest Hessian eigenvalue, and the pair (a, b) with the fewest rounds has a > 0. With `smooth`
units (softplus) there are no jumps. Everything is measured, nothing assumed: a rough pilot gives the steps, a
second study along the very run the constants of its bound.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fedkeel.core.task import Task
from fedkeel.core.work import Work
from fedkeel.data.federation import Federation
from fedkeel.methods import FedAvg
from fedkeel.running.session import open_session
from fedkeel.settings.options import SERIAL
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.constants import Effort, Findings, study
from fedkeel.tensors.streams import Stream
from fedkeel.theory import Bound
from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory.advice import AdviceInputs, best_steps

_ROUGH = 0.5  # local rate of the first pilot


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """Clients, samples of each, inputs and units of the network, K, minibatch size (None: all), rounds, seed.

    `target` is ε as a share of the first loss; with minibatches it sets how small the steps are.
    """

    smooth: bool = False
    clients: int = 4
    samples: int = 2
    inputs: int = 16
    units: int = 512
    K: int = 2
    batch_size: int | None = None
    rounds: int = 250
    target: float = 0.1
    seed: int = 0
    points: int = 8
    close: int = 4


class BoundedRound(NamedTuple):
    """A round, the loss after it, and the repaired bound."""

    round: int
    loss: float
    bound: float


class RecipeOutcome(NamedTuple):
    """The constants along the run, its steps, its lines, and the theorem's conditions."""

    found: Findings
    constants: bs.Constants
    steps: bs.Steps
    lines: tuple[BoundedRound, ...]
    bound: Bound

    @property
    def floor(self) -> float:
        """Where the bound stops."""
        return bs.floor(self.constants, self.steps)


def half_square(output: Tensor, target: Tensor) -> Tensor:
    """½(output − target)², the mean over samples."""
    return 0.5 * ((output[..., 0] - target) ** 2).mean()


def problem(s: ProblemSettings) -> tuple[Task, Federation]:
    """Return orthonormal inputs with random signs to learn, and one wide layer; fixed ±1/√units on top."""
    count = s.clients * s.samples
    if count > s.inputs:
        raise ValueError(f"{count} samples in {s.inputs} dimensions: give inputs >= clients·samples")
    rng = Stream(s.seed).branch("beyond smoothness").numpy()
    basis, _ = np.linalg.qr(rng.standard_normal((s.inputs, s.inputs)))
    labels = np.sign(rng.standard_normal(count))
    rows = [slice(i * s.samples, (i + 1) * s.samples) for i in range(s.clients)]
    hidden, top = nn.Linear(s.inputs, s.units, bias=False), nn.Linear(s.units, 1, bias=False)
    units = nn.Softplus() if s.smooth else nn.ReLU()
    model = nn.Sequential(hidden, units, top).double()
    with torch.no_grad():
        hidden.weight.copy_(torch.from_numpy(rng.standard_normal((s.units, s.inputs))))
        top.weight.copy_(torch.from_numpy(np.sign(rng.standard_normal((1, s.units))) / math.sqrt(s.units)))
    top.weight.requires_grad_(False)
    federation = Federation.from_arrays([(basis[part], labels[part]) for part in rows])
    return Task(model, half_square, {}), federation


def run(s: ProblemSettings) -> RecipeOutcome:
    """Choose steps by theory, train with them, measure the constants along that run, and bound it."""
    task, federation = problem(s)
    steps = _steps(s, _study(s, task, federation, bs.Steps(K=s.K, eta_l=_ROUGH), min(s.rounds, 60)))
    found = _study(s, task, federation, steps, s.rounds)
    losses = _losses(s, task, federation, steps)
    c = found.fit.at(steps)
    bounds = [bs.theorem_4_7(c, steps, gap_0=found.start_loss, r=round) for round in range(len(losses))]
    lines = [
        BoundedRound(r, loss, one.value) for r, (loss, one) in enumerate(zip(losses, bounds, strict=True))
    ]
    return RecipeOutcome(found, c, steps, tuple(lines), bounds[-1])


def _study(s: ProblemSettings, task: Task, federation: Federation, steps: bs.Steps, rounds: int) -> Findings:
    effort = Effort(rounds=rounds, points=s.points, close=s.close)
    return study(_settings(s, task, federation, steps), effort=effort)


def _settings(s: ProblemSettings, task: Task, federation: Federation, steps: bs.Steps) -> RunSettings:
    return RunSettings(
        task=task,
        federation=federation,
        method=FedAvg(lr=steps.eta_g),
        rounds=s.rounds,
        cohort=s.clients,
        work=Work(steps=steps.K, lr=steps.eta_l, batch_size=s.batch_size),
        seed=s.seed,
        evaluate_on="clients",
    )


def _steps(s: ProblemSettings, found: Findings) -> bs.Steps:
    """Return the steps with few rounds to the target that Theorem 4.7 allows."""
    prospect = best_steps(
        AdviceInputs(
            **{name: found[name] for name in ("L", "L_G", "sigma_l2", "sigma_g2", "Phi", "D", "U")},  # type: ignore[arg-type]
            gap_0=found.start_loss,
            semi=found.fit.constants,
            semi_here=None,
            inter=None,
            K=s.K,
            N=s.clients,
            C=s.clients,
            S=s.samples,
            B=s.batch_size or s.samples,
            T=s.rounds,
            eta_l=_ROUGH,
            epsilon=s.target * found.start_loss,
        )
    )
    if prospect.steps is None:
        raise ValueError(f"no steps lead to the target: {prospect.reason}")
    return prospect.steps


def _losses(s: ProblemSettings, task: Task, federation: Federation, steps: bs.Steps) -> list[float]:
    """Train and return the loss over all clients before the first and after each round."""
    settings = _settings(s, task, federation, steps)
    with closing(open_session(settings, SERIAL)) as session:
        oracle, state = session.context.oracle, session.state
        first = oracle.evaluate(state.server.x, state.buffers, federation.everything, federation.prepare)
        return [first["loss"], *(row["loss"] for row in session.rounds())]
