"""What probes cost: a round with each of them against one without, in interleaved pairs on one thread.

Prints a table of medians; `python benchmarks/probes.py --json` for a program. Nothing is asserted.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import fedkeel as fk
from fedkeel.probes import DEFAULT, Cosine, Divergence, Diversity, Drift, Layers, Losses, Probe
from fedkeel.running.panel import ProbePanel
from fedkeel.running.session import open_session
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings

ROUNDS = 60


def session(probes: tuple[Probe, ...] | None) -> Any:
    """Open a run; None has no probe at all, not even those that are always on."""
    federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=20, seed=0)
    task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
    work = fk.Work(epochs=5, batch_size=20, lr=0.05)
    settings = RunSettings(
        task=task,
        federation=federation,
        method=fk.FedAvg(),
        rounds=ROUNDS,
        cohort=10,
        work=work,
        probes=probes or (),
        eval_every=10,
    )
    opened = open_session(settings, Execution(engine="serial", threads=1))
    if probes is None:
        opened.context = opened.context._replace(panel=ProbePanel())
        opened.state = opened.state._replace(
            probes=opened.context.panel.begin(opened.state.x0, opened.context.oracle.layout)
        )
    return opened


def cpu(rounds: Iterator[Any]) -> float:
    """Play a round and return the processor's seconds: others on the machine do not count."""
    started = time.process_time()
    next(rounds)
    return time.process_time() - started


def overhead(probes: tuple[Probe, ...] | None) -> float:
    """Return the median ratio of a round's processor seconds with and without, less one."""
    plain, watched = session(None), session(probes)
    with closing(plain), closing(watched):
        first, second = plain.rounds(), watched.rounds()
        ratios = []
        for number in range(ROUNDS):
            if number % 2:
                before, after = cpu(first), cpu(second)
            else:
                after, before = cpu(second), cpu(first)
            ratios.append(after / before)
    return statistics.median(ratios) - 1


def main() -> None:
    cases: dict[str, tuple[Probe, ...] | None] = {
        "nothing against nothing: the noise": None,
        f"always on: {', '.join(type(p).__name__ for p in DEFAULT)}": (),
        **{
            repr(p): (p,)
            for p in (Diversity(), Divergence("cohort"), Divergence(), Drift(), Cosine(), Layers())
        },
        "Losses(every=10)": (Losses(),),
        "Losses(every=1)": (Losses(every=1),),
    }
    found = {name: overhead(probes) for name, probes in cases.items()}
    if "--json" in sys.argv:
        print(json.dumps(found, indent=2))
        return
    for name, share in found.items():
        print(f"{name:<45} {100 * share:+6.1f} %")


if __name__ == "__main__":
    main()
