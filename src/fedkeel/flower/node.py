"""A node's part: what it answers when it is asked who it is, and when it is asked to train."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedkeel.common.errors import Diverged
from fedkeel.common.identity import stable_name
from fedkeel.common.version import __version__
from fedkeel.core.oracle import Oracle, device_of
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import ClientResult, RoundRequest
from fedkeel.engines.outcome import failure_of
from fedkeel.engines.serial import threads
from fedkeel.engines.sizing import fits_channels_last, sensible_threads
from fedkeel.flower.deployment import Deployment, Node
from fedkeel.flower.envelope import HELLO, PROTOCOL, Envelope, packed, unpacked
from fedkeel.flower.memory import MemoryDirectory, MemoryLost
from fedkeel.flower.options import RunConfig
from fedkeel.probes.client import ClientProbes
from fedkeel.running.panel import ProbePanel, assemble, worth_keeping
from fedkeel.running.preflight import check, check_leftovers
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory, RecordList, leaves


def answer(
    deployment: Deployment, kind: str, message: Envelope, run: Mapping[str, Any], node: Mapping[str, Any]
) -> Envelope:
    """Answer a message; what goes wrong here is an answer too, so that the server can name it."""
    try:
        config = RunConfig.read(run)
        client = ClientNode(deployment, config, Node.of(node, config.options.clients))
        return client.hello() if kind == HELLO else client.train(message)
    except MemoryLost as problem:
        return Envelope({**_who(message), "lost": str(problem)})
    except Diverged as problem:
        told = {"failed": str(problem), "diverged": True, "layer": problem.layer}
        return Envelope({**_who(message), **told})
    except Exception as problem:
        told = {"client": node.get("client"), "failed": failure_of(0, problem).reason}
        return Envelope({**_who(message), **told})


def _who(message: Envelope) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "fedkeel": __version__,
        "round": message.values.get("round"),
        "run": message.values.get("run"),
    }


class ClientNode:
    """A node's client in one run: built for every message, since each has a process of its own."""

    def __init__(self, deployment: Deployment, config: RunConfig, node: Node) -> None:
        self.node, self.settings = node, deployment.on_node(config, node)
        self.oracle = Oracle(self.settings.task, device_of(config.experiment.device))
        self.runner = ClientRunner(self.settings, self.oracle)
        self.oracle.channels_last = fits_channels_last(self.settings, self.oracle)
        self.threads = config.experiment.threads or sensible_threads(self.settings, self.oracle)

    def hello(self) -> Envelope:
        """Say which client is here and how many samples it has, once its data and model fit together."""
        check(self.settings, self.oracle)
        check_leftovers(self.settings, self.oracle)
        return Envelope(
            {
                "protocol": PROTOCOL,
                "fedkeel": __version__,
                "client": self.node.client,
                "samples": self.samples,
                "settings": settings_digest(self.settings, self.oracle),
            }
        )

    @property
    def samples(self) -> int:
        """Return how many samples there are to train on."""
        return len(self.settings.federation.rows(self.node.client))

    def train(self, message: Envelope) -> Envelope:
        """Do a round from the version of the memory that the server names, and keep what comes of it."""
        values, client = message.values, self.node.client
        if values["client"] != client:
            raise ValueError(f"this node has client {client}, and was asked for {values['client']}")
        kept = MemoryDirectory(self.node.state / str(values["run"]) / f"client-{client}")
        with kept.locked(), threads(self.threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request, memory = self._request(message, kept)
            result = self.runner.run(request, client, memory)
            if worth_keeping(result.memory):
                kept.write(request.round + 1, dict(leaves(result.memory)), base=values["base"])
        return self._reply(message, result)

    def _request(self, message: Envelope, kept: MemoryDirectory) -> tuple[RoundRequest, ClientMemory]:
        values, tensors, device = message.values, message.tensors, self.oracle.device
        algorithm = self.settings.played_stages.parts[values["stage"]].method
        panel = assemble(self.settings, self.oracle)
        x0 = self.oracle.point.clone()
        states = panel.begin(x0, self.oracle.layout)
        down = unpacked(algorithm.broadcast(algorithm.init(x0)), tensors, "down", device)
        template = ClientMemory(algorithm.init_client(x0), panel.first_notes(states))
        sent = {
            name.removeprefix("memory."): tensor
            for name, tensor in tensors.items()
            if name.startswith("memory.")
        }
        stored = _stored(kept, values["base"], sent, keep_method=not values["fresh"])
        known = {f"memory.{name}": tensor for name, tensor in {**stored, **sent}.items()}
        memory: ClientMemory = unpacked(template, known, "memory", device)
        request = RoundRequest(
            algorithm,
            values["round"],
            values["lr"],
            down,
            unpacked(self.oracle.buffers, tensors, "buffers", device),
            [self.node.client],
            [1.0],
            _probes(panel, states, message, device),
            stage=values["stage"],
            mean_samples=values["mean_samples"],
            rate_factor=values["rate_factor"],
        )
        return request, memory

    def _reply(self, message: Envelope, result: ClientResult) -> Envelope:
        assert result.upload is not None
        up, buffers = result.upload
        values = {
            **_who(message),
            "client": self.node.client,
            "samples": self.samples,
            "loss": result.loss,
            "gradients": result.gradients,
            "passes": None if result.passes is None else list(result.passes),
        }
        return Envelope(values, packed(up=up, buffers=buffers, measures=result.measures))


def _stored(
    kept: MemoryDirectory, base: int, sent: Mapping[str, Tensor], *, keep_method: bool
) -> dict[str, Tensor]:
    """Return what counts of the version that the server names; 0 is none."""
    if base == 0:
        return {}
    found = kept.read(base)
    return {name: tensor for name, tensor in found.items() if keep_method or name.startswith("notes.")}


def _probes(
    panel: ProbePanel, states: RecordList, message: Envelope, device: torch.device
) -> ClientProbes | None:
    """Return what is measured here in this round, None where nothing is."""
    due = message.values["due"]
    if due is None:
        return None
    briefs = RecordList(*(probe.brief(state) for probe, state in zip(panel.probes, states, strict=True)))
    return ClientProbes(panel.probes, tuple(due), unpacked(briefs, message.tensors, "briefs", device))


def settings_digest(settings: RunSettings, oracle: Oracle) -> str:
    """Return a hash of all that both sides must share: method, work, options, model and its weights."""
    weights = hashlib.sha256(oracle.point.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
    shared = {
        "algorithm": stable_name(settings.method),
        "work": stable_name(settings.work),
        "task": settings.task.describe(),
        "probes": [stable_name(probe) for probe in settings.probes],
        "weights": weights,
        **{name: value for name, value in settings.plain.items() if name != "evaluate_on"},
    }
    text = json.dumps(shared, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
