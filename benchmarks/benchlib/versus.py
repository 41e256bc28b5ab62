"""One workload: the bare loop, fedkeel's engines and the peers, interleaved."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchlib.contender import KEPT, Contender, Failed, bare, ours, peer
from benchlib.machine import load
from benchlib.plan import Log, Plan, Pythons
from benchlib.race import Columns, interleave
from benchlib.stats import median
from benchlib.workloads import Workload, make_data

BARE, SERIAL = "bare loop", "fedkeel serial"
BARE_KEPT = BARE + KEPT
ENGINES = ("serial", "stacked", "processes", "auto")
_SLOW = 1.0  # seconds per round from which a peer takes only every third turn


class Versus:
    """The contenders of a workload, and what came of them."""

    def __init__(self, workload: Workload, plan: Plan, log: Log, pythons: Pythons) -> None:
        self.workload, self.plan, self.log, self.pythons = workload, plan, log, pythons
        self.running: dict[str, Contender] = {}
        self.facts: dict[str, Any] = {}
        self.failures: dict[str, str] = {}

    def measure(self) -> dict[str, Any]:
        """Start all, find fedkeel's best engine, then measure it against the others in pairs."""
        before = load()
        with tempfile.TemporaryDirectory() as place:
            self.data = str(Path(place) / "data.pt")
            torch.save(make_data(self.workload), self.data)
            try:
                self._start_all()
                screening = self._race("screening", self.plan.screening, self.plan.screening_seconds, least=1)
                best = _best(screening)
                self._keep({BARE, BARE_KEPT, SERIAL, best, "pfl", "fedlab"})
                pairs = self._race(
                    "pairs", self.plan.repetitions, self.plan.pairs_seconds, self._rare(screening)
                )
                flower = self._flower(best)
            finally:
                self._keep(set())
        return {
            "workload": self.workload.to_json(),
            "best": best,
            "screening": screening,
            "pairs": pairs,
            "flower": flower,
            "facts": self.facts,
            "failures": self.failures,
            "load": [before, load()],
        }

    def _start_all(self) -> None:
        workload, data = self.workload, self.data
        self._start(BARE, lambda: bare(workload, data, BARE))
        best = self.facts.get(BARE, {})
        threads, variant = (
            best.get("threads", 1),
            {key: best[key] for key in ("threads", "form") if key in best},
        )
        self._start(BARE_KEPT, lambda: bare(workload, data, BARE_KEPT, **variant))
        for engine in ENGINES if not self.plan.quick else ("serial", "stacked", "auto"):
            options = {"threads": threads} if engine == "serial" else {}
            name = f"fedkeel {engine}"
            self._start(name, lambda n=name, e=engine, o=options: ours(workload, data, n, engine=e, **o))
        for name in ("pfl", "fedlab"):
            if name in self.pythons:
                self._start(name, lambda n=name: peer(n, self.pythons[n], workload, data, threads))

    def _start(self, name: str, make: Callable[[], Contender]) -> None:
        self.log.say(f"{self.workload.name}: starting {name}")
        contender = make()
        try:
            contender.start()
        except Failed as problem:
            self._failed(name, problem)
            return
        self.running[name], self.facts[name] = contender, contender.facts

    def _failed(self, name: str, problem: Exception) -> None:
        self.failures[name] = str(problem)
        self.log.note(f"{self.workload.name}: {name} does not run: {problem}")

    def _keep(self, names: set[str]) -> None:
        for name in set(self.running) - names:
            self.running.pop(name).close()

    def _rare(self, screening: Columns) -> dict[str, int]:
        """Let the peer that no figure asks for sit out some turns where rounds are long."""
        if median(screening[BARE]) < _SLOW or self.plan.quick:
            return {}
        return {"fedlab": 3}

    def _race(
        self, what: str, repetitions: int, budget: float, every: dict[str, int] | None = None, least: int = 3
    ) -> Columns:
        return interleave(
            self.running,
            repetitions,
            budget=budget,
            least=min(least, repetitions),
            every=every,
            failed=self._failed,
            report=lambda text: self.log.say(f"{self.workload.name}: {what} {text}"),
        )

    def _flower(self, best: str) -> Columns:
        """Measure Flower against fedkeel's best alone: Ray's idle processes would disturb the others."""
        self._keep({best})
        if "flwr" not in self.pythons:
            return {}
        self._start("flwr", lambda: peer("flwr", self.pythons["flwr"], self.workload, self.data, 1))
        if "flwr" not in self.running:
            return {}
        return self._race("flwr", self.plan.repetitions, self.plan.peer_seconds)


def _best(screening: Columns) -> str:
    """Return fedkeel's fastest engine."""
    engines = [name for name, column in screening.items() if name.startswith("fedkeel") and any(column)]
    return min(engines, key=lambda name: median(screening[name]))
