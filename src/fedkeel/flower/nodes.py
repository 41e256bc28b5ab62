"""Who is there: which node has which client, found out by asking every node that appears."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fedkeel.common.errors import ConfigError, DataError, TooFewClients
from fedkeel.common.version import __version__
from fedkeel.engines.outcome import UnusableClient
from fedkeel.flower.envelope import HELLO, PROTOCOL, Envelope
from fedkeel.flower.replies import check_version

_MOST_SAMPLES = 2**40
_POLL = 1.0  # seconds: a SuperNode asks for messages every three
_HELLO_SECONDS = 120.0  # after which a node that has not answered is asked again

_logger = logging.getLogger("fedkeel")


class LinkError(NamedTuple):
    """What comes back for a message that no node has answered; `reason` is Flower's."""

    reason: str


class Link(Protocol):
    """The way to the nodes."""

    def nodes(self) -> set[int]:
        """Return the nodes that are online."""

    def send(self, node: int, kind: str, message: Envelope, seconds: float) -> str:
        """Send a message that may be answered within so many seconds; return its number."""

    def receive(self, sent: Collection[str]) -> Mapping[str, Envelope | LinkError]:
        """Return the replies that have come for messages, each once."""


class Clock(NamedTuple):
    """How time passes; tests have one of their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def tick(self) -> None:
        """Wait a moment."""
        self.sleep(_POLL)


class Hello(NamedTuple):
    """What a node says of itself."""

    client: int
    samples: int
    settings: str


class Registry:
    """The nodes by their clients' numbers. A client whose node went offline may come back on another."""

    def __init__(self, link: Link, clients: int, clock: Clock) -> None:
        self.link, self.clients, self.clock = link, clients, clock
        self.found: dict[int, Hello] = {}  # by client
        self._node_of: dict[int, int] = {}
        self._asked: dict[str, tuple[int, float]] = {}  # messages without a reply: to whom, and when
        self._refused: dict[int, str] = {}  # nodes that cannot take part, and why
        self._online: set[int] = set()
        self._settings: str | None = None
        self._samples: dict[int, int] = {}

    def resume(self, samples: Sequence[int]) -> None:
        """Take the clients' numbers of samples from a run that was begun before: none is waited for."""
        self._samples = dict(enumerate(samples))

    def expect(self, settings: str) -> None:
        """Take only nodes from now on whose code and settings are the server's."""
        self._settings = settings

    def node_of(self, client: int) -> int | None:
        """Return the node that has a client, None where none is online."""
        node = self._node_of.get(client)
        return node if node in self._online else None

    def refresh(self) -> None:
        """Look who is online, ask those who are new, and hear those who answer."""
        self._online, now = self.link.nodes(), self.clock.now()
        self._refused = {node: why for node, why in self._refused.items() if node in self._online}
        waited_for = {
            node
            for node, when in self._asked.values()
            if node in self._online and now - when < _HELLO_SECONDS
        }
        for node in sorted(self._online - {*self._node_of.values(), *waited_for, *self._refused}):
            message = Envelope({"protocol": PROTOCOL, "fedkeel": __version__})
            self._asked[self.link.send(node, HELLO, message, seconds=600.0)] = node, now
        for sent, reply in self.link.receive(list(self._asked)).items():
            node, _ = self._asked.pop(sent)
            if node not in self._node_of.values():
                self._hear(node, reply)

    def wait_for_all(self, seconds: float, told: Callable[[int], None]) -> None:
        """Wait until every client has a node; say who is missing where that takes too long."""
        end, before = self.clock.now() + seconds, -1
        while len(self.found) < self.clients:
            self.refresh()
            if self._refused:
                self._raise_refused()
            if len(self.found) != before:
                before = len(self.found)
                told(before)
            if self.clock.now() > end:
                missing = [str(one) for one in range(self.clients) if one not in self.found]
                raise TooFewClients(
                    f"after {seconds:g} seconds (deploy.wait_seconds) {len(self._online)} nodes are online, "
                    f"and of {self.clients} clients (deploy.clients) these have none: {', '.join(missing)}; "
                    "start their nodes, or give the number of clients that there are"
                )
            self.clock.tick()

    def _raise_refused(self) -> None:
        raise DataError(next(iter(self._refused.values())))

    def _hear(self, node: int, reply: Envelope | LinkError) -> None:
        try:
            hello = read_hello(reply, self.clients)
            self._welcome(node, hello)
        except UnusableClient as problem:
            client = None if isinstance(reply, LinkError) else reply.values.get("client")
            who = f"client {client} on node {node}" if isinstance(client, int) else f"node {node}"
            self._refused[node] = f"{who} cannot take part: {problem}"
            _logger.warning(self._refused[node])

    def _welcome(self, node: int, hello: Hello) -> None:
        before = self._samples.setdefault(hello.client, hello.samples)
        present = self.node_of(hello.client)
        if present is not None and present != node:
            raise UnusableClient(
                f"it says that it has client {hello.client}, which node {present} has: give every node "
                'a client of its own (--node-config "client=…")'
            )
        if self._settings is not None and hello.settings != self._settings:
            raise UnusableClient(OTHER_SETTINGS.format(client=hello.client))
        if before != hello.samples:
            raise UnusableClient(
                f"client {hello.client} has {hello.samples} samples, and had {before} when the run "
                "began: give it the same data"
            )
        self.found[hello.client] = hello
        self._node_of[hello.client] = node


OTHER_SETTINGS = (
    "client {client} has another task, method or initial weights than the server: let task() return the same "
    "on every machine (no random numbers of its own), with the same versions of fedkeel and torch"
)


def read_hello(reply: Envelope | LinkError, clients: int) -> Hello:
    """Return what a node says of itself; raise `UnusableClient` where it makes no sense."""
    if isinstance(reply, LinkError):
        raise UnusableClient(f"it did not answer ({reply.reason})")
    values: Mapping[str, Any] = reply.values
    check_version(values)
    if "failed" in values:
        raise UnusableClient(str(values["failed"]))
    client, samples, settings = (values.get(name) for name in ("client", "samples", "settings"))
    for name, given, low, high in (
        ("client", client, 0, clients - 1),
        ("samples", samples, 1, _MOST_SAMPLES),
    ):
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            raise UnusableClient(f"its {name} = {given!r} is not a whole number from {low} to {high}")
    return Hello(int(client or 0), int(samples or 0), str(settings))


def check_settings(found: Mapping[int, Hello], settings: str) -> None:
    """Refuse to begin where a node has other code or settings than the server."""
    for client, hello in sorted(found.items()):
        if hello.settings != settings:
            raise ConfigError(OTHER_SETTINGS.format(client=client))
