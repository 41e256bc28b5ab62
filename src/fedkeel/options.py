"""The plain settings of a run: what a file, a command line or a keyword can say.

Declared here once; `fedkeel.train` takes them as keywords, experiment files as keys, commands as options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fedkeel.errors import ConfigError, did_you_mean
from fedkeel.frozen import Count, FrozenModel, Seed

ENGINES = ("auto", "serial", "stacked", "stacked-uncompiled", "processes")


Threads = Annotated[Count, Field(le=1024)]  # of more the system's libraries end the process


class RunOptions(FrozenModel):
    """What defines a run besides its task, data, method and local work."""

    rounds: Count = Field(description="Communication rounds.")
    cohort: int | float = Field(description="Clients per round: a count (10) or a fraction (0.2).")
    seed: Seed = Field(0, description="Seed of all randomness.")
    sampling: Literal["fixed", "bernoulli"] = Field(
        "fixed", description="Draw exactly the cohort, or each client with that probability."
    )
    weighting: Literal["uniform", "samples"] = Field(
        "uniform", description="Clients count the same, or by their number of samples."
    )
    eval_every: Count = Field(1, description="Rounds between evaluations.")
    evaluate_on: Literal["test", "clients", "nothing"] | None = Field(
        None,
        description="Evaluate on the test set (the default, if any), all clients' data, or nothing.",
    )

    @property
    def uniform_weights(self) -> bool:
        """Tell whether all clients count the same."""
        return self.weighting == "uniform"

    @field_validator("cohort", mode="before")
    @classmethod
    def _counts_or_shares(cls, cohort: Any) -> Any:
        if isinstance(cohort, bool) or not isinstance(cohort, int | float):
            raise ConfigError(f"cohort = {cohort!r}: give a count (10) or a fraction of the clients (0.2)")
        if isinstance(cohort, float) and not 0 < cohort <= 1:
            raise ConfigError(
                f"cohort = {cohort}: a fraction lies above 0 and at most at 1; a count is an int"
            )
        return cohort


class Execution(FrozenModel):
    """How a run is executed; no result depends on it but for the last bits."""

    engine: str = Field("auto", description=f"How clients are run: {', '.join(ENGINES)}.")
    threads: Threads | None = Field(
        None, description="Threads of a local step; by default from the size of a step."
    )
    workers: Threads | None = Field(
        None, description="Processes of the engine processes; by default one per core."
    )
    device: str = Field("cpu", description="Where the model and its vectors live.")
    checkpoint_every: Count | None = Field(
        None, description="Rounds between checkpoints; by default one every 20 seconds."
    )
    keep_memories: bool = Field(
        False, description="Keep what clients remember of a finished run, so that it can go on."
    )

    @field_validator("engine")
    @classmethod
    def _exists(cls, engine: str) -> str:
        if engine not in ENGINES:
            raise ConfigError(f"engine = {engine!r}: {did_you_mean(engine, ENGINES)}")
        return engine

    def as_before(self, manifest: Mapping[str, Any]) -> Execution:
        """Return the execution with what is not asked for taken from the manifest of the run begun before."""
        engine = manifest["engine"] if self.engine == "auto" else self.engine
        return self.model_copy(update={"engine": engine, "threads": self.threads or manifest["threads"]})


SERIAL = Execution(engine="serial")
