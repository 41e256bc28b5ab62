"""A server of the live page on this machine, in a thread of the test."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedkeel.web.guarding import Guard
from fedkeel.web.server import make_server
from fedkeel.web.watching import Watch


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Served:
    """A live page that is served, and how to ask it for something."""

    def __init__(self, root: Path, *, control: bool) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.guard = Guard(self.port)
        self.server = make_server(Watch(root, control=control), self.guard)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.thread.start()

    def ask(
        self,
        path: str = "",
        *,
        method: str = "GET",
        token: str | None = None,
        body: str | None = None,
        **headers: str,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.guard.token if token is None else token
        connection.request(method, f"/{token}/{path}" if token else f"/{path}", body=body, headers=given)
        reply = connection.getresponse()
        found = Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read().decode())
        connection.close()
        return found

    def events(self, query: str = "") -> Iterator[tuple[str, str]]:
        """Yield events as a page hears them, until the server ends them."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", f"/{self.guard.token}/events{query}")
        reply = connection.getresponse()
        name = ""
        try:
            while line := reply.readline().decode():
                if line.startswith("event: "):
                    name = line[7:].strip()
                elif line.startswith("data: "):
                    yield name, line[6:]
        finally:
            connection.close()

    def end(self) -> None:
        self.server.end()
        self.thread.join(30)
        self.listening.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    served: list[Served] = []

    def start(root: Path | None = None, *, control: bool = False) -> Served:
        served.append(Served(root or tmp_path, control=control))
        return served[-1]

    yield start
    for one in served:
        one.end()
