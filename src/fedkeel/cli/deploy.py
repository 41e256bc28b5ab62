"""`fedkeel deploy init`, `fedkeel deploy up`, `fedkeel deploy status`, `fedkeel deploy down`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.common.columns import SKIPPED
from fedkeel.common.errors import ConfigError, Stopped
from fedkeel.common.interrupts import stoppable
from fedkeel.common.progress import RunProgress, console
from fedkeel.experiments.expression import parse_method
from fedkeel.running.run_directory import read_rows

if TYPE_CHECKING:
    from fedkeel.flower.options import RunConfig
    from fedkeel.flower.rehearsal.rehearsal import RunStatus
    from fedkeel.flower.status import ServerStatus

_INIT = """[bold]Examples[/]

fedkeel deploy init hospitals

fedkeel deploy init hospitals --method "stages((feddyn(0.1), 0.5), fedavg)" --model mlp --nodes 4

Then put your own task and data into its app.py, and rehearse it with `fedkeel deploy up hospitals`."""
_UP = """[bold]Examples[/]

fedkeel deploy up hospitals

fedkeel deploy up hospitals --set rounds=50 --set work.lr=0.05 --run-dir runs/hospitals

The same line goes on with a run that was stopped. Real machines: docs/deployment.md."""
_STATUS = """[bold]Examples[/]

fedkeel deploy status hospitals

fedkeel deploy status hospitals --json"""
_DOWN = """[bold]Examples[/]

fedkeel deploy down hospitals   (a rehearsal that ends by itself takes itself down)"""

App = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the app, as `deploy init` writes it.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Train on real clients with Flower; rehearse it here.")
    group.command(epilog=_INIT)(init)
    group.command(epilog=_UP)(up)
    group.command(epilog=_STATUS)(status)
    group.command(epilog=_DOWN)(down)
    app.add_typer(group, name="deploy")


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it: a new directory.")],
    method: Annotated[
        str, typer.Option(metavar="METHOD", help='Method, as scaffold or "relaxed(fedcm, beta=0.1)".')
    ] = "scaffold",
    model: Annotated[str, typer.Option(metavar="NAME", help='Model, as cnn or "mlp(200, 200)".')] = "mlp",
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Clients, each on a node of its own.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Communication rounds.")] = 10,
) -> None:
    """Write a complete Flower app: your part is one function for the task and one for a node's data."""
    from fedkeel.flower.rehearsal.app_files import write_app  # noqa: PLC0415  loads PyTorch

    parse_method(method)
    files = write_app(directory, method=method, model=model, nodes=nodes, rounds=rounds)
    quoted = shlex.quote(str(directory))
    lines = [f"wrote {len(files)} files to {directory}", f"  your part: {files[2]}"]
    lines += [f"  rehearse it: fedkeel deploy up {quoted}"]
    _say("\n".join(lines))


def up(
    directory: App = Path(),
    settings: opt.Settings = None,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run is kept; by default as the app says.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1024, help="Port of the SuperLink, nodes take the next; by default free ones."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and node authentication.")
    ] = False,
) -> None:
    """Rehearse an app on this machine: SuperLink, nodes, keys, the run; all is taken down at its end.

    Traffic is encrypted and every node has a key of its own, as on real machines. Ctrl-C takes all down too.
    """
    from fedkeel.flower.rehearsal.following import follow, forget_status  # noqa: PLC0415  loads PyTorch
    from fedkeel.flower.rehearsal.rehearsal import Rehearsal, check_app, find_command  # noqa: PLC0415  loads PyTorch
    from fedkeel.running.ending import MODEL_FILE  # noqa: PLC0415  loads PyTorch

    lines, config = _configuration(directory, settings or [], run_dir)
    find_command("flower-superlink")
    run_dir = directory / config.options.run_dir
    if (run_dir / MODEL_FILE).exists() and len(read_rows(run_dir)) >= config.experiment.rounds:
        _say(f"{run_dir}: this run is finished; another one needs another directory: --run-dir")
        _print_end(run_dir)
        return
    check_app(directory)
    _say(f"starting a SuperLink and {config.options.clients} nodes ({_security(insecure)})")
    with _ended_cleanly(run_dir), Rehearsal(directory, port=port, secure=not insecure) as rehearsal:
        rehearsal.run_dir = run_dir.resolve()
        forget_status(run_dir)
        run_id = rehearsal.submit({"set": "\n".join(lines)})
        _say(f"SuperLink on 127.0.0.1:{rehearsal.port}, run {run_id}; logs in {rehearsal.folder}")
        rounds = config.experiment.rounds
        with RunProgress([config.experiment.method], rounds) as progress:
            progress.begin(0, len(read_rows(run_dir)))
            follow(rehearsal, run_id, run_dir, _waiting(), progress.row, submitted_again=_say_submitted_again)
        _say("taking everything down")
    _print_end(run_dir)


