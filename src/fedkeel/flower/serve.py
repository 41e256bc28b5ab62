"""The server's part: wait for the nodes, then train as everywhere else, on an engine that asks them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkeel.common.errors import FedkeelError, StorageError
from fedkeel.core.oracle import Oracle, device_of
from fedkeel.flower.deployment import Deployment, single
from fedkeel.flower.engine import NodesEngine
from fedkeel.flower.node import settings_digest
from fedkeel.flower.nodes import Clock, Link, Registry, check_settings
from fedkeel.flower.options import RunConfig
from fedkeel.flower.status import ServerStatus, read_status, write_status
from fedkeel.running.callbacks import Callback
from fedkeel.running.preflight import check
from fedkeel.running.result import Result
from fedkeel.running.round import Row
from fedkeel.running.run_directory import read_manifest
from fedkeel.running.train import run
from fedkeel.settings.run_settings import RunSettings

_logger = logging.getLogger("fedkeel")

ABOUT = "deployment"  # what the manifest calls it


def serve(deployment: Deployment, link: Link, given: Mapping[str, Any], clock: Clock | None = None) -> Result:
    """Run a deployment, from its checkpoint if there is one; write its progress to a status file."""
    config = RunConfig.read(given)
    run_dir = Path(config.options.run_dir)
    try:
        return _serve(deployment, config, link, clock or Clock())
    except (SystemExit, KeyboardInterrupt):  # Flower ends its apps by a signal
        write_status(run_dir, (read_status(run_dir) or ServerStatus("stopped"))._replace(state="stopped"))
        raise
    except BaseException as problem:
        message = (
            str(problem) if isinstance(problem, FedkeelError) else f"{type(problem).__name__}: {problem}"
        )
        code = problem.exit_code if isinstance(problem, FedkeelError) else 1
        write_status(run_dir, ServerStatus("failed", message=message, exit_code=code))
        raise


def _serve(deployment: Deployment, config: RunConfig, link: Link, clock: Clock) -> Result:
    options, experiment = config.options, config.experiment
    run_dir = Path(options.run_dir)
    deployment.check_method(config)
    begun = _begun(run_dir)
    registry = Registry(link, options.clients, clock)
    status = ServerStatus("waiting", clients=options.clients, rounds=experiment.rounds)
    write_status(run_dir, status)
    if begun is None:
        registry.wait_for_all(
            options.wait_seconds, lambda online: write_status(run_dir, status._replace(online=online))
        )
        sizes = [registry.found[client].samples for client in range(options.clients)]
    else:
        sizes = begun["samples"]
        registry.resume(sizes)
    settings = deployment.at_server(config, sizes)
    digest = _checked(settings, experiment.device)
    check_settings(registry.found, digest)
    registry.expect(digest)
    about = {ABOUT: begun or {"id": uuid.uuid4().hex, "samples": sizes, "on_loss": options.on_loss}}
    history: list[Row] = []

    def make_engine(settings: RunSettings, oracle: Oracle) -> NodesEngine:
        name = about[ABOUT]["id"]
        return NodesEngine(
            settings,
            oracle,
            registry=registry,
            options=options,
            run=name,
            history=history,
            count=experiment.threads,
        )

    result = run(
        settings,
        experiment.execution().model_copy(update={"engine": NodesEngine.name}),
        run_dir,
        resume=True,
        callbacks=_Follower(history, run_dir, status, registry),
        experiment={**_described(config), "made_from": "a deployment: go on with `fedkeel deploy up`"},
        about=about,
        make_engine=make_engine,
    )
    write_status(run_dir, status._replace(state="finished", round=len(result.history)))
    return result


def _begun(run_dir: Path) -> dict[str, Any] | None:
    """Return what the manifest of a run that was begun here says of the deployment."""
    if not (run_dir / "manifest.json").exists():
        return None
    about = read_manifest(run_dir).get(ABOUT)
    if about is None:
        raise StorageError(
            f"{run_dir}: holds a run that was no deployment: choose another directory (deploy.run_dir)"
        )
    return dict(about)


def _checked(settings: RunSettings, device: str) -> str:
    """Check that model and test set fit together; return the digest that nodes must have too."""
    oracle = Oracle(settings.task, device_of(device))
    if settings.federation.test is not None:
        check(single(settings, settings.federation.test), oracle)
    return settings_digest(settings, oracle)


def _described(config: RunConfig) -> dict[str, Any]:
    table = config.experiment.table()
    deploy = {name: value for name, value in config.options.model_dump().items() if name != "run_dir"}
    return {name: value for name, value in table.items() if name not in ("data", "model")} | {
        "deploy": deploy
    }


class _Follower(Callback):
    """Keeps the engine's view of the history, and the status file, up to date."""

    def __init__(self, history: list[Row], run_dir: Path, status: ServerStatus, registry: Registry) -> None:
        self._history, self._run_dir = history, run_dir
        self._status, self._registry = status._replace(state="running"), registry

    def on_run_begin(self, rows: Sequence[Row]) -> None:
        """Take over the rounds before."""
        self._history[:] = rows
        self._write()

    def on_round_end(self, row: Row) -> None:
        """Take over a round."""
        self._history.append(row)
        self._write()

    def _write(self) -> None:
        online = sum(self._registry.node_of(one) is not None for one in range(self._registry.clients))
        write_status(self._run_dir, self._status._replace(round=len(self._history), online=online))
