"""Engines: how a cohort's walks are executed, and the choice between them."""

from __future__ import annotations

from fedkeel.engines.choice import decide
from fedkeel.engines.contract import Choice, Engine, Prospect, Setting, Unsuited
from fedkeel.engines.malloc import keep_freed_memory
from fedkeel.engines.processes import Processes
from fedkeel.engines.serial import Serial
from fedkeel.engines.stacked import Stacked
from fedkeel.errors import ConfigError, did_you_mean
from fedkeel.oracle import Oracle

ENGINES = ("auto", "serial", "stacked", "stacked-uncompiled", "processes")


def settle(name: str, setting: Setting, oracle: Oracle, threads: int | None, prospect: Prospect) -> Choice:
    """Return the engine to take: the one that was asked for, or for "auto" the one that suits the run."""
    if name not in ENGINES:
        raise ConfigError(f"engine = {name!r}: {did_you_mean(str(name), ENGINES)}")
    if name == "auto":
        return decide(setting, oracle, prospect, build, threads=threads)
    return Choice(name, threads)


def choose(
    choice: Choice, setting: Setting, oracle: Oracle, prospect: Prospect, workers: int | None = None
) -> Engine:
    """Return the engine that was settled on, ready to run."""
    try:
        return build(choice, setting, oracle, prospect, workers)
    except Unsuited as problem:
        raise ConfigError(f"engine = {choice.engine!r}: {problem}; choose engine='serial'") from None


def build(
    choice: Choice, setting: Setting, oracle: Oracle, prospect: Prospect, workers: int | None = None
) -> Engine:
    """Make an engine; raise `Unsuited` where it cannot run this task."""
    keep_freed_memory()
    if choice.engine == "processes":
        return Processes(setting, oracle, workers)
    if choice.engine == "serial":
        return Serial(setting, oracle, choice.threads)
    compiled = choice.engine == "stacked"
    return Stacked(setting, oracle, choice.threads, compiled=compiled, cohort=prospect.cohort)
