"""Experiments: everything that defines a run, as one frozen value that a TOML file can hold.

Methods, splits, noise and schedules are written as expressions (see `fedkeel.experiments.expression`).
TOML has no word for "nothing": `batch_size = "all"` takes the whole data in every step, `clients = "all"` all
natural groups, and `noise = "none"` or `augment = "none"` leaves the pictures as they are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from fedkeel.common import tomlfile
from fedkeel.common.errors import ConfigError, DataError, FedkeelError, did_you_mean
from fedkeel.common.frozen import Count, Seed, told
from fedkeel.common.jsonfiles import Shape
from fedkeel.common.older import SETTINGS, VALUES, settings_now
from fedkeel.core.schedules import SCHEDULES, name_of
from fedkeel.core.work import Work
from fedkeel.experiments.expression import (
    parse_attack,
    parse_augment,
    parse_faults,
    parse_method,
    parse_model,
    parse_noise,
    parse_optimizer,
    parse_probe,
    parse_reducer,
    parse_schedule,
    parse_split,
)
from fedkeel.experiments.sections import ALL, DataSettings, ModelSettings, check_text, is_none
from fedkeel.experiments.tracking import parse_tracker, trackers_of
from fedkeel.running.run_directory import read_experiment
from fedkeel.settings.options import Execution, ExecutionOptions, FaultOptions, RunOptions

if TYPE_CHECKING:
    from fedkeel.core.algorithm import Algorithm
    from fedkeel.core.task import Task
    from fedkeel.data import Dataset, Federation
    from fedkeel.methods import Stages
    from fedkeel.running.callbacks import CallbackLike
    from fedkeel.running.result import Result
    from fedkeel.settings.run_settings import RunSettings

_WORK = Work(epochs=5, batch_size=20, lr=0.1)
_EITHER = {"work.epochs": "work.steps", "work.steps": "work.epochs"}  # giving one takes the other away

NONE_IS_ALL = ("work.batch_size", "data.clients")

ProbeText = Annotated[str, BeforeValidator(lambda text: (parse_probe(text), text)[1])]
TrackerText = Annotated[str, BeforeValidator(lambda text: (parse_tracker(text), text)[1])]


def _read_reducer(given: object) -> str | None:
    return None if is_none(given) else repr(check_text("reducer", parse_reducer, given))


def _read_attack(given: object) -> str | None:
    return None if is_none(given) else repr(check_text("attack", parse_attack, given))


def _read_work(given: object) -> object:
    """Make `Work` of a table: what it does not say is as in the default experiment."""
    if not isinstance(given, Mapping):
        if isinstance(given, Work):
            _check_schedule(given)
        return given
    table = {"epochs": _WORK.epochs, "batch_size": _WORK.batch_size, **given}
    if "steps" in given and "epochs" not in given:
        del table["epochs"]
    if table["batch_size"] == ALL:
        table["batch_size"] = None
    elif isinstance(table["batch_size"], str):
        raise ConfigError(f"work.batch_size = {table['batch_size']!r}: give a count, or {ALL}")
    for key, read in (("schedule", parse_schedule), ("optimizer", parse_optimizer)):
        if table.get(key) is not None and not dataclasses.is_dataclass(table[key]):
            table[key] = check_text(f"work.{key}", read, table[key])
    _check_keys(table, [field.name for field in dataclasses.fields(Work)], "work.")
    try:
        return Work(**table)
    except ConfigError as problem:
        raise ConfigError(re.sub("^Work: ", "work.", str(problem), flags=re.MULTILINE)) from None


def _check_schedule(work: Work) -> None:
    """Refuse a schedule of a user's own: the table of an experiment could not be read back."""
    if work.schedule is not None and not isinstance(work.schedule, SCHEDULES):
        known = ", ".join(kind.__name__ for kind in SCHEDULES)
        raise ConfigError(
            f"work.schedule = {name_of(work.schedule)}: an experiment can be written to a file, which holds "
            f"{known}: pass a schedule of your own to fedkeel.train"
        )


