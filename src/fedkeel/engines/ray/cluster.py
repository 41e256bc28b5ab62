"""A Ray cluster: the one module that knows Ray's interface.

Without an address Ray is started on this machine, and ended when the last who use it have closed it. It
listens on loopback alone and asks for a token, sends no usage statistics and serves no dashboard; all of this
must be said before Ray is imported.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fedkeel.common.errors import ConfigError

STORE = "FEDKEEL_RAY_STORE"  # bytes of the object store of a Ray that is started here
_STORE_BYTES = 1 << 30
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_worker_niceness": "0",  # 15 by default: on a busy machine such workers hardly ever run
}
_LONGEST_PATH = 40  # of the directory that holds Ray's sockets: the system takes no long names for those
_REACH_SECONDS = 5.0

Ref = Any  # what stands for a value that lies, or will lie, on some node


class Demand(NamedTuple):
    """What a task takes of its node while it runs."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0

    def __str__(self) -> str:
        return f"num_cpus={self.num_cpus:g}" + (f", num_gpus={self.num_gpus:g}" if self.num_gpus else "")


class ClusterNode(NamedTuple):
    """A machine of the cluster, and what it offers."""

    id: str
    address: str
    cpus: float
    gpus: float

    def slots(self, demand: Demand) -> int:
        """Return how many tasks it runs at once."""
        found = [
            int(has / takes + 1e-9)
            for has, takes in ((self.cpus, demand.num_cpus), (self.gpus, demand.num_gpus))
            if takes
        ]
        return min(found, default=0)


class WorkerLost(Exception):
    """What ran a task, or held its result, is gone; `blameless` where that is no fault of the task."""

    def __init__(self, how: str, *, blameless: bool) -> None:
        super().__init__(how)
        self.blameless = blameless


