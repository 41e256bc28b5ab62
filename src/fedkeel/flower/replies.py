"""What the server makes of a node's reply: a client's result, checked field by field, or a reason against it.

Nothing that a node sends is believed: every name, shape, dtype and count is compared with what the method and
the client's work must give. `ClientRunner.outcome` then refuses what is not finite or too large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from fedkeel.common.errors import ConfigError, Diverged
from fedkeel.common.version import __version__
from fedkeel.core.oracle import Passes
from fedkeel.engines.contract import ClientResult, RoundRequest, Upload
from fedkeel.engines.outcome import UnusableClient, still_round
from fedkeel.flower.envelope import PROTOCOL, Envelope, WrongTensors, unpacked
from fedkeel.probes.base import ClientView
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory, Record, nbytes, transform

_PASSES = 10  # forward or backward passes per local step or part of a full gradient; methods take up to three
_FULL_BATCH = 1000
_LONGEST = 300  # characters of a node's own words


class LostMemory(Exception):
    """The node says that it no longer has the version that counts."""


class ReplyForm(NamedTuple):
    """The records that a round's replies must have, with tensors of the right shapes and dtypes."""

    up: Record
    memory: ClientMemory
    measures: Record

    @classmethod
    def of(cls, request: RoundRequest, memory: ClientMemory) -> ReplyForm:
        """Find the form out by a walk that ends where it starts."""
        algorithm, down = request.algorithm, request.down
        try:
            walk, (up, kept) = still_round(algorithm, down, memory.method)
        except Exception as problem:
            raise ConfigError(
                f"{algorithm!r} cannot be deployed: it does not say what it sends before a real walk "
                f"({type(problem).__name__}: {problem})"
            ) from problem
        if request.probes is None:
            return cls(up, memory, None)
        view = ClientView(
            client=request.clients[0],
            round=request.round,
            x=down.x,
            walk=walk,
            down=down,
            before=memory.method,
            after=kept,
            up=up,
            path2=torch.zeros(1, dtype=torch.float64, device=down.x.device),
            gradient=torch.zeros_like,
        )
        measures, _ = request.probes.measure(view, memory.notes)
        return cls(up, memory, measures)


def read_reply(
    settings: RunSettings, request: RoundRequest, reply: Envelope, *, client: int, form: ReplyForm, run: str
) -> ClientResult:
    """Return a client's result; raise `UnusableClient`, `Diverged` or `LostMemory` where it is none."""
    values = reply.values
    check_version(values)
    if "lost" in values:
        raise LostMemory(_text(values["lost"]))
    if "failed" in values:
        if values.get("diverged") is True:
            layer = values.get("layer")
            told = None if layer is None else _text(layer)
            raise Diverged(_text(values["failed"]), round=request.round, client=client, layer=told)
        raise UnusableClient(_text(values["failed"]))
    _expect(values, "run", run)
    _expect(values, "round", request.round)
    _expect(values, "client", client)
    _expect(values, "samples", int(settings.federation.sizes[client]))
    device = request.down.x.device
    known = {"up", "buffers", "measures"}
    if extra := sorted(name for name in reply.tensors if name.partition(".")[0] not in known):
        raise UnusableClient(f"it sent {extra[0]}, which nobody asked for")
    try:
        up = unpacked(form.up, reply.tensors, "up", device)
        buffers = unpacked(request.buffers, reply.tensors, "buffers", device)
        measures = unpacked(form.measures, reply.tensors, "measures", device)
    except WrongTensors as problem:
        raise UnusableClient(f"its reply does not fit: {problem}") from None
    upload = Upload(up, buffers)
    elsewhere = transform(lambda tensor: torch.empty_like(tensor, device="meta"), form.memory)
    most = _most_passes(settings, client)
    return ClientResult(
        upload,
        elsewhere,
        _loss(values),
        _count("gradients", values.get("gradients"), most),
        nbytes(upload),
        _passes(values.get("passes"), most),
        measures,
    )


def check_version(values: Mapping[str, Any]) -> None:
    """Refuse what another version of fedkeel has sent: it may mean something else by the same words."""
    if "unreadable" in values:
        raise UnusableClient(f"its reply cannot be read ({_text(values['unreadable'])})")
    if values.get("protocol") != PROTOCOL or values.get("fedkeel") != __version__:
        raise UnusableClient(
            f"its node runs fedkeel {_text(values.get('fedkeel', '(unknown)'))}, the server {__version__}: "
            "install the same version on both"
        )


def _most_passes(settings: RunSettings, client: int) -> int:
    """Return how many passes a client takes at most, by the number of samples that it has announced."""
    samples = int(settings.federation.sizes[client])
    return _PASSES * (settings.work.count(samples) + samples // _FULL_BATCH + 1)


def _loss(values: Mapping[str, Any]) -> float:
    loss = values.get("loss")
    if isinstance(loss, bool) or not isinstance(loss, int | float) or not math.isfinite(loss):
        raise UnusableClient(f"its loss is {_text(loss)}, not a finite number")
    return float(loss)


def _passes(given: Any, most: int) -> Passes | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != len(Passes._fields):
        raise UnusableClient(f"its passes are {_text(given)}, not {len(Passes._fields)} counts")
    return Passes(*(_count("passes", one, most) for one in given))


def _count(name: str, given: Any, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= most:
        raise UnusableClient(f"its number of {name} is {_text(given)}, not from 0 to {most}")
    return given


def _expect(values: Mapping[str, Any], name: str, wanted: Any) -> None:
    given = values.get(name)
    if type(given) is not type(wanted) or given != wanted:
        raise UnusableClient(f"its {name} is {_text(given)}, not {_text(wanted)}")


def _text(value: Any) -> str:
    told = " ".join(str(value).split())
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}…"
