"""A client's round as a pure function: what every engine runs, wherever it runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fedkeel.algorithm import Walk
from fedkeel.data.federation import Batch
from fedkeel.engines.contract import Answer, Order, Setting, Upload
from fedkeel.errors import Diverged
from fedkeel.oracle import Oracle
from fedkeel.probes.base import ClientView, Kept, Passes, Several
from fedkeel.records import Record, apart, nbytes
from fedkeel.streams import Stream
from fedkeel.vector import Vector, finite
from fedkeel.walk import Pace, take

_FULL_BATCH = 1000


def client_stream(seed: int, round: int, client: int) -> Stream:
    """Return the randomness of a client in a round."""
    return Stream(seed).branch("client", round, client)


def minibatches(setting: Setting, round: int, client: int) -> list[np.ndarray]:
    """Return the minibatches of a client in a round, as places among its own samples."""
    samples = len(setting.federation.rows(client))
    stream = client_stream(setting.seed, round, client).branch("order")
    return setting.work.order(samples, stream.numpy())


def answer(setting: Setting, oracle: Oracle, order: Order, client: int, memory: Record) -> Answer:
    """Let one client do its round, and show it to the probes that asked."""
    algorithm, work, watch = order.algorithm, setting.work, order.watch
    notes, path, counted = Several(), None, (oracle.gradients, oracle.forwards)
    if watch is not None:
        (memory, notes), path = memory, watch.path(order.down.x)
    plan = algorithm.plan(order.down, memory)
    stream = client_stream(setting.seed, order.round, client)
    batches = setting.federation.batches(client, minibatches(setting, order.round, client), stream)
    pace = Pace(order.lr, work.weight_decay, work.clip, work.clip_on == "direction")
    oracle.load_buffers(order.buffers)
    with seeded(stream.branch("dropout").integer(), setting.device):
        taken = take(
            oracle, plan, batches, pace, lambda at: full_gradient(setting, oracle, client, at), trace=path
        )
    if not (finite(taken.loss) and finite(taken.walk.end)):
        raise diverged(order, client)
    up, kept = (apart(part, oracle.point) for part in algorithm.finish(taken.walk, order.down, memory))
    upload = Upload(up, oracle.buffers.clone())
    size = nbytes(upload)
    passes = Passes(oracle.gradients - counted[0], oracle.forwards - counted[1])
    given = Answer(upload, kept, float(taken.loss), taken.gradients, size, passes)
    if watch is None:
        return given
    path2 = None if path is None else path.total
    before = Kept(memory, notes)
    return shown(setting, oracle, order, client, given, before=before, walk=taken.walk, path2=path2)


def shown(
    setting: Setting,
    oracle: Oracle,
    order: Order,
    client: int,
    given: Answer,
    *,
    before: Kept,
    walk: Walk,
    path2: Vector | None,
) -> Answer:
    """Show a client's round to the probes that asked; return its answer with their measures and notes."""
    assert order.watch is not None
    assert given.upload is not None
    view = ClientView(
        client,
        order.round,
        order.down.x,
        walk,
        order.down,
        before.method,
        given.memory,
        given.upload.up,
        path2,
        gradient=lambda at: _calm_gradient(setting, oracle, order.round, client, at),
    )
    measures, notes = (apart(part, oracle.point) for part in order.watch.look(view, before.notes))
    return given._replace(upload=given.upload._replace(measures=measures), memory=Kept(given.memory, notes))


def _calm_gradient(setting: Setting, oracle: Oracle, round: int, client: int, at: Vector) -> Vector:
    """Return a full gradient for a probe: dropout is keyed by the round and the client alone."""
    stream = client_stream(setting.seed, round, client)
    with seeded(stream.branch("probe").integer(), setting.device):
        return full_gradient(setting, oracle, client, at)


def diverged(order: Order, client: int) -> Diverged:
    """Return the error that names the client whose walk left the numbers."""
    return Diverged(
        f"round {order.round}, client {client}: the loss or the model turned NaN or infinite; "
        f"lower the learning rate ({order.lr:g}) or set Work(clip=…)",
        round=order.round,
        client=client,
    )


def full_gradient(setting: Setting, oracle: Oracle, client: int, at: Vector) -> Vector:
    """Return the gradient at a vector over all of a client's samples, as stored."""
    federation = setting.federation
    x, y = federation.samples(client)

    def batches() -> Iterator[Batch]:
        for part, target in zip(torch.split(x, _FULL_BATCH), torch.split(y, _FULL_BATCH), strict=True):
            yield federation.prepare(part), target

    return oracle.full_gradient(at, batches(), len(x))


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Give torch's own generators (dropout) a keyed seed, and set the global state back afterwards."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.get_device_module(device).manual_seed(seed)
        yield
