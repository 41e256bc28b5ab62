"""May this task be stacked? By what it is made of, and by trying."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from fedkeel.core.oracle import Oracle
from fedkeel.data.federation import Batch
from fedkeel.engines.client import weighs_targets
from fedkeel.engines.contract import Unsuited
from fedkeel.engines.stacked.loss import LossInputs, StackedModel, client_loss, mapped_over_clients
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import Record, leaves, transform
from fedkeel.tensors.trees import Tree, call, count, part, stack

_SAMPLES = 8
_UNEQUAL = "clients have minibatches of unequal size"
_KERNELS = {nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward}


class Unstackable(Unsuited):
    """This task cannot be computed for many clients at once; the message says why."""


def stackable_model(settings: RunSettings, oracle: Oracle, padded: bool) -> StackedModel:
    """Return the model prepared for many clients; raise `Unstackable` where results would differ."""
    if settings.work.optimizer is not None:
        raise Unstackable(f"{type(settings.work.optimizer).__name__}'s steps are taken client by client")
    for name, layer in oracle.module.named_modules():
        reason = _reason(layer, padded)
        if reason is not None:
            part = f"the layer {name!r}" if name else "the model"
            raise Unstackable(f"{part} ({type(layer).__name__}) {reason}")
    batches = _batches(settings, oracle)
    moved = moved_buffers(oracle, batches[0])
    if moved and padded:
        raise Unstackable(f"training changes the model's buffer {moved[0]!r}, and {_UNEQUAL}")
    for name, buffer in oracle.module.named_buffers():
        if name in moved and not (buffer.is_floating_point() or buffer.dtype == torch.int64):
            raise Unstackable(
                f"training changes the model's buffer {name!r}, which is neither float nor int64"
            )
    model = StackedModel(oracle, batches[0], moved, weighs=padded and weighs_targets(settings, oracle))
    _check_gradients(model, batches, padded)
    return model


def _reason(layer: nn.Module, padded: bool) -> str | None:
    if isinstance(layer, _BatchNorm) and padded:
        return f"mixes the samples of a minibatch, and {_UNEQUAL}"
    if isinstance(layer, _DropoutNd) and layer.p > 0:
        return "draws random numbers: each client's own, keyed ones cannot be replayed for many at once"
    if type(layer).forward in _KERNELS:
        return "runs a recurrent kernel that cannot be mapped over clients"
    return None


def _batches(settings: RunSettings, oracle: Oracle) -> list[Batch]:
    """Return two small minibatches, equally long, of samples from all over the clients' data.

    A client may have a single class, and a loss with weights of classes is a mean over its samples.
    """
    federation = settings.federation
    rows = federation.index[: int(federation.offsets[len(federation)])]
    each = max(1, min(_SAMPLES, len(rows) // 2))
    spread = torch.linspace(0, len(rows) - 1, 2 * each).long()
    pairs = (federation.pick(rows[own]) for own in (spread[::2], spread[1::2]))
    return [oracle.to_device((federation.prepare(x), y)) for x, y in pairs]


def moved_buffers(oracle: Oracle, batch: Batch) -> list[str]:
    """Return the buffers that a pass in training changes."""
    buffers = dict(oracle.module.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    with torch.no_grad(), oracle.buffers_kept():
        call(oracle.module, batch[0])
        return [name for name, buffer in buffers.items() if not torch.equal(before[name], buffer)]


def _check_gradients(model: StackedModel, batches: list[Batch], padded: bool) -> None:
    """Compare the stacked gradients of two clients with those of each alone, one half padded if need be."""
    oracle, samples = model.oracle, count(batches[0][1])
    real = [samples, (samples + 1) // 2 if padded else samples]
    inputs, target = (stack(parts) for parts in zip(*batches, strict=True))
    weights = None
    if padded:
        weights = torch.stack([_weights(samples, own, oracle.point) for own in real])
    together, moved = _stacked_gradients(model, inputs, target, weights)
    for index, batch in enumerate(batches):
        with oracle.buffers_kept():
            oracle.gradient((part(batch[0], 0, real[index]), part(batch[1], 0, real[index])))
            alone = model.moving
        if not _close(together[index], oracle.grad):
            if padded:
                raise Unstackable(f"{_UNEQUAL}, and the model or the loss is not a mean over samples")
            raise Unstackable("its gradients for many clients at once differ from those for each alone")
        for (_, one), (_, other) in zip(leaves(moved), leaves(alone), strict=True):
            if not _close(one[index], other):
                raise Unstackable("its buffers change otherwise for many clients at once than for each alone")


def _close(a: Tensor, b: Tensor) -> bool:
    tolerance = 1e-9 if a.dtype == torch.float64 else 1e-3
    a, b = a.double(), b.double()
    if not bool(torch.isfinite(b).all()):
        return True  # no numbers to compare: the run will say which client diverges
    return bool((a - b).norm() <= tolerance * (b.norm() + tolerance))


def _weights(count: int, real: int, like: Tensor) -> Tensor:
    """Return equal weights of the real samples of a minibatch, zero for the padding."""
    weights = torch.zeros(count).to(like)
    weights[:real] = 1.0 / real
    return weights


def _stacked_gradients(
    model: StackedModel, inputs: Tree, target: Tree, weights: Tensor | None
) -> tuple[Tensor, Record]:
    """Return the gradients of two clients at the same point, and their changed buffers."""
    moving = transform(lambda tensor: tensor.expand(count(inputs), -1).contiguous(), model.moving)
    given = LossInputs(inputs, target, weights, None, model.fixed, moving)
    mapped = mapped_over_clients(client_loss(model, None), given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layer without a batching rule runs client by client, and warns
        warnings.simplefilter("ignore", ResourceWarning)  # of a file that an interrupted import left open
        try:
            found, _, moved = mapped(model.oracle.point.expand(count(inputs), -1), given)
        except Exception as problem:
            raise Unstackable(
                f"the model or the loss cannot be mapped over clients: {_first_sentence(problem)}"
            ) from None
    return found, moved


def _first_sentence(problem: Exception) -> str:
    """Return what a message of torch's says first; requests to file an issue may follow."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0].split(". For ")[0].removesuffix(".")
