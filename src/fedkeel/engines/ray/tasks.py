"""What nodes are asked to do. All are pure functions: where one runs, and how often, changes no bit.

A worker keeps the settings of the run, and what the jobs of a round share, for its next task; one that has
them not gets them from the object store of its node.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from fedkeel.common.errors import ConfigError
from fedkeel.common.version import __version__
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import RoundRequest
from fedkeel.engines.jobs.job import ChunkJob, ClientJob, Job, Shared, make_runner, run_job
from fedkeel.engines.jobs.pickles import Packed, pack, portable, received, unpack
from fedkeel.engines.jobs.switches import set_switches
from fedkeel.engines.malloc import keep_freed_memory
from fedkeel.engines.reduction import ChunkSum
from fedkeel.tensors.records import Record, transform


class RunSource(NamedTuple):
    """What a worker must know of a run besides its settings; `paths` is where its modules may lie."""

    key: str
    versions: dict[str, str]
    channels_last: bool
    switches: Sequence[Any]
    threads: int
    device: str
    paths: Sequence[str]


class SharedSource(NamedTuple):
    """What the jobs of a round, or of an evaluation, have in common."""

    key: int
    value: Packed


class JobReport(NamedTuple):
    """What became of jobs that ran together: each one's exception as a pickle, or None; their seconds."""

    failures: Sequence[bytes | None]
    seconds: float


_runners: dict[str, ClientRunner] = {}
_shared: dict[tuple[str, int], Any] = {}


def versions() -> dict[str, str]:
    """Return what two processes must share for the same results."""
    return {
        "fedkeel": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def differing_versions(found: dict[str, str], expected: dict[str, str]) -> str:
    """Say which versions differ; nothing where none does."""
    return ", ".join(
        f"{name} {version} instead of {expected[name]}"
        for name, version in found.items()
        if version != expected[name]
    )


def module_paths() -> list[str]:
    """Return where this process looks for modules: those of the user, where nodes have them too."""
    return [path or os.getcwd() for path in sys.path]


class JobPackage(NamedTuple):
    """Jobs as bytes, how many they are, and the seconds after which they hang (None: that is not known)."""

    jobs: Packed
    number: int
    limit: float | None


def run_jobs(source: RunSource, settings: Packed, shared: SharedSource, package: JobPackage) -> Any:
    """Run jobs; return what became of them, and then each result. A worker whose jobs hang ends itself."""
    place, failures, results = f"a Ray worker on {platform.node()}", list[bytes | None](), list[Any]()
    try:
        runner = _runner(source, settings)
        common = _common(source, shared, runner)
        asked: Sequence[Job] = unpack(package.jobs)
    except Exception as problem:
        return [JobReport([portable(problem, place)] * package.number, 0.0), *[None] * package.number]
    started = time.perf_counter()
    with _bounded(package.limit):
        for job in asked:
            try:
                results.append(pack(run_job(runner, common, _with_memory(runner, job)), received))
                failures.append(None)
            except Exception as problem:
                results.append(None)
                failures.append(portable(problem, place))
    return [JobReport(failures, time.perf_counter() - started), *results]


def sum_chunk(source: RunSource, settings: Packed, weights: Sequence[float], *results: Packed) -> Any:
    """Return the sum of a chunk's results, which lie on the nodes; or a pickled exception."""
    try:
        runner, total = _runner(source, settings), ChunkSum()
        for weight, result in zip(weights, results, strict=True):
            total.add(runner.settings.reducer, weight, unpack(result, copy=False))
        return pack(total, received)
    except Exception as problem:
        return portable(problem, f"a Ray worker on {platform.node()}")


@contextmanager
def _bounded(seconds: float | None) -> Iterator[None]:
    """End this process where the block takes longer, even one that holds the interpreter's lock."""
    if seconds is not None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)
    try:
        yield
    finally:
        if seconds is not None:
            faulthandler.cancel_dump_traceback_later()


def _runner(source: RunSource, settings: Packed) -> ClientRunner:
    """Return what this worker keeps for a run; make it where the run is new here."""
    if source.key not in _runners:
        check_versions(source.versions)
        torch.set_num_threads(source.threads)
        keep_freed_memory()
        set_switches(source.switches)
        sys.path.extend(path for path in source.paths if path not in sys.path)
        try:
            read = unpack(settings, copy=False)
        except ImportError as problem:
            raise ConfigError(
                f"node {platform.node()} cannot read the run ({problem}): install that module on all nodes, "
                "or define what is used of it in the script itself"
            ) from None
        _shared.clear()
        _runners.clear()
        _runners[source.key] = make_runner(read, source.channels_last, _device(source.device))
    return _runners[source.key]


def _common(source: RunSource, shared: SharedSource, runner: ClientRunner) -> Shared:
    """Return what the jobs share; a model that is evaluated is put on the device by its oracle."""
    key = source.key, shared.key
    if key not in _shared:
        _shared.clear()
        common = unpack(shared.value)
        if isinstance(common, RoundRequest):
            probes = common.probes
            if probes is not None:
                probes = probes._replace(briefs=_placed(runner, probes.briefs))
            down, buffers = _placed(runner, common.down), _placed(runner, common.buffers)
            common = common._replace(down=down, buffers=buffers, probes=probes)
        _shared[key] = common
    found: Shared = _shared[key]
    return found


def _placed(runner: ClientRunner, record: Record) -> Record:
    """Return a record on the worker's device; what goes back is on the CPU again once it is packed."""
    return transform(lambda tensor: tensor.to(runner.oracle.device), record)


def _with_memory(runner: ClientRunner, job: Job) -> Job:
    """Return a job with its client states on the worker's device."""
    if isinstance(job, ClientJob):
        return replace(job, memory=_placed(runner, job.memory))
    if isinstance(job, ChunkJob):
        return replace(job, clients=[replace(one, memory=_placed(runner, one.memory)) for one in job.clients])
    return job


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"num_gpus: torch on node {platform.node()} sees no GPU: install a torch built for it there, or "
            "leave num_gpus out"
        )
    return torch.device(name)


def check_versions(expected: dict[str, str]) -> None:
    """Refuse a node that would compute something else."""
    if differing := differing_versions(versions(), expected):
        raise ConfigError(
            f"node {platform.node()} has {differing}: install the same versions as where the run "
            "was started; `fedkeel cluster check` shows what each node has"
        )
