"""Clients that drop out, take too long, crash, or send NaN, wrong shapes and huge numbers."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from harness import Progress, Tally, random_of
from problems import session_of
from test_client_failures import BROKEN, Sensors, by_hand, federation
from torch.nn.functional import cross_entropy

import fedkeel as fk
from fedkeel.running.session import Session
from fedkeel.tensors.records import leaves

NAME = "clients"
FAULT = "clients that drop, straggle, crash, return NaN/inf, wrong shapes, huge norms"
MUST_HOLD = (
    "the round of the same cohort with those slots empty, to the bit; history names them; exit 5 below quorum"
)
COUNT = 200

_ROUNDS, _COHORT, _CLIENTS, _QUORUM = 3, 19, 24, 6
_BOUND = 1e4
_METHODS = [method for method in (one() for one in fk.METHODS) if "features" not in repr(method)]


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    """Let clients fail in short runs and compute every round by hand without them."""
    tally = Tally()
    for number in progress.tries(count):
        rng = random_of(seed, number)
        try:
            problem = _try(rng, number, tally)
        except fk.TooFewClients as told:
            if "clients answered, and min_clients = " in str(told) and told.exit_code == 5:
                tally.refused += 1
                continue
            problem = str(told)
        except Exception as other:
            problem = f"{type(other).__name__}: {other}"
        if problem is None:
            tally.exact += 1
        else:
            tally.fail(number, problem)
    return tally


def _try(rng: random.Random, number: int, tally: Tally) -> str | None:
    """Play a run with broken clients and simulated faults; return what went wrong, None where all held."""
    broken = tuple(rng.sample(range(1, _CLIENTS), rng.randint(0, 3)))
    value = rng.choice([BROKEN, 1e38])
    shares = [rng.choice([0.0, 0.05, 0.15, 0.25 if number % 5 == 0 else 0.1]) for _ in range(4)]
    faults = fk.Faults(*shares, seed=number)
    method: Any = rng.choice(_METHODS)
    weighting = rng.choice(["uniform", "samples"])
    data = federation(_CLIENTS, broken, value)
    weights = [1.0] * _CLIENTS if weighting == "uniform" else data.sizes.double().tolist()
    options: dict[str, Any] = {
        "rounds": _ROUNDS,
        "cohort": _COHORT,
        "work": fk.Work(epochs=2, batch_size=4, lr=0.02, last_batch="merge"),
        "weighting": weighting,
        "on_client_error": "skip",
        "min_clients": _QUORUM,
        "max_upload_norm": _BOUND,
        "faults": faults,
        "threads": 1,
        "seed": number,
    }
    task = fk.Task(Sensors, cross_entropy)
    engine = "processes" if number % 4 == 0 else "serial"
    with (
        closing(session_of(task, data, method, **options, engine=engine, workers=2)) as session,
        closing(session_of(task, data, method, **options, engine="serial")) as beside,
    ):
        rounds = session.rounds()
        while not session.finished:
            row, state = None, session.state
            beside.state, beside.store = session.state, session.store
            absent = {c for c in range(_CLIENTS) if c in broken or faults.of(state.round, c) is not None}
            drawn = set(session.context.population.draw(state.round))
            if len(drawn - absent) < _QUORUM:
                tally.note("below the quorum")
                list(rounds)
                return "the run went on below its quorum"
            server, memories = by_hand(beside, absent, weights)
            row = next(rounds)
            told = {one["client"] for one in row.get("skipped", [])}
            if told != absent & drawn:
                return f"left out {sorted(told)} instead of {sorted(absent & drawn)}"
            for one in row.get("skipped", []):
                tally.note(_kind(one["reason"]))
            problem = _difference(session, server, memories)
            if problem is not None:
                return f"{method!r}, round {row['round']}: {problem}"
    return None


def _kind(reason: str) -> str:
    """Return a reason in a word or two."""
    kinds = {
        "dropped": "dropped out",
        "took": "took too long",
        "crashed": "crashed",
        "RuntimeError": "raised",
        "NaN or infinite": "NaN or infinite",
        "shape": "wrong shape",
        "norm": "huge norm",
    }
    return next((told for word, told in kinds.items() if word in reason), reason)


def _difference(session: Session, server: Any, memories: dict[int, Any]) -> str | None:
    """Say in what a round differs from the one computed by hand."""
    for (name, mine), (_, found) in zip(leaves(server), leaves(session.state.server), strict=True):
        if not torch.equal(mine, found):
            return f"the server's {name} differs"
    for client, memory in memories.items():
        kept = session.store[client].method if client in session.store else None
        for (name, mine), (_, found) in zip(leaves(memory), leaves(kept), strict=True):
            if not torch.equal(mine, found):
                return f"{name} of client {client} differs"
    return None
