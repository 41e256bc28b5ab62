"""Engines: how a cohort's walks are executed, and the choice between them."""

from __future__ import annotations

from functools import partial

from fedkeel.common.errors import ConfigError
from fedkeel.core.oracle import Oracle
from fedkeel.engines.choice import decide
from fedkeel.engines.contract import Choice, Engine, Unsuited
from fedkeel.engines.malloc import keep_freed_memory
from fedkeel.engines.pool import Processes
from fedkeel.engines.serial import Serial
from fedkeel.engines.stacked import Stacked
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings


def settle(settings: RunSettings, execution: Execution, oracle: Oracle) -> Choice:
    """Return the engine to take: the one that was asked for, or for "auto" the one that suits the run."""
    if execution.engine != "ray":
        for name in ("address", "num_cpus", "num_gpus"):
            if (given := getattr(execution, name)) is not None:
                raise ConfigError(
                    f"{name} = {given!r}: only engine = 'ray' takes it, not {execution.engine!r}: "
                    "leave one of them out"
                )
    if execution.engine == "auto":
        with_workers = partial(build, workers=execution.workers)
        return decide(settings, oracle, with_workers, threads=execution.threads, workers=execution.workers)
    return Choice(execution.engine, execution.threads)


def make_engine(settings: RunSettings, execution: Execution, oracle: Oracle, choice: Choice) -> Engine:
    """Return the engine that was settled on, ready to run."""
    try:
        if choice.engine == "ray":
            from fedkeel.engines.ray import RayEngine  # noqa: PLC0415  an extra

            return RayEngine(settings, oracle, execution)
        return build(choice, settings, oracle, execution.workers)
    except Unsuited as problem:
        raise ConfigError(f"engine = {choice.engine!r}: {problem}; choose engine='serial'") from None


def build(choice: Choice, settings: RunSettings, oracle: Oracle, workers: int | None = None) -> Engine:
    """Make an engine; raise `Unsuited` where it cannot run this task."""
    keep_freed_memory()
    if choice.engine == "processes":
        return Processes(settings, oracle, workers)
    if choice.engine == "serial":
        return Serial(settings, oracle, choice.threads)
    return Stacked(settings, oracle, choice.threads, compiled=choice.engine == "stacked")
