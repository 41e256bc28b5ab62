"""All that touches Flower: its apps, its messages, and the way to its nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch

from fedkeel.common.errors import ConfigError
from fedkeel.flower.envelope import HELLO, TRAIN, Envelope
from fedkeel.flower.nodes import Link, LinkError

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:
    raise ConfigError('a deployment needs Flower: pip install "fedkeel[flower]"') from None

_VALUES, _TENSORS = "fedkeel", "tensors"

ServerMain = Callable[[Link, Mapping[str, Any]], object]
Answer = Callable[[str, Envelope, Mapping[str, Any], Mapping[str, Any]], Envelope]


def server_app(main: ServerMain) -> Any:
    """Return a ServerApp that calls a function with the way to the nodes and the run config."""
    app = ServerApp()

    def run(grid: Grid, context: Context) -> None:
        main(GridLink(grid), dict(context.run_config))

    app.main()(run)
    return app


def client_app(answer: Answer) -> Any:
    """Return a ClientApp that answers every message by a function."""
    app = ClientApp()

    def respond(kind: str, message: Message, context: Context) -> Message:
        reply = answer(kind, unwrap(message.content), dict(context.run_config), dict(context.node_config))
        return Message(content=wrap(reply), reply_to=message)

    def query(message: Message, context: Context) -> Message:
        return respond(HELLO, message, context)

    def train(message: Message, context: Context) -> Message:
        return respond(TRAIN, message, context)

    app.query()(query)
    app.train()(train)
    return app


class GridLink:
    """The way to the nodes through a SuperLink."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> set[int]:
        """Return the nodes that are online."""
        return set(self._grid.get_node_ids())

    def send(self, node: int, kind: str, message: Envelope, seconds: float) -> str:
        """Send a message that may be answered within so many seconds; return its number."""
        sent = Message(content=wrap(message), dst_node_id=node, message_type=kind, ttl=seconds)
        (number,) = self._grid.push_messages([sent])
        return str(number)

    def receive(self, sent: Collection[str]) -> Mapping[str, Envelope | LinkError]:
        """Return the replies that have come for messages, each once."""
        found: dict[str, Envelope | LinkError] = {}
        for reply in self._grid.pull_messages(list(sent)) if sent else ():
            number = str(reply.metadata.reply_to_message_id)
            if reply.has_error():
                found[number] = LinkError(str(reply.error.reason or f"error {reply.error.code}"))
            else:
                found[number] = unwrap(reply.content)
        return found


def wrap(message: Envelope) -> RecordDict:
    """Return a message in Flower's records."""
    arrays = ArrayRecord({name: Array(tensor.numpy()) for name, tensor in message.tensors.items()})
    return RecordDict({_VALUES: ConfigRecord({"json": json.dumps(dict(message.values))}), _TENSORS: arrays})


def unwrap(content: RecordDict) -> Envelope:
    """Return the message in Flower's records; one that is not ours has nothing that we know."""
    try:
        values = json.loads(str(content[_VALUES]["json"]))
        arrays = content[_TENSORS]
        if not isinstance(values, dict) or not isinstance(arrays, ArrayRecord) or len(content) != 2:
            raise ValueError("other records than fedkeel's")
        tensors = {str(name): _tensor(array) for name, array in arrays.items()}
    except Exception as problem:  # of whatever a node may send
        return Envelope({"unreadable": f"{type(problem).__name__}: {problem}"})
    return Envelope(values, tensors)


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(array.numpy()))  # a copy: what arrived is read-only
