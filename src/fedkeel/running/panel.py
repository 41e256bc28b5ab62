"""Which probes a run has."""

from __future__ import annotations

from collections.abc import Sequence

from fedkeel.engines.contract import Setting
from fedkeel.errors import ConfigError
from fedkeel.methods.stages import Stages
from fedkeel.oracle import Oracle
from fedkeel.probes import DEFAULT, Probe
from fedkeel.probes.base import Run
from fedkeel.probes.watch import Panel


def assemble(
    given: Sequence[Probe], stages: Stages, setting: Setting, oracle: Oracle, *, uniform: bool
) -> Panel:
    """Return the probes that are always on, those given, and those that the stages' rules read; check them.

    One that is given stands in for the same kind among those always on.
    """
    read = (getattr(part.until, "probe", None) for part in stages.parts)
    asked = tuple(dict.fromkeys([*given, *(probe for probe in read if probe is not None)]))
    for probe in asked:
        if not isinstance(probe, Probe):
            raise ConfigError(f"probes: {probe!r} is not a probe: give one, as in fk.probes.Divergence()")
    kinds = {type(probe) for probe in asked}
    panel = Panel((*(probe for probe in DEFAULT if type(probe) not in kinds), *asked), asked)
    methods = [part.method for part in stages.parts]
    run = Run(methods, setting.federation, list(setting.task.metrics), oracle.layout, uniform)
    columns: dict[str, Probe] = {}
    for probe in panel.probes:
        probe.check(run)
        for name in probe.names(oracle.layout):
            other = columns.setdefault(name, probe)
            if other is not probe:
                raise ConfigError(f"probes: {other!r} and {probe!r} both report {name!r}: leave one out")
    return panel
