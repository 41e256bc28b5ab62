"""What defines a run, as one frozen value that the round loop, engines, studies and recipes pass on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field, InstanceOf, field_validator, model_validator

from fedkeel.attacks import Attack
from fedkeel.common.columns import VALIDATION
from fedkeel.common.errors import ConfigError
from fedkeel.core.algorithm import Algorithm
from fedkeel.core.task import Task
from fedkeel.core.work import Work
from fedkeel.data.federation import Federation
from fedkeel.data.samples import Samples
from fedkeel.methods.stages import Stages, as_stages
from fedkeel.probes.base import Probe
from fedkeel.reducers import Mean, StackReducer
from fedkeel.settings.arguments import AnyReducer
from fedkeel.settings.faults import Faults
from fedkeel.settings.options import EvaluatedOn, FaultOptions, RunOptions

if TYPE_CHECKING:
    Method = Algorithm | Stages
else:  # pydantic leaves it alone: the validator below checks it
    Method = Any


class RunSettings(RunOptions, FaultOptions):
    """Everything that decides the numbers of a run; how it is executed is `Execution`."""

    task: InstanceOf[Task]
    federation: InstanceOf[Federation]
    method: Method
    work: InstanceOf[Work]
    reducer: AnyReducer = Field(default_factory=Mean)
    attack: InstanceOf[Attack] | None = None
    probes: tuple[InstanceOf[Probe], ...] = ()
    faults: InstanceOf[Faults] | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_its_model(cls, given: Any) -> Any:
        task, seed = given.get("task"), given.get("seed", 0)
        if isinstance(task, Task) and isinstance(seed, int) and seed >= 0:  # else it is refused in a moment
            return {**given, "task": task.built(seed)}
        return given

    @field_validator("method")
    @classmethod
    def _is_a_method(cls, method: object) -> object:
        if not isinstance(method, Algorithm | Stages):
            raise ConfigError(f"method = {method!r} is not a method: give one, as in FedAvg()")
        return method

    @field_validator("probes", mode="before")
    @classmethod
    def _are_probes(cls, probes: Any) -> Any:
        if not isinstance(probes, list | tuple):
            raise ConfigError(f"probes = {probes!r}: give a list, as in [fk.probes.Divergence()]")
        for probe in probes:
            if not isinstance(probe, Probe):
                raise ConfigError(f"probes: {probe!r} is not a probe: give one, as in fk.probes.Divergence()")
        return tuple(probes)

    @model_validator(mode="after")
    def _has_the_clients(self) -> RunSettings:
        clients = len(self.federation)
        if not 1 <= self.cohort_size <= clients:
            raise ConfigError(f"cohort = {self.cohort}: there are {clients} clients, so give 1 to {clients}")
        return self

    @model_validator(mode="after")
    def _has_enough_clients_for_the_reducer(self) -> RunSettings:
        if isinstance(self.reducer, StackReducer):
            self.reducer.check(self.cohort_size)
        return self

    @field_validator("attack", mode="before")
    @classmethod
    def _is_an_attack(cls, attack: Any) -> Any:
        if attack is not None and not isinstance(attack, Attack):
            raise ConfigError(f"attack = {attack!r} is not an attack: give one, as in fk.SignFlip(share=0.2)")
        return attack

    @model_validator(mode="after")
    def _can_be_attacked(self) -> RunSettings:
        if self.attack is not None:
            self.attack.check(self.federation, self.task.metrics)
        return self

    @model_validator(mode="after")
    def _can_skip(self) -> RunSettings:
        if self.faults is not None and not self.skips_failed:
            raise ConfigError(
                f"faults = {self.faults!r}: these clients fail on purpose: say that the run goes on without "
                "them, on_client_error='skip'"
            )
        if self.min_clients != 1 and not self.skips_failed:
            raise ConfigError(
                f"min_clients = {self.min_clients}: on_client_error='stop' asks for all clients: set it to "
                "'skip', or omit min_clients"
            )
        count = self.min_clients if isinstance(self.min_clients, int) else 1
        most = self.cohort_size if self.sampling == "fixed" else len(self.federation)
        if not 1 <= count <= most:
            raise ConfigError(
                f"min_clients = {self.min_clients}: a round has {most} clients, so give 1 to {most}, or a "
                "fraction of them (0.5)"
            )
        return self

    @model_validator(mode="after")
    def _has_the_test_set(self) -> RunSettings:
        if self.evaluate_on == "test" and self.federation.test is None:
            raise ConfigError(
                "evaluate_on = 'test': the federation has no test set: give it one, or choose 'clients' for "
                "all clients' data, or 'nothing'"
            )
        return self

    @property
    def evaluated_on(self) -> EvaluatedOn:
        """Return what the model is evaluated on; by default the test set, or nothing where there is none."""
        return self.evaluate_on or ("nothing" if self.federation.test is None else "test")

    @property
    def evaluation_prefixes(self) -> list[str]:
        """Return what the names of columns begin with: validation data has columns of its own."""
        return ["", VALIDATION] if self.federation.validation is not None else [""]

    def evaluation_sets(self) -> Iterator[tuple[str, Samples]]:
        """Yield the samples that the model is evaluated on, each with the prefix of its columns."""
        federation = self.federation
        if self.evaluated_on == "clients":
            yield "", federation.everything
        elif self.evaluated_on == "test" and federation.test is not None:
            yield "", federation.test
        if federation.validation_samples is not None:
            yield VALIDATION, federation.validation_samples

    @cached_property
    def training_data(self) -> Federation:
        """Return what the clients train on: the federation, or what an attack made of it."""
        if self.attack is None:
            return self.federation
        return self.attack.training_data(self.federation, self.seed)

    @cached_property
    def attack_samples(self) -> Samples | None:
        """Return samples on which the model's accuracy is the success of an attack, where it has one."""
        return None if self.attack is None else self.attack.success_samples(self.federation)

    @cached_property
    def hostile(self) -> frozenset[int]:
        """Return the clients that are hostile."""
        return frozenset() if self.attack is None else self.attack.hostile(len(self.federation), self.seed)

    @property
    def stages(self) -> Stages:
        """Return the method as stages; a single method is one stage."""
        return as_stages(self.method)

    @property
    def played_stages(self) -> Stages:
        """Return the stages with their ends in rounds, without those that have no round."""
        return self.stages.fixed(self.rounds)

    @property
    def cohort_size(self) -> int:
        """Return how many clients a round has, exactly or on average."""
        if isinstance(self.cohort, float):
            return max(1, round(self.cohort * len(self.federation)))
        return self.cohort

    @property
    def plain(self) -> dict[str, Any]:
        """Return the plain settings by name."""
        return {name: getattr(self, name) for name in RunOptions.model_fields}

    def changed(self, **settings: Any) -> RunSettings:
        """Return the same settings with some changed."""
        return RunSettings(**{**{name: getattr(self, name) for name in type(self).model_fields}, **settings})
