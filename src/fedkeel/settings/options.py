"""The plain settings of a run: what a file, a command line or a keyword can say.

Declared here once: experiment files take them as keys, commands as options, and `fedkeel.train` in values as
`Execution` and `Evaluation`; those that need PyTorch are in `fedkeel.settings.arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.frozen import (
    Count,
    FrozenModel,
    FrozenValue,
    OpenFraction,
    Positive,
    Seed,
    declared,
)

ENGINES = ("auto", "serial", "stacked", "stacked-uncompiled", "processes", "ray")
DEPLOYED = "flower"  # the engine of runs on real clients, which nobody can ask for by name


Threads = Annotated[Count, Field(le=1024)]  # of more the system's libraries end the process


Weighting = Literal["uniform", "samples"]
EvaluatedOn = Literal["test", "clients", "nothing"]


class Evaluation(FrozenValue):
    """When the model is evaluated during a run, and on what."""

    every: Count = Field(default=1, kw_only=False, description="Rounds between evaluations.")
    on: EvaluatedOn | None = Field(
        default=None,
        description="Evaluate on the test set (the default, if any), all clients' data, or nothing.",
    )


class RunOptions(FrozenModel):
    """What defines a run besides its task, data, method and local work."""

    rounds: Count = Field(description="Communication rounds.")
    cohort: int | float = Field(description="Clients per round: a count (10) or a fraction (0.2).")
    seed: Seed = Field(default=0, description="Seed of all randomness.")
    sampling: Literal["fixed", "bernoulli"] = Field(
        default="fixed", description="Draw exactly the cohort, or each client with that probability."
    )
    weighting: Weighting = Field(
        default="uniform", description="Clients count the same, or by their number of samples."
    )
    eval_every: Count = declared(Evaluation, "every")
    evaluate_on: EvaluatedOn | None = declared(Evaluation, "on")

    @property
    def uniform_weights(self) -> bool:
        """Tell whether all clients count the same."""
        return self.weighting == "uniform"

    @field_validator("cohort", mode="before")
    @classmethod
    def _counts_or_shares(cls, cohort: Any) -> Any:
        return count_or_fraction("cohort", cohort, example=10)


class FaultOptions(FrozenModel):
    """What becomes of a run whose clients fail or whose model diverges.

    They decide nothing while all goes well, so a run may be resumed with others.
    """

    on_client_error: Literal["stop", "skip"] = Field(
        default="stop",
        kw_only=False,
        description="What a client that fails does to the run: stop it, or skip that client.",
    )
    min_clients: int | float = Field(
        default=1,
        description="With skip: clients that must answer in a round, a count (5) or a fraction (0.5).",
    )
    client_seconds: Positive | None = Field(
        default=None,
        description="Seconds that a client may take for its round; one that takes longer has failed.",
    )
    max_upload_norm: Positive | None = Field(
        default=None, description="Largest norm of what a client may send; one that sends more has failed."
    )

    on_divergence: Literal["stop", "rollback"] = Field(
        default="stop", description="A model that diverges: stop the run, or go back and take smaller steps."
    )
    rollback_factor: OpenFraction = Field(
        default=0.1, description="Factor on the local learning rate from a rollback on, as 0.5."
    )
    rollback_tries: Count = Field(default=5, description="Rollbacks of a run at most.")

    @field_validator("min_clients", mode="before")
    @classmethod
    def _counts_or_fraction(cls, least: Any) -> Any:
        return count_or_fraction("min_clients", least, example=5)

    @property
    def skips_failed(self) -> bool:
        """Tell whether the run goes on without a client that fails."""
        return self.on_client_error == "skip"

    def quorum(self, drawn: int) -> int:
        """Return how many of a round's drawn clients must answer."""
        least = (
            math.ceil(self.min_clients * drawn) if isinstance(self.min_clients, float) else self.min_clients
        )
        return max(1, least)


def count_or_fraction(key: str, given: Any, *, example: int) -> int | float:
    """Check a number of clients that is given as a count from 1 on, or as a fraction."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigError(f"{key} = {given!r}: give a count ({example}) or a fraction of the clients (0.2)")
    if isinstance(given, float) and not 0 < given <= 1:
        raise ConfigError(f"{key} = {given}: a fraction lies above 0 and at most at 1; a count is an int")
    return given


class ExecutionOptions(FrozenModel):
    """How a run is executed; no result depends on it but for the last bits."""

    engine: str = Field(
        default="auto", kw_only=False, description=f"How clients are run: {', '.join(ENGINES)}."
    )
    threads: Threads | None = Field(
        default=None, description="Threads of a local step; by default from the size of a step."
    )
    workers: Threads | None = Field(
        default=None, description="Processes of the engines processes and ray here; by default one per core."
    )
    address: str | None = Field(
        default=None,
        description="Ray cluster, as head:6379 or auto; by default Ray is started on this machine.",
    )
    num_cpus: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="CPUs that a client takes of a node of the engine ray; by default its threads.",
    )
    num_gpus: Annotated[float, Field(ge=0)] | None = Field(
        default=None,
        description="GPUs that a client takes of a node of the engine ray, as 0.25; by default none.",
    )
    device: str = Field(default="cpu", description="Where the model and its vectors live.")
    checkpoint_every: Count | None = Field(
        default=None, description="Rounds between checkpoints; by default one every 20 seconds."
    )
    keep_client_states: bool = Field(
        default=False, description="Keep the client states of a finished run, so that it can go on."
    )

    @field_validator("engine")
    @classmethod
    def _exists(cls, engine: str) -> str:
        if engine not in ENGINES:
            raise ConfigError(f"engine = {engine!r}: {did_you_mean(engine, ENGINES)}")
        return engine

    @field_validator("device", mode="before")
    @classmethod
    def _by_name(cls, device: Any) -> Any:
        return str(device) if type(device).__name__ == "device" else device  # a torch.device


class Execution(ExecutionOptions, FrozenValue):
    """How a run is executed; no result depends on it but for the last bits."""

    def as_before(self, manifest: Mapping[str, Any]) -> Execution:
        """Return the execution with what is not asked for taken from the manifest of the run begun before."""
        engine = manifest["engine"] if self.engine == "auto" else self.engine
        return self.model_copy(update={"engine": engine, "threads": self.threads or manifest["threads"]})


SERIAL = Execution(engine="serial")
