"""May this task be stacked? By what it is made of, and by trying."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from fedkeel.data.federation import Batch
from fedkeel.engines.contract import Unsuited
from fedkeel.engines.stacked.loss import Given, Net, loss_of, mapped_over_clients
from fedkeel.oracle import Oracle
from fedkeel.records import Record, leaves, transform
from fedkeel.settings import RunSettings

_SAMPLES = 8
_UNEQUAL = "clients have minibatches of unequal size"
_KERNELS = {nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward}


class Unstackable(Unsuited):
    """This task cannot be computed for many clients at once; the message says why."""


def stackable_net(settings: RunSettings, oracle: Oracle, padded: bool) -> Net:
    """Return the model ready for many clients; `Unstackable` where each would not walk its own walk."""
    for name, layer in oracle.module.named_modules():
        reason = _reason(layer, padded)
        if reason is not None:
            place = f"the layer {name!r}" if name else "the model"
            raise Unstackable(f"{place} ({type(layer).__name__}) {reason}")
    batches = _batches(settings, oracle)
    moved = _moved(oracle, batches[0])
    if moved and padded:
        raise Unstackable(f"training moves the model's buffer {moved[0]!r}, and {_UNEQUAL}")
    for name, buffer in oracle.module.named_buffers():
        if name in moved and not (buffer.is_floating_point() or buffer.dtype == torch.int64):
            raise Unstackable(f"training moves the model's buffer {name!r}, which is neither float nor int64")
    net = Net(oracle, moved)
    _check_gradients(net, batches, padded)
    return net


def _reason(layer: nn.Module, padded: bool) -> str | None:
    if isinstance(layer, _BatchNorm) and padded:
        return f"mixes the samples of a minibatch, and {_UNEQUAL}"
    if isinstance(layer, _DropoutNd) and layer.p > 0:
        return "draws random numbers: each client's own, keyed ones cannot be replayed for many at once"
    if type(layer).forward in _KERNELS:
        return "runs a recurrent kernel that cannot be mapped over clients"
    return None


def _batches(settings: RunSettings, oracle: Oracle) -> list[Batch]:
    """Return small minibatches of the two largest clients, equally long."""
    federation = settings.federation
    largest = federation.sizes.topk(min(2, len(federation))).indices.tolist()
    pairs = [federation.samples(client) for client in largest]
    count = min(_SAMPLES, *(len(y) for _, y in pairs))
    return [oracle.to_device((federation.prepare(x[:count]), y[:count])) for x, y in (pairs * 2)[:2]]


def _moved(oracle: Oracle, batch: Batch) -> list[str]:
    """Return the buffers that a pass in training moves."""
    buffers = dict(oracle.module.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    with torch.no_grad(), oracle.buffers_kept():
        oracle.module(batch[0])
        return [name for name, buffer in buffers.items() if not torch.equal(before[name], buffer)]


def _check_gradients(net: Net, batches: list[Batch], padded: bool) -> None:
    """Compare the stacked gradients of two clients with theirs alone; where need be, one half filled up."""
    oracle, count = net.oracle, len(batches[0][0])
    real = [count, (count + 1) // 2 if padded else count]
    inputs, target = (torch.stack(parts).contiguous() for parts in zip(*batches, strict=True))
    weights = None
    if padded:
        weights = torch.stack([_share(count, part, oracle.point) for part in real])
    together, moved = _stacked_gradients(net, inputs, target, weights)
    for place, batch in enumerate(batches):
        with oracle.buffers_kept():
            oracle.gradient((batch[0][: real[place]], batch[1][: real[place]]))
            alone = net.moving
        if not _alike(together[place], oracle.grad):
            if padded:
                raise Unstackable(f"{_UNEQUAL}, and the model or the loss is not a mean over samples")
            raise Unstackable("its gradients for many clients at once differ from those for each alone")
        for (_, one), (_, other) in zip(leaves(moved), leaves(alone), strict=True):
            if not _alike(one[place], other):
                raise Unstackable("its buffers move otherwise for many clients at once than for each alone")


def _alike(a: Tensor, b: Tensor) -> bool:
    tolerance = 1e-9 if a.dtype == torch.float64 else 1e-3
    a, b = a.double(), b.double()
    return bool((a - b).norm() <= tolerance * (b.norm() + tolerance))


def _share(count: int, real: int, like: Tensor) -> Tensor:
    weights = torch.zeros(count).to(like)
    weights[:real] = 1.0 / real
    return weights


def _stacked_gradients(
    net: Net, inputs: Tensor, target: Tensor, weights: Tensor | None
) -> tuple[Tensor, Record]:
    """Return the gradients of two clients at the same point, and their moved buffers."""
    moving = transform(lambda tensor: tensor.expand(len(inputs), -1).contiguous(), net.moving)
    given = Given(inputs, target, weights, None, net.fixed, moving)
    mapped = mapped_over_clients(loss_of(net, None), given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layer without a batching rule runs client by client, and warns
        try:
            found, _, moved = mapped(net.oracle.point.expand(len(inputs), -1), given)
        except Exception as problem:
            lines = str(problem).strip().splitlines() or [type(problem).__name__]
            raise Unstackable(f"the model or the loss cannot be mapped over clients: {lines[0]}") from None
    return found, moved