def status(directory: App = Path(), as_json: opt.Json = False) -> None:
    """Say what is running of a rehearsal, and how far its run is."""
    from fedkeel.flower.rehearsal.rehearsal import read_app, read_processes, read_state  # noqa: PLC0415  loads PyTorch
    from fedkeel.flower.status import read_status  # noqa: PLC0415  loads PyTorch

    config = read_app(directory)
    state = read_state(directory)
    run_dir = directory / str(state.get("run_dir") or config["deploy"].get("run_dir", "runs/deployment"))
    server = read_status(run_dir)
    processes = [
        {"name": one.name, "pid": one.pid, "alive": one.alive, "log": one.log}
        for one in read_processes(directory)
    ]
    if as_json:
        found = {"processes": processes, "server": None if server is None else server._asdict()}
        print(json.dumps({**found, "run_dir": str(run_dir)}, indent=2, ensure_ascii=False))
        return
    alive = [one for one in processes if one["alive"]]
    lines = [
        f"{one['name']}: {'running' if one['alive'] else 'ended'} (pid {one['pid']})" for one in processes
    ]
    if not alive:
        lines = ["nothing is running"]
    if server is not None:
        lines.append(_described(server, directory, alive=bool(alive)))
    lines.append(f"the run is kept in {run_dir}")
    _say("\n".join(lines))


def down(directory: App = Path()) -> None:
    """End what a rehearsal left running, for instance after it was killed."""
    from fedkeel.flower.rehearsal.rehearsal import read_app, take_down  # noqa: PLC0415  loads PyTorch

    read_app(directory)
    ended = take_down(directory)
    _say(f"ended {', '.join(one.name for one in ended)}" if ended else "nothing is running")


def _configuration(directory: Path, settings: list[str], out: Path | None) -> tuple[list[str], RunConfig]:
    """Return the further settings, line by line, and all of them as read: mistakes show before any start."""
    from fedkeel.flower.options import RunConfig, flattened  # noqa: PLC0415  loads PyTorch
    from fedkeel.flower.rehearsal.rehearsal import read_app  # noqa: PLC0415  loads PyTorch

    given = flattened(read_app(directory))
    if "set" not in given:
        path = directory / "pyproject.toml"
        raise ConfigError(
            f'{path}: lacks set = "" in [tool.flwr.app.config]: --set and --run-dir need it there'
        )
    lines = [*str(given["set"]).splitlines(), *settings]
    if out is not None:
        lines.append(f"deploy.run_dir={json.dumps(str(out.resolve()))}")
    return lines, RunConfig.read({**given, "set": "\n".join(lines)})


@contextmanager
def _ended_cleanly(run_dir: Path) -> Iterator[None]:
    """Take all down when a signal asks for the end too, and say how to go on."""

    try:
        with stoppable():
            yield
    except KeyboardInterrupt:
        raise Stopped(
            f"\nstopped, and everything is taken down; {run_dir} keeps the finished rounds\n"
            "go on with the same line"
        ) from None


def _waiting() -> Any:
    """Return what shows how many nodes have answered, before the first round."""

    def told(now: ServerStatus) -> None:
        if now.state == "waiting":
            _say(f"nodes that have answered: {now.online} of {now.clients}")

    return told


def _say_submitted_again(lost: RunStatus) -> None:
    _say(f"Flower ended the run: {lost}; submitted again, it goes on from its checkpoint")


def _described(server: ServerStatus, directory: Path, *, alive: bool) -> str:
    if server.state == "failed":
        return f"the run failed: {server.message}"
    if server.state == "stopped" or (server.state != "finished" and not alive):
        line = f"fedkeel deploy up {shlex.quote(str(directory))}"
        return f"the run stopped after {server.round} of {server.rounds} rounds; go on with it: {line}"
    if server.state == "waiting":
        return f"the server waits for its nodes: {server.online} of {server.clients} have answered"
    ended = " and has ended" if server.state == "finished" else ""
    return f"the run has played {server.round} of {server.rounds} rounds{ended}"


def _print_end(run_dir: Path) -> None:
    rows = read_rows(run_dir)
    last = rows[-1]
    scores = [
        f"{name} {last[name]:.4f}"
        for name in ("accuracy", "loss", "train_loss")
        if last.get(name) is not None
    ]
    lines = [f"{len(rows)} rounds: {', '.join(scores)}"]
    skipped = sum(len(row.get(SKIPPED, ())) for row in rows)
    if skipped:
        lines.append(f"  {skipped} times a client was skipped: the column {SKIPPED} says whom and why")
    lines += [f"  kept in {run_dir}", f"  look at it: fedkeel show {shlex.quote(str(run_dir))}"]
    _say("\n".join(lines))


def _security(insecure: bool) -> str:
    return "without TLS and authentication" if insecure else "TLS, a key for every node"


def _say(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)
