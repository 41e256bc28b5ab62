"""What a client's round comes to: a result that was checked, or a failure.

Every engine runs its clients through `ClientRunner.outcome`. Where the run stops at a client that fails, the
failure is raised with round and client in its message; where it goes on without that client, it is a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import torch

from fedkeel.common.errors import ClientFailed, DataError, Diverged, FedkeelError
from fedkeel.core.algorithm import Algorithm, Facts, Walk
from fedkeel.core.walk import sharp_of
from fedkeel.engines.contract import ClientFailure, ClientResult, RoundRequest, UploadShapes
from fedkeel.settings.faults import Damage, Fault, Faults
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import Record, leaves, transform
from fedkeel.tensors.vector import Vector, finite, scalar_like

_LONGEST_REASON = 300  # characters
_SIMULATED: dict[Fault, str] = {
    "drop": "dropped out",
    "straggle": "took too long",
    "crash": "crashed in the middle of its work",
}
_HUGE = 1e6  # times the bound on uploads: how large a corrupt one is


class UnusableClient(Exception):
    """A client gives nothing that can be used; the message is the reason."""


class NotFinite(UnusableClient):
    """What a client sends is NaN or infinite."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it sent NaN or infinite values ({name})")


class SimulatedFailure(UnusableClient):
    """A client fails on purpose."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{_SIMULATED[fault]} (simulated)")


def failure_of(client: int, problem: Exception) -> ClientFailure:
    """Return a client's failure as a value."""
    if isinstance(problem, Diverged):
        where = "" if problem.layer is None else f", first in {problem.layer}"
        reason = f"its loss or model turned NaN or infinite{where}"
        told = Diverged(str(problem), round=problem.round, client=client, layer=problem.layer)
        return ClientFailure(client, reason, told)
    return ClientFailure(client, _reason(problem))


def raise_named(request: RoundRequest, client: int, problem: Exception) -> NoReturn:
    """Raise a client's failure with its round and its number; what the client raised is the cause."""
    if isinstance(problem, Diverged):  # it names them
        raise problem
    where = f"round {request.round}, client {client}"
    if isinstance(problem, NotFinite):
        told = f"{where}: {problem}; lower the learning rate ({request.lr:g}) or set Work(clip=…)"
        raise Diverged(told, round=request.round, client=client)
    if isinstance(problem, DataError):
        raise DataError(f"{where}: {problem}") from problem
    cause = None if isinstance(problem, UnusableClient) else problem
    raise ClientFailed(
        f"{where}: {_reason(problem)}; on_client_error='skip' goes on without a client that fails",
        round=request.round,
        client=client,
    ) from cause


def past_deadline(limit: float) -> str:
    """Say that a client took too long."""
    return f"took longer than client_seconds = {limit:g}"


def upload_shapes(algorithm: Algorithm, down: Record, x0: Vector) -> UploadShapes | None:
    """Return the shapes that a method's uploads have, from a walk of no length; None where it takes none."""
    try:
        memory = algorithm.init_client(x0)
        up, _ = still_round(algorithm, down, memory)[1]
    except Exception:  # of a method of the user's that needs a real walk: then nothing is known
        return None
    return _shapes(up)


def still_round(algorithm: Algorithm, down: Record, memory: Record) -> tuple[Walk, tuple[Record, Record]]:
    """Return a walk that ends where it starts, and what the method makes of it: the form of a real one's."""
    facts = Facts.of(1, 1.0, down.x)
    plan = algorithm.plan(down, memory, facts)
    still, sharp = torch.zeros_like(plan.start), sharp_of(plan.sharp)
    walk = Walk(
        start=plan.start,
        end=plan.start.clone(),
        length=scalar_like(plan.start, 1.0),
        steps=scalar_like(plan.start, 1.0),
        buffer=None if plan.momentum is None else still,
        dual=None if sharp is None or sharp.dual is None else still,
        full_gradient=still if plan.full_gradient else None,
    )
    return walk, algorithm.finish(walk, down, memory, facts)


def _reason(problem: Exception) -> str:
    """Say in a line why a client failed."""
    told = " ".join(str(problem).split())
    if not isinstance(problem, UnusableClient | FedkeelError):
        told = f"{type(problem).__name__}: {told}" if told else type(problem).__name__
    return told if len(told) <= _LONGEST_REASON else f"{told[:_LONGEST_REASON]}…"


def check_upload(settings: RunSettings, request: RoundRequest, result: ClientResult) -> None:
    """Refuse an upload that is not finite, of another shape than the server takes, or larger than allowed."""
    assert result.upload is not None
    up, buffers = result.upload
    if request.shapes is not None:
        _check_shapes(request.shapes, _shapes(up))
    if buffers.shape != request.buffers.shape:
        raise UnusableClient(
            f"its buffers have shape {_shown(buffers.shape)}, not {_shown(request.buffers.shape)}"
        )
    for name, tensor in leaves(result.upload):
        if not finite(tensor):
            raise NotFinite(name)
    if settings.max_upload_norm is not None:
        squares = sum(float(torch.linalg.vector_norm(t, dtype=torch.float64)) ** 2 for _, t in leaves(up))
        if not math.sqrt(squares) <= settings.max_upload_norm:
            raise UnusableClient(
                f"the norm of what it sent is {math.sqrt(squares):.3g}, and max_upload_norm = "
                f"{settings.max_upload_norm:g}"
            )


def _check_shapes(expected: UploadShapes, found: UploadShapes) -> None:
    for name in {**expected, **found}:
        if expected.get(name) != found.get(name):
            shown = (f"shape {_shown(s[name])}" if name in s else "nothing" for s in (found, expected))
            raise UnusableClient(f"it sent {next(shown)} as {name}, not {next(shown)}")


def _shapes(record: Record) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in leaves(record)}


def _shown(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))})"


def damaged(
    settings: RunSettings, faults: Faults, request: RoundRequest, client: int, result: ClientResult
) -> ClientResult:
    """Return a client's result with a corrupt upload."""
    assert result.upload is not None
    bound = settings.max_upload_norm
    damage = faults.damage(request.round, client, bounded=bound is not None)
    if damage == "shape" and request.shapes is None:  # nobody would notice
        damage = "nan"
    changes: dict[Damage, Callable[[Vector], Vector]] = {
        "nan": lambda tensor: torch.full_like(tensor, math.nan),
        "inf": lambda tensor: torch.full_like(tensor, math.inf),
        "shape": lambda tensor: torch.cat([tensor, tensor[-1:]]),
        "huge": lambda tensor: torch.full_like(tensor, _HUGE * (bound or 1.0)),
    }
    return result._replace(upload=result.upload._replace(up=transform(changes[damage], result.upload.up)))
