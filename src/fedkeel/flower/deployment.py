"""A deployment: the user's task and data, and what both sides of Flower make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fedkeel.common.errors import ConfigError, DataError
from fedkeel.core.algorithm import Algorithm
from fedkeel.core.task import Task
from fedkeel.data.federation import Augmentation, Federation, Transform
from fedkeel.data.samples import Samples
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse_method
from fedkeel.flower.federation import NodeFederation, ServerFederation
from fedkeel.flower.options import RunConfig
from fedkeel.methods.private import Private
from fedkeel.methods.stages import Stages
from fedkeel.settings.run_settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedkeel.probes.base import Probe
    from fedkeel.reducers import Reducer


class Node(NamedTuple):
    """Where a client runs: its number, how many there are in all, and what its SuperNode was told.

    `config` is what was given with --node-config. `state` is the directory in which the node keeps what its
    client remembers between rounds.
    """

    client: int
    clients: int
    config: Mapping[str, Any]
    state: Path

    @classmethod
    def of(cls, config: Mapping[str, Any], clients: int) -> Node:
        """Read a node's own configuration."""
        client = config.get("client")
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < clients:
            raise ConfigError(
                f"client = {client!r} in --node-config: give this node's client, a number from 0 to "
                f'{clients - 1}, as in flower-supernode --node-config "client=0"'
            )
        return cls(client, clients, dict(config), Path(str(config.get("state", "fedkeel-state"))))


class Deployment:
    """One task on many nodes: give a function for the task and one for a node's data.

    Args:
        task: returns the model, its loss and its metrics; called at the server and on every node.
        data: is given the `Node` and returns its data: `(x, y)`, a torch `Dataset`, or a `Federation` of one
            client. It is called on the node, and what it returns never leaves it.
        test: returns what the server evaluates the model on; None where it has nothing.
        method: a method, plug-in or schedule of your own; by default what the run config names.
        transform: makes a batch what the model takes, on nodes and at the server.
        augment: varies a batch in training.
        classes: how many classes there are; by default as the data says.
        reducer: what stands between uploads and server; `Mean()` by default.
        probes: diagnostics of your own, beside those that the run config names.
    """

    def __init__(
        self,
        task: Callable[[], Task],
        data: Callable[[Node], Any],
        *,
        test: Callable[[], Any] | None = None,
        method: Algorithm | Stages | None = None,
        transform: Transform | None = None,
        augment: Augmentation | None = None,
        classes: int | None = None,
        reducer: Reducer | None = None,
        probes: Sequence[Probe] = (),
    ) -> None:
        for name, given in (("task", task), ("data", data)):
            if not callable(given):
                raise ConfigError(f"Deployment: {name} = {given!r}: give a function that returns it")
        self._task, self._data, self._test, self._method = task, data, test, method
        self._options: dict[str, Any] = {"transform": transform, "augment": augment}
        if classes is not None:
            self._options["classes"] = classes
        self._reducer, self._probes = reducer, tuple(probes)

    def check_method(self, config: RunConfig) -> None:
        """Refuse what promises more than a deployment keeps."""
        method = parse_method(config.experiment.method) if self._method is None else self._method
        parts = [part.method for part in method.parts] if isinstance(method, Stages) else [method]
        if any(isinstance(part, Private) for part in parts):
            raise ConfigError(
                "private(…) in a deployment: every node knows the run's seed, from which the cohorts and the "
                "noise are drawn, and could take the noise away: simulate it, and deploy without it"
            )

    def on_node(self, config: RunConfig, node: Node) -> RunSettings:
        """Return the run as a node plays it, with its own data."""
        found = self._data(node)
        if not isinstance(found, Federation):
            owner = f"data(node) of client {node.client}"
            if found is None:
                raise DataError(f"{owner} returned None: return (x, y), a Dataset or a Federation")
            found = Federation.from_arrays([found], **self._options)
        unseen = config.experiment.model_copy(update={"evaluate_on": "nothing"})  # that is the server's part
        return self._settings(unseen, NodeFederation.of(found, node.clients))

    def at_server(self, config: RunConfig, sizes: Sequence[int]) -> RunSettings:
        """Return the run as the server plays it, knowing how many samples each client has."""
        return self._settings(
            config.experiment, ServerFederation.of(sizes, self.test_samples(), **self._options)
        )

    def test_samples(self) -> Samples | None:
        """Return what the server evaluates on, None where it has nothing."""
        found = None if self._test is None else self._test()
        if found is None or isinstance(found, Samples):
            return found
        return Federation.from_arrays([found], **self._options).pool

    def _settings(self, experiment: Experiment, federation: Federation) -> RunSettings:
        task = self._task()
        if not isinstance(task, Task):
            raise ConfigError(f"task() returned {task!r}: return a Task, as in fk.Task(fk.models.mlp)")
        settings = experiment.settings_of(federation, task)
        changed: dict[str, Any] = {}
        if self._method is not None:
            changed["method"] = self._method
        if self._reducer is not None:
            changed["reducer"] = self._reducer
        if self._probes:
            changed["probes"] = (*settings.probes, *self._probes)
        return settings.changed(**changed) if changed else settings


def single(settings: RunSettings, samples: Samples) -> RunSettings:
    """Return the settings with one client that has these samples: to look at them as a client's are."""
    federation = settings.federation
    rows = torch.arange(samples.size)
    one = Federation(
        samples,
        rows,
        torch.tensor([0, samples.size]),
        samples,
        transform=federation.transform,
        classes=federation.classes,
    )
    return settings.changed(federation=one, cohort=1)