class Cluster:
    """A connection to Ray. Get one from `connect`, and close it."""

    def __init__(self, ray: Any, address: str | None, directory: str | None, *, owned: bool) -> None:
        self.address, self._ray, self._owned = address, ray, owned
        self._directory = directory  # of a Ray that was started here
        self._functions: dict[Callable[..., Any], Any] = {}
        self.users = 0

    def put(self, value: Any) -> Ref:
        """Lay a value where every node can fetch it once; it is freed when nothing refers to it any more."""
        try:
            return self._ray.put(value)
        except self._ray.exceptions.ObjectStoreFullError as problem:
            raise ConfigError(
                f"engine = 'ray': the object store is full ({_first_line(problem)}): give Ray a larger "
                f"one, as with {STORE}=4000000000 (bytes) or `ray start --object-store-memory`"
            ) from None

    def submit(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        demand: Demand,
        returns: int = 1,
        node: ClusterNode | None = None,
    ) -> Any:
        """Let a node call a function; return what stands for its result, or a list of several."""
        remote = self._functions.get(function)
        if remote is None:
            remote = self._functions[function] = self._ray.remote(function)
        options = {**demand._asdict(), "num_returns": returns, "max_retries": 0}
        if node is not None:
            strategies = self._ray.util.scheduling_strategies
            options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        return remote.options(**options).remote(*arguments)

    def wait(self, refs: Sequence[Ref], seconds: float) -> list[Ref]:
        """Return those of the results that are there, after at most so long where there are none."""
        ready, _ = self._ray.wait(list(refs), num_returns=1, timeout=seconds)
        if ready and len(refs) > 1:
            ready, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
        found: list[Ref] = ready
        return found

    def get(self, ref: Ref) -> Any:
        """Return a result; raise `WorkerLost` where it will never come."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref)
        except errors.NodeDiedError:
            raise WorkerLost("its node was lost", blameless=True) from None
        except (errors.ObjectLostError, errors.ObjectFetchTimedOutError):
            raise WorkerLost("what it needed or gave was lost with a node", blameless=True) from None
        except errors.WorkerCrashedError:
            raise WorkerLost("its worker process died", blameless=False) from None
        except errors.OutOfMemoryError:
            raise WorkerLost("Ray ended its worker: the node had no memory left", blameless=False) from None
        except errors.TaskCancelledError:
            raise WorkerLost("it was cancelled", blameless=False) from None
        except (errors.RaySystemError, errors.RayTaskError, RuntimeError) as problem:
            raise _not_run(problem) from None

    def cancel(self, ref: Ref) -> None:
        """End a task, with the process that runs it."""
        self._ray.cancel(ref, force=True)

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes that are alive."""
        return [
            ClusterNode(
                node["NodeID"],
                node["NodeManagerAddress"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]

    def close(self) -> None:
        """Let go of it; the last who does so ends the connection, and the Ray that was started here."""
        global _open  # noqa: PLW0603
        with _connecting:
            self.users -= 1
            if self.users > 0:
                return
            _open = None
            if not self._owned:
                return
            self._ray.shutdown()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)


_connecting = threading.Lock()
_open: Cluster | None = None
_token = secrets.token_hex(32)  # of every Ray that this process starts


def connect(address: str | None, *, num_cpus: float | None = None) -> Cluster:
    """Return a connection to the cluster at an address; without one, to a Ray that is started here.

    Where this process is connected already, that connection serves. `num_cpus` is how many a Ray that is
    started here has; by default as many as the machine.
    """
    global _open  # noqa: PLW0603
    with _connecting:
        if _open is None:
            _open = _start(num_cpus) if address is None else _join(address)
        elif address not in (None, "auto", _open.address):
            raise ConfigError(
                f"address = {address!r}: this process is connected to {_open.address or 'a Ray of its own'}: "
                "end what uses that, or start another process"
            )
        _open.users += 1
        return _open


def _start(num_cpus: float | None) -> Cluster:
    before = sys.modules.get("ray")
    if before is not None and before.is_initialized():  # in a task of Ray, or by the user's own hand
        return Cluster(before, None, None, owned=False)
    ray = _import({**_QUIET, **_LOOPBACK})
    directory = tempfile.mkdtemp(prefix="fedkeel-ray-", dir=_short_directory())
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # runs after Ray's own end
    environment = {**_QUIET, **_LOOPBACK, "RAY_AUTH_TOKEN": _token}
    kept = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        _init(
            ray,
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            object_store_memory=_store_bytes(),
            _temp_dir=directory,
        )
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return Cluster(ray, None, directory, owned=True)


def _join(address: str) -> Cluster:
    if address.startswith("ray://"):
        raise ConfigError(
            f"address = {address!r}: Ray's client protocol is not used here: run fedkeel on a machine of the "
            "cluster (`ray start --address=HOST:PORT` makes one of it) and give address='HOST:PORT' or 'auto'"
        )
    host, colon, port = address.rpartition(":")
    if address != "auto" and not (colon and host and port.isdigit()):
        raise ConfigError(f"address = {address!r}: give HOST:PORT, as in head:6379, or auto")
    ray = _import(_QUIET)
    if ray.is_initialized():
        return Cluster(ray, address, None, owned=False)
    where = f"address = {address!r}"
    if address == "auto":
        address = _of_this_machine(ray)
        host, _, port = address.rpartition(":")
        where += f", which is {address}"
    _check_reachable(host, port, where)
    _init(ray, address=address)
    return Cluster(ray, address, None, owned=True)


def _of_this_machine(ray: Any) -> str:
    """Return the address of the cluster that this machine is part of."""
    try:
        found: str = ray._private.services.canonicalize_bootstrap_address("auto")
    except ConnectionError:
        raise ConfigError(
            "address = 'auto': this machine is part of no Ray cluster: `ray start --address=HOST:PORT` makes "
            "it one, `ray start --head` begins a new one; or leave the address out to stay on this machine"
        ) from None
    return found


def _import(environment: dict[str, str]) -> Any:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        import ray  # noqa: PLC0415  an extra
        import ray.util.scheduling_strategies  # noqa: PLC0415
    except ImportError:
        raise ConfigError('Ray is not installed: pip install "fedkeel[ray]"') from None
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return ray


def _init(ray: Any, *, address: str, **options: Any) -> None:
    """Connect; the handling of signals stays as it was."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if main else None
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # what is lost is told by who waits for it
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as problem:
        with suppress(Exception):
            ray.shutdown()
        raise _refused(address, problem) from None
    finally:
        if main and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def _refused(address: str, problem: Exception) -> ConfigError:
    """Say why there is no connection, and what to do."""
    where, told = f"address = {address!r}", str(problem)
    if "ersion mismatch" in told:
        return ConfigError(
            f"{where}: {' '.join(told.split())}: install the same versions on this machine and on the nodes"
        )
    if address == "local":
        return ConfigError(
            f"engine = 'ray': Ray could not be started on this machine: {_first_line(problem)}"
        )
    return ConfigError(
        f"{where}: no connection to Ray ({_first_line(problem)}): does the cluster run (`ray status`), is "
        "this machine part of it (`ray start --address=HOST:PORT`), and is the token that of the cluster "
        "(RAY_AUTH_MODE=token with RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH)?"
    )


def _check_reachable(host: str, port: str, where: str) -> None:
    try:
        socket.create_connection((host, int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as problem:
        raise ConfigError(
            f"{where}: nobody answers there ({problem}): start the cluster's head with "
            f"`ray start --head --port={port}` on {host}, or leave the address out to stay on this machine"
        ) from None


def _not_run(problem: BaseException) -> ConfigError:
    """Say why a node could not even begin with a task: what fails inside one comes back as a value."""
    reason = str(problem).strip().splitlines()[-1:] or [type(problem).__name__]
    return ConfigError(
        f"a node of the cluster cannot run fedkeel ({reason[0]}): install the same fedkeel[ray] "
        "on all nodes; `fedkeel cluster check` shows what each has"
    )


def _store_bytes() -> int:
    given = os.environ.get(STORE, str(_STORE_BYTES))
    if not given.isdigit():
        raise ConfigError(f"{STORE}={given}: give a number of bytes, as 4000000000")
    return int(given)


def _short_directory() -> str | None:
    return None if len(tempfile.gettempdir()) < _LONGEST_PATH else "/tmp"


def _first_line(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[0] if lines else type(problem).__name__).rstrip(".")
