"""Runs that diverge, and runs that do not."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import flat
import torch
from harness import Progress, Tally, random_of
from torch import nn

import fedkeel as fk
from fedkeel.running.population import Population
from fedkeel.settings.run_settings import RunSettings

NAME = "divergence"
FAULT = "divergence: one planted run and one healthy run in turn"
MUST_HOLD = "found within a round with client and layer; no false alarm; rollback goes back and goes on"
COUNT = 100

_CLIENTS, _ROUNDS = 12, 8
_METHODS = (
    fk.FedAvg(),
    fk.FedProx(0.1),
    fk.FedAvgM(),
    fk.SCAFFOLD(),
    fk.FedDyn(0.1),
    fk.FedCM(),
    fk.FedSAM(0.1),
    fk.FedNova(),
    fk.FedInit(0.05),
)


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    """Plant divergences in every other run."""
    tally = Tally()
    for number in progress.tries(count):
        rng = random_of(seed, number)
        try:
            problem = (_healthy, _wild_client, _healthy, _wild_rate)[number % 4](rng, number)
        except Exception as other:
            problem = f"{type(other).__name__}: {other}"
        tally.note("planted" if number % 2 else "healthy")
        if problem is None:
            tally.exact += 1
        else:
            tally.fail(number, problem)
    return tally


def _healthy(rng: random.Random, number: int) -> str | None:
    """A run that learns raises no alarm, and is the same with a rollback that is never needed."""
    method, lr = rng.choice(_METHODS), rng.choice([0.01, 0.05, 0.2, 0.5])
    found, plain = (_train(method, lr, number, on_divergence=how) for how in ("rollback", "stop"))
    if any("rolled_back" in row for row in found.history):
        return f"{method!r}, lr = {lr}: a false alarm: {found.history}"
    return None if _equal(found, plain) else f"{method!r}, lr = {lr}: other results with rollback"


def _wild_client(rng: random.Random, number: int) -> str | None:
    """A client whose data explode is named in the first round in which it is drawn; the others go on."""
    steady = [method for method in _METHODS if not isinstance(method, fk.FedSAM)]  # which shifts it away
    method, client = rng.choice(steady), rng.randrange(1, _CLIENTS)
    first = _first_round(client, number)
    if first is None:
        return None  # it is never drawn
    try:
        _train(method, 0.05, number, wild=client)
    except fk.Diverged as told:
        if (told.round, told.client) != (first, client) or told.layer is None:
            return f"{method!r}: named {told.round, told.client, told.layer} instead of {first, client}"
    else:
        return f"{method!r}: client {client} was not noticed"
    result = _train(method, 0.05, number, wild=client, on_client_error="skip")
    left = {one["client"] for row in result.history for one in row.get("skipped", [])}
    return None if left == {client} and _is_finite(result) else f"{method!r}: left out {left}"


def _wild_rate(rng: random.Random, number: int) -> str | None:
    """A rate far too large is found in the first round; a rollback finds one that works."""
    method, lr = rng.choice(_METHODS), 10.0 ** rng.uniform(15, 25)
    try:
        _train(method, lr, number)
    except fk.Diverged as told:
        if told.round != 0 or told.client is None or told.layer is None:
            return f"{method!r}, lr = {lr:g}: named {told.round, told.client, told.layer}"
    else:
        return f"{method!r}, lr = {lr:g}: not noticed"
    result = _train(method, lr, number, on_divergence="rollback", rollback_tries=60)
    events = [event for row in result.history for event in row.get("rolled_back", [])]
    if not events or any(event["layer"] is None for event in events):
        return f"{method!r}, lr = {lr:g}: rollbacks are not recorded: {events}"
    if not _is_finite(result) or len(result.history) != _ROUNDS:
        return f"{method!r}, lr = {lr:g}: {len(result.history)} rounds after {len(events)} rollbacks"
    return None


def _federation(number: int, wild: int | None) -> fk.Federation:
    rng = torch.Generator().manual_seed(number)
    centres = torch.randn(3, 5, generator=rng)
    data = []
    for client in range(_CLIENTS):
        y = torch.arange(16) % 3
        x = centres[y] + 0.5 * torch.randn(16, 5, generator=rng)
        if client == wild:  # with labels that no model gets right, or its loss might be zero
            x, y = x * 1e30, torch.arange(16) // 6
        data.append((x, y))
    return fk.Federation.from_arrays(data, test=data[0])


def _settings(number: int) -> dict[str, Any]:
    return {"rounds": _ROUNDS, "cohort": 4, "seed": number}


def _train(method: Any, lr: float, number: int, wild: int | None = None, **options: Any) -> fk.Result:
    width = 4 + number % 13
    work = fk.Work(epochs=2, batch_size=8, lr=lr)
    task = fk.Task(lambda: nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3)))
    given = {**_settings(number), "work": work, "engine": "serial", "threads": 1}
    return flat.train(task, _federation(number, wild), method, **given, **options)


def _first_round(client: int, number: int) -> int | None:
    """Return the first round in which a client is drawn."""
    settings = RunSettings(
        task=fk.Task(lambda: nn.Linear(5, 3)),
        federation=_federation(number, None),
        method=fk.FedAvg(),
        work=fk.Work(steps=1),
        **_settings(number),
    )
    population = Population.of(settings)
    return next((r for r in range(_ROUNDS) if client in population.draw(r)), None)


def _is_finite(result: fk.Result) -> bool:
    return math.isfinite(result.history[-1]["norm"]) and math.isfinite(result.history[-1]["loss"])


def _equal(one: fk.Result, other: fk.Result) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
