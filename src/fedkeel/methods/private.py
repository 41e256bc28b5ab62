"""Private updates on any method (McMahan et al. 2018, DP-FedAvg): bounded uploads and Gaussian noise."""

from __future__ import annotations

import torch

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import OpenInterval, Positive
from fedkeel.core.algorithm import Algorithm, Cohort, Facts, Walk, Wrapper, method
from fedkeel.methods.stages import Stages, on_each
from fedkeel.tensors.records import Record, leaves, rebuild
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import Vector

_LENGTH = "length"  # the part of an upload that holds the sum of a walk's rates
_EXAMPLE = "as in private(FedAvg(), clip=1.0, noise=1.0, delta=1e-5)"


@method
class Private(Wrapper):
    """McMahan et al. 2018: one client's whole upload changes the mean by no more than noise hides.

    A client sends u·min(1, clip/‖u‖), u its whole upload as one vector. The server adds clip·noise/N·ξ to
    the mean, with ξ standard normal, keyed by the run's seed, and N the planned size of the cohort, by which
    it also divides where cohorts vary. What clients keep is not clipped: it stays with them. The sum of a
    walk's rates (`length`) is sent as it is: with Work(steps=…) it is the same for all, and says nothing.
    """

    clip: Positive
    noise: Positive
    delta: OpenInterval

    def __post_init__(self) -> None:
        if isinstance(self.inner, Private):
            raise ConfigError("private(private(…)): give one clip and one noise")

    def __repr__(self) -> str:
        return f"private({self.inner!r}, clip={self.clip!r}, noise={self.noise!r}, delta={self.delta!r})"

    def finish(self, walk: Walk, down: Record, client: Record, facts: Facts) -> tuple[Record, Record]:
        """Shorten what is sent."""
        up, memory = self.inner.finish(walk, down, client, facts)
        parts = {name: part for name, part in leaves(up) if not is_length(name)}
        factor = torch.clamp(self.clip / _norm(list(parts.values())), max=1.0)
        clipped = {name: part * factor.to(part) for name, part in parts.items()}
        return rebuild(up, dict(leaves(up)) | clipped), memory

    def aggregate(self, server: Record, mean: Record, cohort: Cohort) -> Record:
        """Add noise, and let the inner method step as if the cohort had its planned size."""
        planned = cohort.size if cohort.planned is None else cohort.planned
        counted = 0.0 if cohort.redrawn else cohort.size / planned  # where nobody was drawn, noise alone
        stream = cohort.stream.branch("private")
        deviation = self.clip * self.noise / planned
        noised = {
            name: part if is_length(name) else counted * part + deviation * _normal(part, stream, name)
            for name, part in leaves(mean)
        }
        cohort = cohort._replace(size=planned, share=cohort.share * planned / cohort.size)
        return self.inner.aggregate(server, rebuild(mean, noised), cohort)


def is_length(name: str) -> bool:
    """Tell whether a part of an upload is the length of a walk, by its dotted name."""
    return name.rpartition(".")[2] == _LENGTH


def keeps_memories(method: Algorithm, x: Vector) -> bool:
    """Tell whether a method's clients keep anything from one round to the next."""
    return any(True for _ in leaves(method.init_client(x)))


def private(
    inner: Algorithm | Stages,
    clip: float | None = None,
    noise: float | None = None,
    delta: float | None = None,
) -> Algorithm | Stages:
    """Bound each client's upload and hide it in noise, in any method or in each stage.

    `clip` bounds the norm of a client's whole upload, `noise` is the noise's standard deviation in units of
    `clip`, and `delta` is the δ for which the history tells ε, the column `epsilon`. docs/robustness.md says
    what is protected and what is not.
    """
    if clip is None or noise is None or delta is None:
        told = {"clip": clip, "noise": noise, "delta": delta}
        given = ", ".join(f"{name} = {value!r}" for name, value in told.items() if value is not None)
        missing = " and ".join(name for name, value in told.items() if value is None)
        why = {
            "clip": "noise hides only what is bounded",
            "noise": "clipped uploads alone hide nothing (the reducer NormClip clips for other ends)",
            "delta": "ε is told for a δ, which should be far below one over the number of clients",
        }
        raise ConfigError(
            f"private: {given or 'no argument'} without {missing}: {why[missing.split()[0]]}; give all "
            f"three, {_EXAMPLE}"
        )
    return on_each(inner, lambda one: Private(one, clip, noise, delta))


def _norm(parts: list[Vector]) -> Vector:
    """Return the norm of all parts as one vector, in float64, shape (…, 1)."""
    norms = [torch.linalg.vector_norm(part, dim=-1, keepdim=True, dtype=torch.float64) for part in parts]
    if len(norms) == 1:
        only: Vector = norms[0]
        return only
    first, *others = (norm**2 for norm in norms)
    return torch.sqrt(sum(others, first))


def _normal(like: Vector, stream: Stream, name: str) -> Vector:
    """Draw standard normal numbers for a part of an upload: the same on every device."""
    generator = torch.Generator().manual_seed(stream.branch(name).integer())
    drawn = torch.empty_like(like, dtype=torch.float64, device="cpu").normal_(generator=generator)
    return drawn.to(like)
