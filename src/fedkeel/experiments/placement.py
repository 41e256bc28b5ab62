"""Where independent runs are made: one after another, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedkeel.common.errors import ConfigError
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.parallel import Found, Key, run_in_parallel


class Placement(NamedTuple):
    """Runs `workers` at a time in processes of this machine; or on a Ray cluster, as many as it has room for.

    There a run takes `num_cpus` and `num_gpus` of a node. Without an `address` Ray is started here.
    """

    workers: int = 1
    on: Literal["ray"] | None = None
    address: str | None = None
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    @classmethod
    def of(
        cls, workers: int, on: Literal["ray"] | None, experiment: Experiment
    ) -> tuple[Placement, Experiment]:
        """Return where the runs of an experiment are made, and the experiment of each run.

        On a cluster the experiment's `address`, `num_cpus` and `num_gpus` are those of the runs, each of
        which has an engine of its own.
        """
        if on is None:
            return cls(workers), experiment
        if experiment.engine == "ray":
            raise ConfigError(
                "--on ray with engine = 'ray': spread the runs over the cluster (--on ray), or the clients "
                "of one run after another (--engine ray): leave one of them out"
            )
        cpus = float(experiment.threads or 1) if experiment.num_cpus is None else experiment.num_cpus
        made = cls(workers, on, experiment.address, cpus, experiment.num_gpus or 0.0)
        none = dict.fromkeys(("address", "num_cpus", "num_gpus"))
        return made, experiment.model_copy(update=none)

    @property
    def one_by_one(self) -> bool:
        """Tell whether runs are made in this process, one after another."""
        return self.on is None and self.workers == 1

    def run(
        self,
        function: Callable[..., Found],
        jobs: Mapping[Key, tuple[Any, ...]],
        out: Path,
        take: Callable[[Key, Found], None],
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Call a function with each job's arguments; `take` gets each result as it comes.

        Runs keep themselves below `out`.
        """
        if not jobs:
            return
        if self.one_by_one:
            for key, arguments in jobs.items():
                take(key, function(*arguments))
            return
        if self.on is None:
            run_in_parallel(function, jobs, self.workers, take, meanwhile)
            return
        from fedkeel.engines.ray.cluster import Demand  # noqa: PLC0415  an extra
        from fedkeel.experiments.on_ray import run_on_ray  # noqa: PLC0415

        demand = Demand(self.num_cpus, self.num_gpus)
        run_on_ray(function, jobs, take, meanwhile, address=self.address, demand=demand, out=out)


ONE_BY_ONE = Placement()
