"""An app for tests: small data that needs nothing but NumPy, and nodes that do wrong when told to."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedkeel as fk
from fedkeel.flower import Deployment, Node
from fedkeel.flower.adapter import client_app, server_app
from fedkeel.flower.envelope import Envelope
from fedkeel.flower.node import answer
from fedkeel.flower.serve import serve

FEATURES, CLASSES = 6, 3


def task() -> fk.Task:
    """Return a small network."""
    return fk.Task(network)


def network() -> torch.nn.Module:
    """Return its layers."""
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES))


def drawn(number: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples whose classes are skewed by the client's number."""
    rng = np.random.default_rng(number)
    x = rng.normal(size=(samples, FEATURES)).astype(np.float32)
    y = (x @ np.arange(FEATURES * CLASSES).reshape(FEATURES, CLASSES) + number).argmax(1)
    return x, y


def data(node: Node) -> Any:
    """Return the client's own samples."""
    return drawn(node.client, 30 + 7 * node.client)


def test() -> Any:
    """Return what the server evaluates on."""
    return drawn(100, 60)


deployment = Deployment(task, data, test=test, classes=CLASSES)


def misbehaving(kind: str, message: Envelope, run: Mapping[str, Any], node: Mapping[str, Any]) -> Envelope:
    """Answer as a node does, or wrongly where the run's `mischief` says so for this client and round."""
    words = [text.rsplit(" ", 1) for text in str(run.get("mischief") or "").split("; ") if text]
    told = dict(words)
    settings = {name: value for name, value in run.items() if name != "mischief"}
    what = told.get(f"{kind} {node['client']} {message.values.get('round')}")
    held = Path(f"{node['state']}.held")
    if what == "hold" and not held.exists():  # once: the node is killed meanwhile
        held.touch()
        time.sleep(600)
    reply = answer(deployment, kind, message, settings, node)
    tensors = dict(reply.tensors)
    if what == "nan":
        tensors |= {name: tensor * float("nan") for name, tensor in tensors.items()}
    elif what == "shape":
        tensors |= {name: tensor[:1] for name, tensor in tensors.items() if name.startswith("up")}
    elif what == "extra":
        tensors["gift"] = torch.zeros(3)
    values = dict(reply.values)
    if what == "count":
        values["samples"] = -30
    elif what == "version":
        values["fedkeel"] = "0.0.9"
    return Envelope(values, tensors)


def serving(link: Any, config: Mapping[str, Any]) -> Any:
    """Serve without the word that only nodes understand."""
    return serve(deployment, link, {name: value for name, value in config.items() if name != "mischief"})


client = client_app(misbehaving)
server = server_app(serving)
