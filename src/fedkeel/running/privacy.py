"""Runs with private updates: what would break the promise is refused before the first round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Algorithm, Facts, Sharp, Walk
from fedkeel.core.oracle import Oracle
from fedkeel.core.privacy import Mechanism, divergences
from fedkeel.engines.outcome import upload_shapes
from fedkeel.engines.sizing import first_batch
from fedkeel.engines.stacked.stackable import moved_buffers
from fedkeel.methods.private import Private, is_length
from fedkeel.probes.privacy import PrivacyBudget
from fedkeel.reducers import Mean
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.vector import Vector, scalar_like


def privacy_probes(settings: RunSettings) -> tuple[PrivacyBudget, ...]:
    """Return what accounts for the privacy of a run; nothing where its updates are not private."""
    if not _privates(settings):
        return ()
    return (PrivacyBudget(len(settings.federation), settings.cohort_size, settings.sampling),)


def check_privacy(settings: RunSettings, oracle: Oracle) -> None:
    """Refuse what would let more of a client through than its clipped and noised upload."""
    methods = [part.method for part in settings.stages.parts]
    for one in methods:
        if any(isinstance(inner, Private) for inner in _inside(one)):
            raise ConfigError(
                f"{one!r}: private(…) must stand outside, or what is around it sends more than it protects: "
                "write private(relaxed(…), …)"
            )
    privates = _privates(settings)
    if not privates:
        return
    if len(privates) < len(methods):
        other = next(one for one in methods if not isinstance(one, Private))
        raise ConfigError(f"private: the stage {other!r} is not private: write private(stages(…), …)")
    _check_settings(settings, privates)
    moved = moved_buffers(oracle, oracle.to_device(first_batch(settings, 2)))
    if moved:
        raise ConfigError(
            f"private: training changes the model's buffer {moved[0]!r} (statistics of the clients' data), "
            "which is sent as it is: use layers without such, as GroupNorm in place of BatchNorm"
        )
    for one in privates:
        if _reads_facts(one.inner, oracle.point):
            raise ConfigError(
                f"{one!r}: it reads a client's size (facts), which counts against the mean of all clients: "
                "one client of another size would change what every client sends, and ε would not hold: "
                "choose a method that does not weigh by size (by_size=False)"
            )
        if settings.work.steps is None and _sends_lengths(one, oracle.point):
            raise ConfigError(
                f"{one!r}: it sends the sum of a walk's rates, which tells how many samples a client has: "
                "give all clients the same number of steps, as in Work(steps=10)"
            )
        mechanism = Mechanism(one.noise, len(settings.federation), settings.cohort_size, settings.sampling)
        divergences(mechanism)  # now, so that a missing package is found before the first round


def _check_settings(settings: RunSettings, privates: list[Private]) -> None:
    clients, deltas = len(settings.federation), sorted({one.delta for one in privates})
    if not settings.uniform_weights:
        raise ConfigError(
            f"private: weighting = {settings.weighting!r} lets a client with many samples count more than "
            "its bound: choose weighting='uniform'"
        )
    if not isinstance(settings.reducer, Mean):
        raise ConfigError(
            f"private: reducer = {settings.reducer!r}: how far one client moves it is known for the mean "
            "alone: leave the reducer out"
        )
    if len(deltas) > 1:
        raise ConfigError(f"private: the stages have delta = {deltas[0]:g} and {deltas[1]:g}: give one")
    if deltas[0] >= 1 / clients:
        raise ConfigError(
            f"private: delta = {deltas[0]:g} with {clients} clients: publishing one client's data whole "
            f"would pass for private; give less than 1/{clients} = {1 / clients:g}, better far less"
        )
    if settings.on_divergence == "rollback":
        raise ConfigError(
            "private: on_divergence = 'rollback' plays rounds again by what was measured on clients' data, "
            "which ε does not count: choose on_divergence='stop'"
        )
    if any(callable(part.until) for part in settings.stages.parts):
        raise ConfigError(
            "private: a stage ends by a rule, which may read what was measured on clients' data: give its "
            "end as a round or as a fraction of the rounds"
        )


def _privates(settings: RunSettings) -> list[Private]:
    return [part.method for part in settings.stages.parts if isinstance(part.method, Private)]


def _inside(method: Algorithm) -> Iterator[Algorithm]:
    """Yield the methods that a method wraps."""
    while isinstance(inner := getattr(method, "inner", None), Algorithm):
        yield inner
        method = inner


def _reads_facts(method: Algorithm, x: Vector) -> bool:
    """Tell whether a method looks at what is known of a client besides its state."""
    read = list[str]()

    class Noted(Facts):
        """Facts that note whether they are read."""

        def __getattribute__(self, name: str) -> Any:
            read.append(name)
            return super().__getattribute__(name)

        def __iter__(self) -> Iterator[Any]:
            read.append("all of them")
            return super().__iter__()

        def __getitem__(self, index: Any) -> Any:
            read.append("one of them")
            return super().__getitem__(index)

    one = scalar_like(x, 1.0)
    facts, down, memory = Noted(one, one), method.broadcast(method.init(x)), method.init_client(x)
    plan = method.plan(down, memory, facts)
    dual = plan.sharp.dual if isinstance(plan.sharp, Sharp) else None
    method.finish(Walk(plan.start, plan.start, one, one, None, dual, x), down, memory, facts)
    return bool(read)


def _sends_lengths(method: Algorithm, x: Vector) -> bool:
    """Tell whether a method sends the sum of a walk's rates, or whether that cannot be told."""
    shapes = upload_shapes(method, method.broadcast(method.init(x)), x)
    return shapes is None or any(is_length(name) for name in shapes)
