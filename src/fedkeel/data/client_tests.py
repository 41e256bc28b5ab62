"""Clients that bring a test set of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from fedkeel.common.errors import DataError
from fedkeel.data.arrays import arrays
from fedkeel.data.client_rows import ClientRows

T = TypeVar("T")


def with_own_tests(
    make: Callable[[Sequence[Any]], T], clients: Sequence[Any], tests: Sequence[Any | None]
) -> T:
    """Return the federation that `make` makes of clients; their test sets become rows of the same pool."""
    if len(tests) != len(clients):
        raise DataError(
            f"client_tests has {len(tests)} entries for {len(clients)} clients: give one per client, None "
            "for a client without a test set"
        )
    owners = [client for client, one in enumerate(tests) if one is not None]
    if not owners:
        raise DataError("client_tests holds nothing but None: leave it out, or give a pair (x, y) per client")
    if not isinstance(clients[0], torch.utils.data.Dataset):
        tests = [arrays(one) if isinstance(one, torch.utils.data.Dataset) else one for one in tests]
    try:  # as further clients, so that they are checked and converted like all others
        made: Any = make([*clients, *(tests[client] for client in owners)])
    except DataError as problem:
        raise DataError(_with_owners(str(problem), len(clients), owners)) from None
    own, end = len(clients), int(made.offsets[len(clients)])
    sizes = torch.zeros(own, dtype=torch.int64)
    sizes[owners] = made.offsets.diff()[own:]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    held = ClientRows(made.index[end:], offsets)
    parts = {"index": made.index[:end], "offsets": made.offsets[: own + 1], "client_tests": held}
    federation: T = replace(made, **parts)
    return federation


def _with_owners(text: str, clients: int, owners: Sequence[int]) -> str:
    """Say whose test set a message means that calls it a further client."""

    def name(found: re.Match[str]) -> str:
        number = int(found[1])
        return found[0] if number < clients else f"the test set of client {owners[number - clients]}"

    return re.sub(r"\bclient (\d+)", name, text)
