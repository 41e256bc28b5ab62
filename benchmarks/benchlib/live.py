"""`fedkeel watch` as a process of its own, and a page that listens to it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Page:
    """A page that hears events, in a thread."""

    def __init__(self, address: str) -> None:
        host, _, self.path = address.removeprefix("http://").partition("/")
        self.connection = http.client.HTTPConnection(host, timeout=600)
        self.connection.request("GET", f"/{self.path}events")
        self.reply = self.connection.getresponse()
        self.bytes, self.events = 0, 0
        self.first: float | None = None
        self.first_bytes, self.last = 0, b""
        self.heard = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            while line := self.reply.readline():
                self.bytes += len(line)
                if line.startswith(b"data: "):
                    self.events += 1
                    self.last = line[6:]
                    if self.first is None:
                        self.first, self.first_bytes = time.perf_counter(), len(line)
                    self.heard.set()
        except (OSError, AttributeError, ValueError):
            return

    def rounds(self) -> int:
        """Return the rounds of all runs, as the page says."""
        found = json.loads(self.last)
        facts = dict(found.get("document", found)["facts"])
        return int(facts.get("rounds", "0").replace(",", ""))

    def close(self) -> None:
        """Hear no more."""
        sock = self.connection.sock or getattr(self.reply.fp.raw, "_sock", None)
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


@contextmanager
def watching(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fedkeel", "watch", str(root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().split(": ")[1].strip()
    try:
        yield process, address
    finally:
        process.terminate()
        process.wait()


def cpu_of(process: subprocess.Popen[str]) -> float:
    """Return the processor's seconds of a process so far, by the scheduler's clock, finer than ticks."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def memory_of(process: subprocess.Popen[str]) -> float:
    """Return the largest memory of a process so far, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1000
