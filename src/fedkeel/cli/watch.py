"""`fedkeel watch`: the live page of the runs below a directory."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fedkeel.cli import paths
from fedkeel.common.errors import ConfigError, StorageError
from fedkeel.web.guarding import Guard

_NICENESS = 5  # training beside it goes first
_EXAMPLES = """[bold]Examples[/]

fedkeel watch

fedkeel watch runs/compare --port 8080

fedkeel watch --control   (with buttons that pause, checkpoint and stop runs)"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(epilog=_EXAMPLES)(watch)


def watch(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look for runs.")] = paths.ROOT,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port; by default (0) one that is free.")
    ] = 0,
    control: Annotated[
        bool, typer.Option("--control", help="Let the page pause, checkpoint and stop runs.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Watch runs while they train: curves that grow, alerts, time left, on a page of this machine alone.

    The address has a random token, without which nothing is answered. Nothing is sent elsewhere.
    """
    from fedkeel.web.server import serve  # noqa: PLC0415  an extra
    from fedkeel.web.watching import Watch  # noqa: PLC0415  pydantic takes its time

    if not directory.is_dir():
        raise StorageError(f"{directory}: there is no such directory; runs are kept below runs/ by default")
    with _listen(port) as listening:
        guard = Guard(listening.getsockname()[1])
        print(f"Watching {directory}: {guard.address}\nCtrl-C ends it; runs go on.", flush=True)
        if open_browser:
            typer.launch(guard.address)
        os.nice(_NICENESS)
        with suppress(KeyboardInterrupt):
            serve(Watch(directory, control=control), listening, guard)


def _listen(port: int) -> socket.socket:
    """Return a socket on this machine alone."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
        made.listen()
    except OSError as problem:
        made.close()
        raise ConfigError(
            f"--port {port}: {problem.strerror}: choose another, or leave it out to get one that is free"
        ) from None
    return made
