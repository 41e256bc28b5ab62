"""What a cluster is fit for: what each node has, how fast it is, and how long an experiment would take."""

from __future__ import annotations

import math
import platform
import time
from contextlib import closing
from typing import Any, NamedTuple

import torch

from fedkeel.common.errors import FedkeelError
from fedkeel.engines import build
from fedkeel.engines.contract import Choice
from fedkeel.engines.ray.cluster import Cluster, ClusterNode, Demand, WorkerLost, connect
from fedkeel.engines.ray.tasks import differing_versions, versions
from fedkeel.engines.serial import threads
from fedkeel.engines.stopwatch import best_of, timer
from fedkeel.experiments.experiment import Experiment
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import nbytes

_EMPTY_TASKS = 50


class NodeLook(NamedTuple):
    """What a node says of itself: versions, why it lacks the data (None: it has them), seconds per step."""

    host: str
    versions: dict[str, str]
    lacks_data: str | None
    step_seconds: float | None


class NodeReport(NamedTuple):
    """A node of a cluster; `problem` says why it cannot take part."""

    address: str
    host: str
    cpus: float
    gpus: float
    slots: int
    versions: dict[str, str]
    lacks_data: str | None
    steps_per_second: float | None
    problem: str | None


class ClusterReport(NamedTuple):
    """What `fedkeel cluster check` finds. `seconds`: of the experiment on this cluster, where it can be told.

    It is made of `task_seconds` (of an empty task) and `model_seconds` (to put and fetch the model once).
    """

    nodes: list[NodeReport]
    here: dict[str, str]
    slots: int
    task_seconds: float | None
    model_seconds: float | None
    model_bytes: int
    rounds: int
    cohort: int
    steps: int
    seconds: float | None

    @property
    def fit(self) -> bool:
        """Tell whether every node can take part."""
        return bool(self.nodes) and all(node.problem is None for node in self.nodes)


def check_cluster(experiment: Experiment) -> ClusterReport:
    """Ask every node of the cluster at the experiment's address for what it has."""
    settings = experiment.settings()
    cpus = experiment.num_cpus if experiment.num_cpus is not None else float(experiment.threads or 1)
    demand, here = Demand(cpus, experiment.num_gpus or 0.0), versions()
    with closing(connect(experiment.address, num_cpus=experiment.workers)) as cluster:
        nodes = [node for node in cluster.nodes() if node.slots(demand)]
        asked = [cluster.submit(look_at_node, experiment.table(), demand=demand, node=node) for node in nodes]
        found = [_report(cluster, one, ref, demand, here) for one, ref in zip(nodes, asked, strict=True)]
        fit = [node for node in found if node.problem is None]
        task = _task_seconds(cluster, demand) if fit else None
        model = _model_seconds(cluster, settings, demand) if fit else None
    steps = settings.work.count(max(1, int(settings.federation.sizes.float().mean())))
    report = ClusterReport(
        nodes=found,
        here=here,
        slots=sum(node.slots for node in fit),
        task_seconds=task,
        model_seconds=model,
        model_bytes=_model_bytes(settings),
        rounds=settings.rounds,
        cohort=settings.cohort_size,
        steps=steps,
        seconds=None,
    )
    return report._replace(seconds=_estimate(report))


def look_at_node(table: dict[str, Any]) -> NodeLook:
    """Say what this node has, and time a few steps of the experiment where it has the data."""
    problem, seconds = None, None
    try:
        settings = Experiment.from_table(table).settings()
    except (FedkeelError, OSError) as found:
        problem = str(found)
    else:
        with threads(1), timer(settings, torch.device("cpu"), Choice("serial", 1), build) as measure:
            seconds = best_of(measure, lambda _: False, time.perf_counter)
    return NodeLook(platform.node(), versions(), problem, seconds)


def nothing(*_: Any) -> None:
    """Do nothing, to see how long that takes."""


def _report(
    cluster: Cluster, node: ClusterNode, ref: Any, demand: Demand, here: dict[str, str]
) -> NodeReport:
    problem, look = None, NodeLook("", {}, None, None)
    try:
        look = cluster.get(ref)
    except (FedkeelError, WorkerLost) as found:
        problem = str(found)
    if differing := differing_versions(look.versions, here):
        problem = f"{differing}: install the same versions everywhere"
    speed = None if look.step_seconds is None else 1 / look.step_seconds
    return NodeReport(
        address=node.address,
        host=look.host,
        cpus=node.cpus,
        gpus=node.gpus,
        slots=node.slots(demand),
        versions=look.versions,
        lacks_data=look.lacks_data,
        steps_per_second=speed,
        problem=problem,
    )


def _task_seconds(cluster: Cluster, demand: Demand) -> float:
    """Return what a task costs that does nothing, when many are handed out at once."""
    _wait(cluster, [cluster.submit(nothing, demand=demand)])
    started = time.perf_counter()
    _wait(cluster, [cluster.submit(nothing, demand=demand) for _ in range(_EMPTY_TASKS)])
    return (time.perf_counter() - started) / _EMPTY_TASKS


def _model_seconds(cluster: Cluster, settings: RunSettings, demand: Demand) -> float:
    """Return what it takes to put a model and to have it on a node."""
    content = bytes(_model_bytes(settings))
    started = time.perf_counter()
    _wait(cluster, [cluster.submit(nothing, cluster.put(content), demand=demand)])
    return time.perf_counter() - started


def _wait(cluster: Cluster, refs: list[Any]) -> None:
    for ref in refs:
        cluster.get(ref)


def _model_bytes(settings: RunSettings) -> int:
    parameters = (p.detach() for p in settings.task.module.parameters() if p.requires_grad)
    return sum(nbytes(parameter) for parameter in parameters)


def _estimate(report: ClusterReport) -> float | None:
    """Return about how long the experiment takes: the clients of a round one batch after another.

    Evaluation is left out; a node without the data counts as the mean of the others.
    """
    speeds = [node.steps_per_second for node in report.nodes if node.steps_per_second is not None]
    if not speeds or not report.slots or report.task_seconds is None or report.model_seconds is None:
        return None
    step = len(speeds) / sum(speeds)
    batches = math.ceil(report.cohort / report.slots)
    each = batches * report.steps * step + report.cohort * report.task_seconds + report.model_seconds
    return report.rounds * each