def _read_faults(given: object) -> Any:
    if is_none(given):
        return None
    check_text("faults", parse_faults, given)
    return given


class ExperimentShape(Shape):
    """What `Experiment.table` has, as far as it is used without being checked: see `Experiment.unchecked`."""

    method: str
    rounds: Count
    cohort: int | float
    seed: Seed
    target: float | None = None
    data: dict[str, Any]
    model: dict[str, Any]
    work: dict[str, Any]

    @field_validator("data")
    @classmethod
    def _says_how_many(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "clients" not in data:
            raise ValueError("it lacks 'clients'")
        return data


class Experiment(RunOptions, FaultOptions, ExecutionOptions):
    """Everything that defines a run from files. The defaults train digits on unlike clients."""

    method: str = Field("FedAvg", description='Method, as scaffold or "relaxed(fedcm, beta=0.1)".')
    rounds: Count = Field(50, description=RunOptions.model_fields["rounds"].description)
    cohort: int | float = Field(10, description=RunOptions.model_fields["cohort"].description)
    target: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="Accuracy to reach, as 0.9.")
    probes: list[ProbeText] | None = Field(
        None, description='Diagnostic, as divergence or "diversity(every=5)"; repeatable.'
    )
    reducer: Annotated[str | None, BeforeValidator(_read_reducer)] = Field(
        None, description='What replaces the mean of uploads, as Median or "TrimmedMean(0.2)".'
    )
    attack: Annotated[str | None, BeforeValidator(_read_attack)] = Field(
        None, description='Hostile clients, as "SignFlip(share=0.2)" or "Backdoor(0.1, target=7)".'
    )
    faults: Annotated[str | None, BeforeValidator(_read_faults)] = Field(
        None, description='Clients that fail on purpose, as "Faults(drop=0.1)"; needs skip.'
    )
    track: list[TrackerText] | None = Field(
        None, description="Also write to tensorboard, mlflow or wandb, as mlflow or mlflow=FILE; repeatable."
    )
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    work: Annotated[Work, BeforeValidator(_read_work)] = _WORK

    @field_validator("method")
    @classmethod
    def _reads(cls, method: str) -> str:
        parse_method(method)
        return method

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Experiment:
        """Make an experiment of nested tables, also of version 0.1; say in plain words what does not fit."""
        return cls(**settings_now(table))

    @classmethod
    def unchecked(cls, table: Mapping[str, Any]) -> Experiment:
        """Make an experiment of what `table` returned before: to check its expressions takes PyTorch."""
        clients = table["data"]["clients"]
        parts = {
            "data": DataSettings.model_construct(
                **{**table["data"], "clients": None if clients == ALL else clients}
            ),
            "model": ModelSettings.model_construct(**table["model"]),
            "work": _read_work(table["work"]),
        }
        return cls.model_construct(**{**settings_now(table), **parts})

    @classmethod
    def load(cls, path: str | Path) -> Experiment:
        """Read an experiment from a TOML file, or from the directory of a run."""
        path = Path(path)
        file = path / "experiment.toml" if path.is_dir() else path
        try:
            begun = path.is_dir() and (path / "manifest.json").exists()
            table = tomlfile.parse(read_experiment(path)) if begun else tomlfile.read(file)
        except FileNotFoundError:
            raise ConfigError(f"{file}: there is no such file: give the TOML file of an experiment") from None
        except OSError as problem:
            raise ConfigError(f"{file}: cannot be read: {problem.strerror or problem}") from None
        except ValueError as problem:
            raise ConfigError(f"{file}: cannot be read as TOML: {problem}") from None
        if "made_from" in table:
            raise ConfigError(f"{file}: this run was made from {table['made_from']}")
        try:
            return cls.from_table(table)
        except ConfigError as problem:
            raise ConfigError(f"{file}: {problem}") from None

    def with_settings(self, settings: Iterable[str]) -> Experiment:
        """Return a copy with settings such as `work.lr=0.1`; values are TOML, else text; `none` clears."""
        table = self.table()
        pairs = [split_setting(setting) for setting in settings]
        _check_names_now(pairs)
        named = {key for key, _ in pairs}
        for key, value in pairs:
            _put(table, key, value)
            other = _EITHER.get(key)
            if other is not None and other not in named:
                _put(table, other, None)
        return Experiment.from_table(table)

    def table(self) -> dict[str, Any]:
        """Return the experiment as nested tables of plain values, without what is None."""
        table = _plain(self.model_dump(exclude={"work"}))
        table["work"] = _plain(told(self.work))
        written = {"schedule": self.work.schedule, "optimizer": self.work.optimizer}
        table["work"].update({key: repr(value) for key, value in written.items() if value is not None})
        if not table["data"]["options"]:
            del table["data"]["options"]
        table["work"].setdefault("batch_size", ALL)
        table["data"].setdefault("clients", ALL)
        return table

    def to_toml(self) -> str:
        """Return the experiment as TOML that `load` reads back."""
        return tomlfile.dump(self.table())

    def make_method(self) -> Algorithm | Stages:
        """Return the method that its expression makes."""
        made: Algorithm | Stages = parse_method(self.method)
        return made

    def federation(self) -> Federation:
        """Load the data, split it, and add its noise and augmentation."""
        from fedkeel.data import add_noise, load  # noqa: PLC0415  heavy

        data = self.data
        seed = self.seed if data.seed is None else data.seed
        augment = None if data.augment is None else parse_augment(data.augment)
        try:
            dataset = load(data.name, **data.options)
            _check_pictures(data, dataset)
            federation = dataset.split(
                parse_split(data.split), clients=data.clients, seed=seed, augment=augment
            )
            if data.noise is not None:
                noise_seed = seed if data.noise_seed is None else data.noise_seed
                federation = add_noise(federation, *map(parse_noise, data.noise), seed=noise_seed)
        except FedkeelError:
            raise
        except (ValueError, TypeError) as problem:
            raise DataError(f"data {data.name!r}: {problem}") from None
        federation = federation.hold_out(data.held_out) if data.held_out else federation
        if data.client_tests is not None:
            federation = federation.with_client_tests(data.client_tests, seed=seed)
        return (
            federation if data.validation is None else federation.with_validation(data.validation, seed=seed)
        )

    def drawn_task(self, federation: Federation) -> Task:
        """Build the model for the data, with weights drawn from the seed whatever `model.init` asks for."""
        import torch  # noqa: PLC0415  heavy

        from fedkeel.core.task import Task  # noqa: PLC0415
        from fedkeel.experiments.networks import model_for  # noqa: PLC0415

        model = self.model
        seed = self.seed if model.seed is None else model.seed
        dtype = getattr(torch, model.dtype)
        return Task(
            model_for(federation, parse_model(model.name), data=self.data.name, seed=seed, dtype=dtype)
        )

    def task(self, federation: Federation) -> Task:
        """Build the model for the data; the same seed and `model.init` give the same initial weights."""
        task = self.drawn_task(federation)
        self._initialise(task)
        return task

    def _initialise(self, task: Task) -> dict[str, Any]:
        """Give a model the weights that `model.init` asks for; return what a manifest says of them."""
        if self.model.init is None:
            return {}
        from fedkeel.experiments.initial_weights import find_initial_weights  # noqa: PLC0415  heavy

        found = find_initial_weights(self.model.init, task.module, self.model.name, self.device)
        found.put_into(task.module)
        return {"initial_weights": found.describe()}

    def settings(self) -> RunSettings:
        """Return what defines the run, its data loaded and its model built."""
        federation = self.federation()
        return self.settings_of(federation, self.task(federation))

    def settings_of(self, federation: Federation, task: Task) -> RunSettings:
        """Return what defines the run with this data and this model."""
        from fedkeel.reducers import Mean  # noqa: PLC0415  heavy
        from fedkeel.settings.run_settings import RunSettings  # noqa: PLC0415

        return RunSettings(
            task=task,
            federation=federation,
            method=self.make_method(),
            work=self.work,
            probes=tuple(parse_probe(probe) for probe in self.probes or ()),
            reducer=Mean() if self.reducer is None else parse_reducer(self.reducer),
            attack=None if self.attack is None else parse_attack(self.attack),
            faults=None if self.faults is None else parse_faults(self.faults),
            **{name: getattr(self, name) for name in (*RunOptions.model_fields, *FaultOptions.model_fields)},
        )

    def execution(self) -> Execution:
        """Return how the run is executed."""
        return Execution(**{name: getattr(self, name) for name in Execution.model_fields})

    def train(
        self,
        run_dir: str | Path | None = None,
        *,
        resume: bool = False,
        callbacks: CallbackLike | Sequence[CallbackLike] | None = None,
    ) -> Result:
        """Train; see `fedkeel.train`. A run that has a checkpoint goes on without what `model.init` names."""
        from fedkeel.running.callbacks import listed  # noqa: PLC0415  heavy
        from fedkeel.running.checkpoints import has_checkpoint  # noqa: PLC0415  heavy
        from fedkeel.running.train import run  # noqa: PLC0415

        federation = self.federation()
        task = self.drawn_task(federation)
        goes_on = resume and run_dir is not None and has_checkpoint(Path(run_dir))
        return run(
            self.settings_of(federation, task),
            self.execution(),
            run_dir,
            resume=resume,
            callbacks=[*listed(callbacks), *trackers_of(self.track, run_dir)],
            experiment=self.table(),
            about={} if goes_on else self._initialise(task),
        )


