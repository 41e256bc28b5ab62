"""The application `fedkeel`: its commands, its errors and its exit codes."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedkeel.cli import advise, bounds, compare, costs, run, search, show, split, study
from fedkeel.errors import FedkeelError

_DEBUG = "--debug"


class Group(TyperGroup):
    """Turns fedkeel's errors into a message and an exit code; takes `--debug` anywhere on the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move `--debug` to the front."""
        if _DEBUG in args:
            args = [_DEBUG, *(arg for arg in args if arg != _DEBUG)]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; expected errors end in one message on stderr."""
        with _readable_warnings():
            try:
                return super().invoke(ctx)
            except FedkeelError as problem:
                if ctx.params.get("debug"):
                    traceback.print_exc()
                prefix = "" if problem.exit_code == 130 else "error: "
                print(f"{prefix}{problem}", file=sys.stderr)
                raise typer.Exit(problem.exit_code) from None


app = typer.Typer(
    name="fedkeel",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 bad configuration, 3 data, 4 diverged, 5 too few clients answered, "
    "6 storage, 130 stopped.\n\n[bold]Start with:[/] fedkeel demo",
)
for commands in (compare, run, show, split, advise, bounds, costs, study, search):
    commands.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from fedkeel import __version__  # noqa: PLC0415  heavy

        print(f"fedkeel {__version__}")
        raise typer.Exit


@app.callback()
def fedkeel(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version),
    ] = False,
    debug: Annotated[bool, typer.Option(_DEBUG, help="Show the traceback of an error.")] = False,
) -> None:
    """Federated optimisation that keeps its course: run, compare and explain methods against client drift."""


@contextmanager
def _readable_warnings() -> Iterator[None]:
    """Show each warning as one line on stderr."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = show
        yield


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a pipe in the C locale cannot say ± otherwise
            stream.reconfigure(errors="replace")
    app()
