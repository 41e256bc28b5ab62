"""Nodes in this process: what a SuperLink and SuperNodes do, without their processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import flat

import fedkeel as fk
from fedkeel.flower.deployment import Deployment, Node
from fedkeel.flower.envelope import Envelope
from fedkeel.flower.node import answer
from fedkeel.flower.nodes import Clock, LinkError

CLIENTS = 4
WORK = fk.Work(epochs=1, batch_size=20, lr=0.1, lr_decay=0.9, weight_decay=1e-3)
SETTINGS = {
    "rounds": 3,
    "cohort": 3,
    "seed": 5,
    "threads": 1,
    "on_client_error": "skip",
    "work.epochs": 1,
    "work.batch_size": 20,
    "work.lr": 0.1,
    "work.lr_decay": 0.9,
    "work.weight_decay": 1e-3,
    "deploy.clients": CLIENTS,
}


def federation() -> fk.Federation:
    return fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=CLIENTS, seed=0)


def deployment(**options: Any) -> Deployment:
    """Digits over four nodes, each of which reads its own part."""
    whole = federation()

    def data(node: Node) -> Any:
        return whole.samples(node.client)

    given = {"test": lambda: whole.test, "transform": whole.transform, "classes": whole.classes, **options}
    return Deployment(lambda: fk.Task(fk.models.mlp), data, **given)


def simulation(method: Any, work: fk.Work = WORK, **options: Any) -> fk.Result:
    from fedkeel.experiments.expression import parse_method

    made = parse_method(method) if isinstance(method, str) else method
    settings = {"rounds": 3, "cohort": 3, "seed": 5, "threads": 1, "engine": "serial", **options}
    return flat.train(fk.Task(fk.models.mlp), federation(), made, work=work, **settings)


class FakeClock:
    """Time that passes only when somebody waits."""

    def __init__(self) -> None:
        self.time = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.time, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.time += seconds


Change = Callable[[int, Envelope], Envelope | LinkError | None]


class FakeLink:
    """Answers every message at once; `change` may alter, spoil or swallow what a client replies."""

    def __init__(
        self, made: Deployment, config: Mapping[str, Any], state: Path, change: Change | None = None
    ) -> None:
        self.made, self.config, self.state = made, dict(config), state
        self.change = change or (lambda client, reply: reply)
        self.online = set(range(100, 100 + self.config["deploy.clients"]))
        self.replies: dict[str, Envelope | LinkError] = {}
        self.sent: list[tuple[int, str, Envelope]] = []

    def nodes(self) -> set[int]:
        return set(self.online)

    def send(self, node: int, kind: str, message: Envelope, seconds: float) -> str:
        number = str(len(self.sent))
        self.sent.append((node - 100, kind, message))
        own = {"client": node - 100, "state": str(self.state / f"node{node - 100}")}
        reply = answer(self.made, kind, message, self.config, own)
        changed = self.change(node - 100, reply) if kind == "train" else reply
        if changed is not None:
            self.replies[number] = changed
        return number

    def receive(self, sent: Collection[str]) -> Mapping[str, Envelope | LinkError]:
        return {number: self.replies.pop(number) for number in list(sent) if number in self.replies}
