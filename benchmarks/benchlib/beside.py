"""What an open live page costs a run in training: blocks of rounds with and without one, in turns.

One run trains in this process; `fedkeel watch` looks at it all the time, and a page is opened and closed
between blocks, in the order ABBA, so that a machine that grows slower weighs on both alike. Neighbouring
blocks are compared: the median of many ratios, with a bootstrap interval, says more than two long runs.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import fedkeel as fk
from benchlib.live import Page, cpu_of, watching
from benchlib.stats import Ratio, ratio, verdict
from fedkeel.running.requests import RunRequests

BLOCK, SETTLING = 20, 5  # rounds of a block, and those before it that are not timed


class BlockTimes(NamedTuple):
    """Seconds of a block: by the clock, of the training process's processor, of the watching one's."""

    wall: float
    training: float
    watching: float


def shown(found: Ratio | None) -> str:
    """Return how much larger something is with an open page, with its 95 % interval."""
    if found is None:
        return "not measured"
    median, low, high = (f"{100 * (each - 1):+.2f}".replace("-", "−") for each in found[:3])
    return f"{median} % ({low} to {high}, {found.pairs} pairs)"


class Beside:
    """The blocks of a run; a callback of its training."""

    def __init__(self, address: str, watcher: Any, minutes: float) -> None:
        self.blocks: list[tuple[bool, BlockTimes]] = []
        self._address, self._watcher = address, watcher
        self._until = time.monotonic() + 60 * minutes
        self._page: Page | None = None
        self._inside = 0
        self._begun = self._now()

    def __call__(self, row: dict[str, Any]) -> bool:
        """Count a round; tell whether that was the last."""
        self._inside += 1
        if self._inside == SETTLING:
            self._begun = self._now()
        if self._inside == SETTLING + BLOCK:
            now = self._now()
            times = (after - before for before, after in zip(self._begun, now, strict=True))
            self.blocks.append((self._page is not None, BlockTimes(*times)))
            if len(self.blocks) % 2 == 1:  # so A B, B A, A B, …
                self._toggle()
            self._inside = 0
        done = len(self.blocks) % 2 == 0 and self._inside == 0 and time.monotonic() > self._until
        if done and self._page is not None:
            self._toggle()
        return done

    def _now(self) -> BlockTimes:
        return BlockTimes(time.perf_counter(), time.process_time(), cpu_of(self._watcher))

    def _toggle(self) -> None:
        if self._page is None:
            self._page = Page(self._address)
            self._page.heard.wait(10)
        else:
            self._page.close()
            self._page = None

    def pairs(self) -> tuple[list[BlockTimes], list[BlockTimes]]:
        """Return the blocks without a page, and their neighbours with one."""
        without = [times for open, times in self.blocks if not open]
        return without, [times for open, times in self.blocks if open]


def train(root: Path, minutes: float) -> dict[str, str]:
    """Train beside the live page for that long; return what was measured."""
    with watching(root) as (process, address):
        beside = Beside(address, process, minutes)
        federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=50, seed=0)
        fk.train(
            fk.Task(fk.models.mlp),
            federation,
            fk.SCAFFOLD(),
            rounds=1_000_000,
            cohort=10,
            work=fk.Work(epochs=5, batch_size=20, lr=0.05),
            execution=fk.Execution("serial", threads=1),
            run_dir=root / "run",
            callbacks=beside,
            progress=False,
        )
    return {
        **figures(*beside.pairs()),
        "the run looks for a request": f"{1e6 * request_seconds(root):.1f} µs per round",
    }


def figures(without: list[BlockTimes], page: list[BlockTimes]) -> dict[str, str]:
    """Return what blocks without and with a page say, pair by pair."""
    each = statistics.median(one.wall for one in without) / BLOCK
    shares = [
        100 * sum(one.watching for one in kind) / sum(one.wall for one in kind) for kind in (without, page)
    ]
    wall = ratio([one.wall for one in page], [one.wall for one in without])
    own = ratio([one.training for one in page], [one.training for one in without])
    return {
        "a round of the run in training": f"{1000 * each:.1f} ms",
        "a page open: slower by the clock (95 % interval)": shown(wall),
        "at most 1 % slower": verdict(wall, 1.01, at_least=False),
        "a page open: more of the training's own processor seconds": shown(own),
        "watching it: no page; a page open": f"{shares[0]:.2f} %; {shares[1]:.2f} % of a core",
    }


def request_seconds(root: Path) -> float:
    requests, started = RunRequests(root), time.perf_counter()
    for _ in range(10_000):
        requests.follow(lambda: None)
    return (time.perf_counter() - started) / 10_000
