"""May this task be stacked? By what it is made of, and by trying."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from fedkeel.data.federation import Batch
from fedkeel.engines.contract import Setting, Unsuited
from fedkeel.engines.stacked.loss import Given, Net, loss_of
from fedkeel.oracle import Oracle

_SAMPLES = 8
_KERNELS = {nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward}


class Unstackable(Unsuited):
    """This task cannot be computed for many clients at once; the message says why."""


def check_stackable(setting: Setting, oracle: Oracle, padded: bool) -> None:
    """Raise `Unstackable` where a stacked walk would not be each client's own walk."""
    for name, layer in oracle.module.named_modules():
        reason = _reason(layer)
        if reason is not None:
            place = f"the layer {name!r}" if name else "the model"
            raise Unstackable(f"{place} ({type(layer).__name__}) {reason}")
    batches = _batches(setting, oracle)
    _check_buffers(oracle, batches[0])
    _check_gradients(oracle, batches, padded)


def _reason(layer: nn.Module) -> str | None:
    if isinstance(layer, _BatchNorm):
        return "mixes the samples of a minibatch and keeps running statistics"
    if isinstance(layer, _DropoutNd) and layer.p > 0:
        return "draws random numbers"
    if type(layer).forward in _KERNELS:
        return "runs a recurrent kernel that cannot be mapped over clients"
    return None


def _batches(setting: Setting, oracle: Oracle) -> list[Batch]:
    """Return small minibatches of the two largest clients, equally long."""
    federation = setting.federation
    largest = federation.sizes.topk(min(2, len(federation))).indices.tolist()
    pairs = [federation.samples(client) for client in largest]
    count = min(_SAMPLES, *(len(y) for _, y in pairs))
    return [oracle.place((federation.prepare(x[:count]), y[:count])) for x, y in (pairs * 2)[:2]]


def _check_buffers(oracle: Oracle, batch: Batch) -> None:
    before = oracle.buffers.clone()
    with torch.no_grad():
        oracle.module(batch[0])
    moved = not torch.equal(before, oracle.buffers)
    oracle.buffers.copy_(before)
    if moved:
        raise Unstackable("the model's buffers move during training")


def _check_gradients(oracle: Oracle, batches: list[Batch], padded: bool) -> None:
    """Compare the stacked gradients of two clients with theirs alone; where need be, one half filled up."""
    count = len(batches[0][0])
    real = [count, (count + 1) // 2 if padded else count]
    inputs, target = (torch.stack(parts).contiguous() for parts in zip(*batches, strict=True))
    weights = None
    if padded:
        weights = torch.stack([_share(count, part, oracle.point) for part in real])
    together = _stacked_gradients(oracle, inputs, target, weights)
    for place, batch in enumerate(batches):
        oracle.gradient((batch[0][: real[place]], batch[1][: real[place]]))
        tolerance = 1e-3 if oracle.point.dtype != torch.float64 else 1e-9
        if (together[place] - oracle.grad).norm() > tolerance * (oracle.grad.norm() + tolerance):
            if padded:
                raise Unstackable(
                    "clients have minibatches of unequal size, and the model or the loss is not "
                    "a mean over samples"
                )
            raise Unstackable("its gradients for many clients at once differ from those for each alone")


def _share(count: int, real: int, like: Tensor) -> Tensor:
    weights = torch.zeros(count).to(like)
    weights[:real] = 1.0 / real
    return weights


def _stacked_gradients(oracle: Oracle, inputs: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    net = Net(oracle)
    given = Given(inputs, target, weights, None, net.fixed)
    axes = Given(0, 0, None if weights is None else 0, None, None)  # type: ignore[arg-type]
    mapped = vmap(grad_and_value(loss_of(net, None)), in_dims=(0, axes))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layer without a batching rule runs client by client, and warns
        try:
            found: Tensor = mapped(oracle.point.expand(len(inputs), -1), given)[0]
        except Exception as problem:
            lines = str(problem).strip().splitlines() or [type(problem).__name__]
            raise Unstackable(f"the model or the loss cannot be mapped over clients: {lines[0]}") from None
    return found
