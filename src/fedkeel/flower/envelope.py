"""What goes over the wire in either direction: plain values and named tensors, whatever carries them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.tensors.records import Record, leaves, rebuild

PROTOCOL = 2  # counts up whenever a message changes its meaning

HELLO, TRAIN = "query", "train"  # kinds of messages, in Flower's words


class Envelope(NamedTuple):
    """A message: values that JSON can hold, and tensors by name."""

    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = {}


class WrongTensors(Exception):
    """Tensors that do not fit the record they are to become; the message says how."""


def packed(**records: Record) -> dict[str, Tensor]:
    """Return the tensors of records under the records' names, on the CPU."""
    found = {
        f"{part}.{name}" if name else part: tensor.detach().cpu()
        for part, record in records.items()
        for name, tensor in leaves(record)
    }
    for name, tensor in found.items():
        if tensor.dtype == torch.bfloat16:
            raise ConfigError(
                f"{name} is bfloat16, which Flower cannot send: make the model float32 or float16"
            )
    return found


def unpacked(template: Record, tensors: Mapping[str, Tensor], part: str, device: torch.device) -> Record:
    """Return the record that was packed under a name, of the template's form; refuse anything else."""
    wanted = {f"{part}.{name}" if name else part: tensor for name, tensor in leaves(template)}
    found = {name: one for name, one in tensors.items() if name == part or name.startswith(f"{part}.")}
    for name, like in wanted.items():
        if name not in found:
            raise WrongTensors(f"{name} is missing")
        _check_alike(name, found[name], like)
    if extra := sorted(found.keys() - wanted.keys()):
        raise WrongTensors(f"{extra[0]} is not expected")
    placed = {name: tensor.to(device) for name, tensor in found.items()}
    return rebuild(template, placed, part)


def _check_alike(name: str, tensor: Tensor, like: Tensor) -> None:
    if tensor.shape != like.shape:
        raise WrongTensors(f"{name} has shape {tuple(tensor.shape)}, not {tuple(like.shape)}")
    if tensor.dtype != like.dtype:
        raise WrongTensors(f"{name} is {_plain(tensor.dtype)}, not {_plain(like.dtype)}")


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
