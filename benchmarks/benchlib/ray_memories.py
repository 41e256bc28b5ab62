"""What clients' memories cost the driver: 10⁶ clients, of which some thousand take part, with and without.

A process of its own: `python -m benchlib.ray_memories JOB` writes one line of JSON. Each client takes a
single step, so that hardly anything but the driver's work is left.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

os.environ["FEDKEEL_MEMORY_BUDGET"] = "1K"  # all memories lie in the file: what is left is a round's

import torch

import fedkeel as fk
from benchlib.ours import opened
from benchlib.turns import job
from fedkeel.engines.ray.cluster import connect
from fedkeel.models import build

_SAMPLES, _FEATURES, _CLASSES = 8, 784, 10


def load(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a client's samples."""
    generator = torch.Generator().manual_seed(client)
    y = torch.randint(_CLASSES, (_SAMPLES,), generator=generator)
    return torch.randn(_SAMPLES, _FEATURES, generator=generator), y


class Peak:
    """The largest memory of this process's own while it was watched."""

    def __init__(self) -> None:
        self.bytes, self._end = _own_bytes(), threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look every few milliseconds."""
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._end.set()
            watcher.join()

    def _watch(self) -> None:
        while not self._end.wait(0.005):
            self.bytes = max(self.bytes, _own_bytes())


def _own_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "the kernel tells no RssAnon"
    return 1024 * int(found[1])


def measure(clients: int, cohort: int, rounds: int) -> dict[str, Any]:
    """Return the seconds of a round and the driver's bytes, of FedAvg and of SCAFFOLD."""
    torch.set_num_threads(1)
    sizes = torch.full((clients,), _SAMPLES)
    federation = fk.Federation.from_clients(clients, load, sizes=sizes, classes=_CLASSES, cache=0)
    task = fk.Task(build("logistic", shape=(_FEATURES,), classes=_CLASSES))
    work = fk.Work(steps=1, batch_size=_SAMPLES, lr=0.01)
    found: dict[str, Any] = {"clients": clients, "cohort": cohort}
    with closing(connect(None)):
        for name, method in (("fedavg", fk.FedAvg()), ("scaffold", fk.SCAFFOLD())):
            given = {"rounds": rounds + 1, "cohort": cohort, "work": work, "evaluate_on": "nothing"}
            with closing(opened(task, federation, method, engine="ray", threads=1, **given)) as made:
                played = made.rounds()
                next(played)
                found["memory"] = made.context.oracle.point.nbytes
                found[name] = _watched(played)
    return found


def _watched(played: Iterator[Any]) -> dict[str, float]:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the first round freed is given back, so that growth is seen
    before, peak, seconds = _own_bytes(), Peak(), list[float]()
    with peak.watched():
        started = time.perf_counter()
        for _ in played:
            seconds.append(time.perf_counter() - started)
            started = time.perf_counter()
    return {"seconds": statistics.median(seconds), "bytes": peak.bytes - before}


def main() -> None:
    """Measure what is asked for."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever Ray prints is no answer
    out.write(json.dumps(measure(**job())) + "\n")
    out.close()


if __name__ == "__main__":
    main()
