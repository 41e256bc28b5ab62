"""A deployment on this machine: SuperLink and SuperNodes on loopback, from start to end.

Everything lies in the app's `.deploy`: keys and certificates, logs, and `state.json`, which names the
processes, so that another process can look at them and take them down.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import tomli_w

from fedkeel.common.errors import ConfigError, DataError, FedkeelError, StorageError
from fedkeel.common.files import storage_errors, write_durably
from fedkeel.common.interrupts import uninterrupted
from fedkeel.flower.rehearsal import processes
from fedkeel.flower.rehearsal.keys import make_certificates, make_node_key
from fedkeel.flower.rehearsal.ports import HOST, check_port, free_ports
from fedkeel.flower.rehearsal.processes import Process

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_START_SECONDS = 90.0
_COMMAND_SECONDS = 120.0
_COMMANDS_AT_ONCE = 2
_PATIENCE = 0.2

STATE, FOLDER = "state.json", ".deploy"


class RunStatus(NamedTuple):
    """The status of a run at the SuperLink, as running or finished:failed, and Flower's reason for it."""

    status: str
    details: str = ""

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.status.startswith("finished")

    def __str__(self) -> str:
        return f"{self.status} ({self.details})" if self.details else self.status


class Rehearsal:
    """SuperLink and SuperNodes of an app on this machine; use it as a context."""

    def __init__(self, app: Path, *, nodes: int | None = None, port: int | None = None, secure: bool = True):
        self.app = app.resolve()
        config = read_app(self.app)
        self.nodes = nodes if nodes is not None else config["deploy"]["clients"]
        self.secure, self.folder = secure, self.app / FOLDER
        self.keys = self.folder / "keys"
        self._asked_port = port
        self.port = 0
        self.processes: list[Process] = []
        self.run_id: str | None = None
        self.run_dir: Path | None = None
        self._lock: Any = None
        self._overrides: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Rehearsal:
        self._take_lock()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _take_lock(self) -> None:
        with storage_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.keys.mkdir(mode=0o700, exist_ok=True)
            self._lock = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise StorageError(
                f"{self.app}: is up already: look at it with `fedkeel deploy status {self.app}`, or end it "
                "with Ctrl-C where it runs"
            ) from None
        if left := [one for one in read_processes(self.app) if one.members()]:
            self._lock.close()
            raise StorageError(
                f"{self.app}: of a rehearsal before these are still running: "
                f"{', '.join(one.name for one in left)}: end them with `fedkeel deploy down {self.app}`"
            )

    def _start(self) -> None:
        commands = {name: find_command(name) for name in ("flower-superlink", "flower-supernode", "flwr")}
        self._ports = self._choose_ports()
        self.port = self._ports[0]
        if self.secure:
            make_certificates(self.keys, [HOST, "localhost"])
        self._write_config()
        security = self._server_security()
        link = [commands["flower-superlink"], *security, "--host", HOST, "--port", str(self.port)]
        database = self.folder / "superlink.db"
        database.unlink(missing_ok=True)
        link += ["--disable-runtime-dependency-installation", "--database", str(database)]
        self.start_process("superlink", link, self.app)
        self._wait_for_port()
        if self.secure:
            keys = [make_node_key(self.keys, f"node{client}") for client in range(self.nodes)]
            with ThreadPoolExecutor(_COMMANDS_AT_ONCE) as pool:
                list(pool.map(self.register, keys))
        for client in range(self.nodes):
            self.start_node(client)

    def start_node(self, client: int) -> Process:
        """Start the SuperNode of a client, or start it again."""
        folder = self.folder / "nodes" / str(client)
        folder.mkdir(parents=True, exist_ok=True)
        return self.start_process(f"node{client}", self.node_command(client), folder)

    def node_command(self, client: int, key: Path | None = None, authority: Path | None = None) -> list[str]:
        """Return the line that starts a SuperNode; what it keeps lies in a directory of its own."""
        state = self.folder / "nodes" / str(client) / "state"
        security = ["--insecure"]
        if self.secure:
            security = ["--root-certificates", str(authority or self.keys / "ca.crt")]
            security += ["--auth-supernode-private-key", str(key or self.keys / f"node{client}")]
        command = [find_command("flower-supernode"), *security, "--superlink", f"{HOST}:{self.port}"]
        command += ["--host", HOST, "--port", str(self._ports[1 + client])]
        return [*command, "--node-config", f'client={client} state="{state}"']

    def register(self, key: Path) -> None:
        """Let the SuperLink know a node's public key: others are refused."""
        self.flwr("supernode", "register", f"{key}.pub", "loop")

    def submit(self, overrides: Mapping[str, Any] | None = None) -> str:
        """Submit a run of the app; return its number."""
        overrides = dict(overrides or {})
        words = ["run", str(self._staged()), "loop", "--format", "json"]
        if overrides:
            path = self.folder / "overrides.toml"
            path.write_text(tomli_w.dumps(overrides))
            words += ["--run-config", str(path)]
        answer = _json(self.flwr(*words), "flwr run")
        if "run-id" not in answer:
            raise DataError(f"the SuperLink did not take the run: {json.dumps(answer)[:1000]}")
        self.run_id = str(answer["run-id"])
        self._overrides[self.run_id] = overrides
        self._write_state()
        return self.run_id

    def submit_again(self, run_id: str) -> str:
        """Submit a run once more, with the overrides of the first time; return its new number."""
        return self.submit(self._overrides[run_id])

    def _staged(self) -> Path:
        """Return a copy of the app's own files: Flower sends all it finds, so no keys may be there."""
        staged = self.folder / "app"
        shutil.rmtree(staged, ignore_errors=True)

        def ignored(_: str, names: list[str]) -> set[str]:
            hidden = {name for name in names if name.startswith(".") and name != ".gitignore"}
            return hidden | ({"runs", "__pycache__"} & set(names))

        with storage_errors(staged):
            shutil.copytree(self.app, staged, ignore=ignored)
        return staged

    def run_status(self, run_id: str) -> RunStatus:
        """Return the status of a run at the SuperLink."""
        found = _json(self.flwr("list", "--run-id", run_id, "loop", "--format", "json"), "flwr list")
        run = (found.get("runs") or [{}])[0]
        return RunStatus(str(run.get("status", "unknown")), str(run.get("status-details") or ""))

    def flwr(self, *words: str) -> str:
        """Run Flower's command line against this SuperLink; return what it prints."""
        command = [find_command("flwr"), *words]
        try:
            done = subprocess.run(
                command,
                cwd=self.app,
                env=self.environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=_COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise DataError(f"flwr {words[0]}: no answer within {_COMMAND_SECONDS:g} seconds") from None
        if done.returncode != 0:
            told = (done.stdout + done.stderr).strip().splitlines()
            raise DataError(f"flwr {' '.join(words[:2])} failed: {' '.join(told[-3:])}")
        return done.stdout

    def start_process(self, name: str, command: Sequence[str], folder: Path) -> Process:
        """Start a process of the rehearsal and remember it; what is left of one of that name is ended."""
        self.end_process(name)
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        with uninterrupted():  # what is started is written down too
            made = processes.start(name, command, folder=folder, log=log, env=self.environment())
            self.processes = [*self.processes, made]
            self._write_state()
        return made

    def end_process(self, name: str) -> None:
        """End one process of the rehearsal."""
        processes.stop([one for one in self.processes if one.name == name])
        self.processes = [one for one in self.processes if one.name != name]
        self._write_state()

    def stop(self) -> None:
        """End everything that was started; a second Ctrl-C does not keep it from that."""
        with uninterrupted():
            self.processes = processes.stop(self.processes)
            self._write_state()
            if self._lock is not None:
                self._lock.close()

    def environment(self) -> dict[str, str]:
        """Return the environment of Flower's programs: quiet, with a configuration of this app's own."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {
            **os.environ,
            **QUIET,
            "PYTHONDONTWRITEBYTECODE": "",
            "FLWR_HOME": str(self.folder / "flwr"),
            "PATH": path,
        }

    def _server_security(self) -> list[str]:
        if not self.secure:
            return ["--insecure"]
        files = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
        words = [word for name, file in files.items() for word in (f"--ssl-{name}", str(self.keys / file))]
        return [*words, "--enable-supernode-auth"]

    def _write_config(self) -> None:
        security: dict[str, Any] = {"insecure": True}
        if self.secure:
            security = {"root-certificates": str(self.keys / "ca.crt")}
        table = {"superlink": {"default": "loop", "loop": {"address": f"{HOST}:{self.port}", **security}}}
        home = self.folder / "flwr"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(tomli_w.dumps(table))

    def _write_state(self) -> None:
        state = {
            "processes": [one._asdict() for one in self.processes],
            "port": self.port,
            "run": self.run_id,
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            "secure": self.secure,
        }
        with storage_errors(self.folder):
            write_durably(self.folder / STATE, json.dumps(state, indent=2).encode())

    def _choose_ports(self) -> list[int]:
        """Return a port for the SuperLink and one for each node."""
        count = self.nodes + 2  # one for a node that is started beside the others
        if self._asked_port is None:
            return free_ports(count)
        ports = list(range(self._asked_port, self._asked_port + count))
        for port in ports:
            check_port(port)
        return ports

    def _wait_for_port(self) -> None:
        link, end = self.processes[0], time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if not link.alive:
                raise DataError(f"the SuperLink did not start:\n{link.last_words()}\n(all of it: {link.log})")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            time.sleep(_PATIENCE)
        raise DataError(f"the SuperLink did not answer within {_START_SECONDS:g} seconds: see {link.log}")


def read_app(app: Path) -> dict[str, Any]:
    """Return the settings of an app, as nested tables; refuse a directory that holds none."""
    path = app / "pyproject.toml"
    try:
        config = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]
        clients = config["deploy"]["clients"]
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no app: write one with `fedkeel deploy init DIR`") from None
    except (KeyError, TypeError):
        raise ConfigError(
            f"{path}: lacks clients in [tool.flwr.app.config.deploy]: see what `fedkeel deploy init` writes"
        ) from None
    except (OSError, ValueError) as problem:
        raise ConfigError(f"{path}: cannot be read as TOML: {problem}") from None
    if isinstance(clients, bool) or not isinstance(clients, int) or clients < 1:
        raise ConfigError(f"{path}: deploy.clients = {clients!r}: give a whole number from 1 on")
    return dict(config)


def check_app(app: Path) -> None:
    """Load an app's code once, in a process of its own: Flower does not say what is wrong with it."""
    try:
        table = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["components"]
        modules = sorted({str(table[name]).partition(":")[0] for name in ("serverapp", "clientapp")})
    except (KeyError, TypeError):
        raise ConfigError(
            f"{app / 'pyproject.toml'}: lacks serverapp or clientapp in [tool.flwr.app.components]: see what "
            "`fedkeel deploy init` writes"
        ) from None
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    command = [sys.executable, "-c", code, *modules]
    done = subprocess.run(command, cwd=app, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        where = [line.strip() for line in done.stderr.splitlines() if str(app.resolve()) in line]
        told = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise ConfigError(f"{app}: its code does not load: {'; '.join([*told, *where[-1:]])}")


def read_state(app: Path) -> dict[str, Any]:
    """Return what is known of a rehearsal, nothing where there never was one."""
    try:
        found: dict[str, Any] = json.loads((app / FOLDER / STATE).read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def read_processes(app: Path) -> list[Process]:
    """Return the processes that a rehearsal started."""
    try:
        return [Process(**one) for one in read_state(app).get("processes", [])]
    except TypeError:
        return []


def take_down(app: Path) -> list[Process]:
    """End what a rehearsal left running; return what was ended."""
    running = [one for one in read_processes(app) if one.members()]
    left = processes.stop(running)
    if left:
        names = ", ".join(f"{one.name} ({one.pid})" for one in left)
        raise FedkeelError(f"{app}: these do not end: {names}")
    return running


def find_command(name: str) -> str:
    """Return the path of one of Flower's programs, beside this Python or on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None or importlib.util.find_spec("flwr") is None:
        raise ConfigError('a deployment needs Flower: pip install "fedkeel[flower]"')
    return found


def _json(text: str, what: str) -> dict[str, Any]:
    begin = re.search(r"^\{", text, re.MULTILINE)  # a warning may stand before
    try:
        found: dict[str, Any] = json.loads(text[begin.start() if begin else 0 :])
        return found
    except ValueError:
        raise DataError(f"{what}: cannot make sense of its answer: {text.strip()[:300]}") from None
