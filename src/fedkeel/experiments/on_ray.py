"""Independent runs over a Ray cluster, each in a worker of its own with one thread.

Runs write below a directory that all nodes must share. One whose worker or node is lost goes on elsewhere
from its last checkpoint, a bounded number of times.
"""

from __future__ import annotations

import os
import platform
import secrets
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from fedkeel.common.errors import ConfigError, Stopped, StorageError, TooFewClients
from fedkeel.common.files import storage_errors
from fedkeel.engines.jobs.pickles import Packed, exception_of, pack, portable, unpack
from fedkeel.engines.ray.cluster import Cluster, Demand, Ref, WorkerLost, connect
from fedkeel.engines.ray.tasks import check_versions, module_paths, versions
from fedkeel.experiments.parallel import Found, Key

LOSSES = 5  # workers that one run may lose
_SECONDS = 1.0  # between two calls of `meanwhile`


def run_on_ray(
    function: Callable[..., Found],
    jobs: Mapping[Key, tuple[Any, ...]],
    take: Callable[[Key, Found], None],
    meanwhile: Callable[[], None] | None = None,
    *,
    address: str | None,
    demand: Demand,
    out: Path,
) -> None:
    """Call a function with each job's arguments on the cluster; `take` gets each result as it comes.

    Runs keep themselves below `out`.
    """
    with closing(connect(address)) as cluster:
        check_shared(cluster, out, demand)
        losses: Counter[Key] = Counter()
        under_way = {_submit(cluster, demand, function, arguments): key for key, arguments in jobs.items()}
        try:
            while under_way:
                if meanwhile is not None:
                    meanwhile()
                for ref in cluster.wait(list(under_way), _SECONDS):
                    key = under_way.pop(ref)
                    try:
                        take(key, _result(cluster, ref))
                    except WorkerLost as loss:
                        losses[key] += 1
                        _tell(key, losses[key], loss)
                        under_way[_submit(cluster, demand, function, jobs[key])] = key
        except BaseException as problem:
            for ref in under_way:
                cluster.cancel(ref)
            if isinstance(problem, KeyboardInterrupt):
                raise Stopped("stopped; runs that were begun go on from their checkpoints") from None
            raise


def check_shared(cluster: Cluster, out: Path, demand: Demand) -> None:
    """Refuse a directory that is not the same on all nodes: runs would be kept where nobody finds them."""
    marker = out.absolute() / f".shared-{secrets.token_hex(8)}"
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        marker.touch()
    try:
        nodes = [node for node in cluster.nodes() if node.slots(demand)]
        if not nodes:
            raise ConfigError(f"--on ray: no node of the cluster has room for a run ({demand}): ask for less")
        seen = [cluster.submit(sees, str(marker), demand=demand, node=node) for node in nodes]
        blind = [node.address for node, ref in zip(nodes, seen, strict=True) if not cluster.get(ref)]
    except WorkerLost as loss:
        raise TooFewClients(f"--on ray: a node was lost while it was asked for {out} ({loss})") from None
    finally:
        marker.unlink(missing_ok=True)
    if blind:
        raise StorageError(
            f"{out.absolute()}: {', '.join(blind)} cannot see or write it: give --out on a file system that "
            "all nodes share, mounted at the same path"
        )


def sees(path: str) -> bool:
    """Tell whether this node sees a file, and may write beside it."""
    return os.path.exists(path) and os.access(os.path.dirname(path), os.W_OK)


def call_there(
    call: Packed, directory: str, expected: dict[str, str], paths: Sequence[str]
) -> tuple[bytes | None, Any]:
    """Call a function as if from the directory of the command; return its exception, or its result."""
    try:
        check_versions(expected)
        sys.path.extend(path for path in paths if path not in sys.path)
        torch.set_num_threads(1)
        if os.path.isdir(directory):
            os.chdir(directory)  # relative paths mean the same
        function, arguments = unpack(call)
        return None, function(*arguments)
    except Exception as problem:
        return portable(problem, f"a Ray worker on {platform.node()}"), None


def _submit(
    cluster: Cluster, demand: Demand, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Ref:
    given = pack((function, arguments), {}), os.getcwd(), versions(), module_paths()
    return cluster.submit(call_there, *given, demand=demand)


def _result(cluster: Cluster, ref: Ref) -> Any:
    failure, found = cluster.get(ref)
    if failure is not None:
        raise exception_of(failure)
    return found


def _tell(key: object, losses: int, loss: WorkerLost) -> None:
    if losses == LOSSES:
        raise TooFewClients(
            f"--on ray: {key}: {LOSSES} workers were lost over this run ({loss}): is there memory enough "
            "on the nodes? What it has done is kept"
        )
    warnings.warn(f"{key}: goes on elsewhere from its last checkpoint ({loss})", stacklevel=3)
