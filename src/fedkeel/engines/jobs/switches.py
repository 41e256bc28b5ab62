"""How torch is set for all of a process: it changes results, so workers are set as the main process is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_SWITCHES: Any = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (lambda: torch.backends.mkldnn.enabled, torch.backends.mkldnn.set_flags),
)


def torch_switches() -> list[Any]:
    """Return how torch is set in this process."""
    return [read() for read, _ in _SWITCHES]


def set_switches(switches: Sequence[Any]) -> None:
    """Set torch as it is elsewhere."""
    for (read, write), setting in zip(_SWITCHES, switches, strict=True):
        if read() != setting:
            write(setting)