def _check_pictures(data: DataSettings, dataset: Dataset) -> None:
    """Refuse noise and augmentation where the samples are no pictures."""
    from fedkeel.data.noise import check_pictures  # noqa: PLC0415  heavy

    for key, given, what in (("noise", data.noise, "noise"), ("augment", data.augment, "augmentation")):
        if given is not None:
            try:
                check_pictures(what, dataset.x)
            except DataError as problem:
                raise DataError(f"data.{key} = {given!r} on {data.name!r}: {problem}") from None


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None, at every level."""
    return {
        key: _plain(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def split_setting(setting: str) -> tuple[str, Any]:
    """Return the key and the value of a setting such as `work.lr=0.1`."""
    key, equals, text = setting.partition("=")
    key, text = key.strip(), text.strip()
    if not equals or not key:
        raise ConfigError(f"--set {setting!r}: write a key and a value, as in work.lr=0.1")
    if text.lower() == "none":
        return key, ALL if key in NONE_IS_ALL else None
    try:
        table = tomlfile.parse(f"value = {text}")
    except ValueError:
        return key, text
    return key, table["value"] if len(table) == 1 else text


def _check_names_now(pairs: Iterable[tuple[str, Any]]) -> None:
    """Refuse names of version 0.1, which are read from files alone."""
    for key, value in pairs:
        if key in SETTINGS:
            raise ConfigError(f"{key} is {SETTINGS[key]} now")
        if isinstance(value, str) and value in VALUES.get(key, {}):
            raise ConfigError(f"{key} = {value!r} is {VALUES[key][value]!r} now")


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        inner = table.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{key}: {parent} is a single value ({inner!r}) and has no parts")
        table = inner
    if value is None:
        table.pop(last, None)
    else:
        table[last] = value


def _check_keys(table: Mapping[str, Any], known: list[str], prefix: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"there is no key '{prefix}{key}'; {did_you_mean(key, known)}")
