"""The settings of a deployment: fedkeel's own, and how nodes are waited for; read from Flower's run config.

A run config is flat and holds no lists. `work.lr` there is `lr` of the table `[work]` in an experiment file;
`deploy.…` is declared here; `set` holds further settings, one per line, as --set takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, FrozenModel, Positive
from fedkeel.experiments.experiment import Experiment, split_setting

_DEPLOY = "deploy."
_LOCAL = ("data", "model", "engine", "workers")  # what a deployment has in code, or not at all


class DeployOptions(FrozenModel):
    """What a run on real clients needs beside its settings."""

    clients: Count = Field(description="Clients in all, each on a node of its own, numbered from 0.")
    run_dir: str = Field("runs/deployment", description="Where the server keeps the run.")
    on_loss: Literal["restart", "carry"] = Field(
        "restart",
        description="What follows when a node lost its client state: all clients and the server's state "
        "start afresh from the present model, or only that client does.",
    )
    round_seconds: Positive = Field(
        600.0, description="Time limit of a round; clients that have not answered by then have failed."
    )
    retries: int = Field(
        2, ge=0, description="How often a client that does not answer is asked again within that time."
    )
    wait_seconds: Positive = Field(300.0, description="How long nodes are waited for before the first round.")

    @property
    def attempt_seconds(self) -> float:
        """Return after how many seconds a client is asked again."""
        return self.round_seconds / (self.retries + 1)


class RunConfig(NamedTuple):
    """A run config as read."""

    experiment: Experiment
    options: DeployOptions

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> RunConfig:
        """Read a run config, flat as Flower hands it over; say in plain words what does not fit."""
        table: dict[str, Any] = {}
        deploy: dict[str, Any] = {}
        for key, value in given.items():
            if key.startswith(_DEPLOY):
                deploy[key.removeprefix(_DEPLOY).replace("-", "_")] = value
            elif key != "set":
                _put(table, key, value)
        extra = [line for line in str(given.get("set", "")).splitlines() if line.strip()]
        for line in [line for line in extra if line.startswith(_DEPLOY)]:
            key, value = split_setting(line)
            deploy[key.removeprefix(_DEPLOY)] = value
            extra.remove(line)
        for name in (*table, *(line.partition("=")[0].partition(".")[0].strip() for line in extra)):
            if name in _LOCAL:
                raise ConfigError(f"{name}: a deployment takes it from its code, not from its settings")
        experiment = Experiment.from_table({"cohort": 1.0, "checkpoint_every": 1, **table})
        experiment = experiment.with_settings(extra) if extra else experiment
        if experiment.evaluate_on == "clients":
            raise ConfigError(
                "evaluate_on = 'clients': their samples stay on their nodes: choose 'test' or 'nothing'"
            )
        return cls(experiment, DeployOptions(**deploy))


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as Flower hands them over: one table, its keys dotted."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.replace("-", "_").split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
    table[last] = value
