"""Engines: how a cohort's walks are executed, and the choice between them."""

from __future__ import annotations

from fedkeel.engines.contract import Engine, Setting
from fedkeel.engines.processes import Processes
from fedkeel.engines.serial import Serial
from fedkeel.engines.stackable import Unstackable
from fedkeel.engines.stacked import Stacked
from fedkeel.errors import ConfigError, did_you_mean
from fedkeel.oracle import Oracle

ENGINES = ("auto", "serial", "stacked", "stacked-uncompiled", "processes")


def choose(
    name: str, setting: Setting, oracle: Oracle, threads: int | None, workers: int | None = None
) -> Engine:
    """Return the engine of that name; "auto" takes the one that suits the task."""
    if name not in ENGINES:
        raise ConfigError(f"engine = {name!r}: {did_you_mean(str(name), ENGINES)}")
    if name == "processes":
        return Processes(setting, oracle, workers)
    if name.startswith("stacked"):
        try:
            return Stacked(setting, oracle, threads, compiled=name == "stacked")
        except Unstackable as problem:
            raise ConfigError(f"engine = {name!r}: {problem}; choose engine='serial'") from None
    return Serial(setting, oracle, threads)
