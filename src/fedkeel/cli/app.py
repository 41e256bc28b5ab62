"""The application `fedkeel`: its commands, its errors and its exit codes."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fedkeel.cli.plain_help import with_plain_help
from fedkeel.cli.standard_streams import prepare_streams
from fedkeel.cli.usage import UsageError, asks_for_help, explain_usage
from fedkeel.common.errors import FedkeelError, StorageError
from fedkeel.common.files import as_storage_error
from fedkeel.common.version import __version__

_DEBUG = "--debug"
# name: module of `fedkeel.cli`, and the first line of the command's help, shown without importing the module
COMMANDS = {
    "demo": (
        "demo",
        "See a result in a minute: three methods × three seeds on digits, on clients that differ strongly.",
    ),
    "compare": (
        "studies",
        "Compare methods over seeds: a table, a verdict with its confidence interval, a page with curves.",
    ),
    "run": ("run", "Train one method; options change what the file says, and --set changes anything."),
    "resume": (
        "run",
        "Go on with what was stopped: a run, comparison, sweep, search, study or recipe.",
    ),
    "runs": ("runs", "List the runs below a directory: how far they are and how well they do."),
    "show": (
        "show",
        "Show a run: its settings, its curve, what it cost; of a comparison or sweep its table and verdict.",
    ),
    "report": (
        "report",
        "Write the page of runs, comparisons, sweeps, studies or recipes: one file that needs no network.",
    ),
    "export": (
        "report",
        "Write the numbers of runs for other programs: CSV, Parquet, or tables in LaTeX and Markdown.",
    ),
    "watch": (
        "watch",
        "Watch runs while they train: curves that grow, alerts, time left, on a page of this machine alone.",
    ),
    "settings": (
        "settings",
        "List the settings of an experiment: key, type, default, meaning, and the option that sets each.",
    ),
    "methods": (
        "methods",
        "List the methods: the idea, what is sent in units of the model, and the parameters.",
    ),
    "explain": (
        "methods",
        "Print a method as equations, read off its code, with what it sends, keeps and costs.",
    ),
    "cite": (
        "cite",
        "Print the papers of methods, probes, studies and bounds for BibTeX; without a name, list them.",
    ),
    "split": ("split", "Draw a split: clients across, classes down, darker for more samples."),
    "advise": (
        "advise",
        "Report what theory says about a run: constants, safe rates, rounds to a target, conditions, "
        "caveats.",
    ),
    "bounds": (
        "bounds",
        "Tabulate and plot bounds against T, K, N or β, as printed and repaired, for chosen constants.",
    ),
    "costs": (
        "studies",
        "Count what methods cost in short real runs, beside what the papers print; say where they differ.",
    ),
    "study": ("studies", "Diagnostics that need runs of their own."),
    "sweep": (
        "studies",
        "Run one setting over several values and seeds, in parallel; a table with intervals and a plot.",
    ),
    "recipes": (
        "recipes",
        "List the papers' tables and figures: what each claims, how long it takes here, what is missing.",
    ),
    "reproduce": (
        "reproduce",
        "Run a table or figure of a paper: its numbers beside ours, each claim judged, and a page.",
    ),
    "cluster": ("cluster", "Ray clusters, on which --engine ray and --on ray run."),
    "deploy": ("deploy", "Train on real clients with Flower; rehearse it here."),
    "tune": (
        "studies",
        "Search settings for the best final accuracy with Optuna; hopeless trials are pruned by rounds.",
    ),
}


@cache
def load_command(name: str) -> Any:
    """Import the module of a command and return the command."""
    module = import_module(f"fedkeel.cli.{COMMANDS[name][0]}")
    commands = typer.Typer(rich_markup_mode="rich")
    module.register(commands)
    return with_plain_help(typer.main.get_group(commands).commands[name])


class CommandGroup(TyperGroup):
    """Imports a command when it is called; turns fedkeel's errors into a message and an exit code.

    `--debug` may stand anywhere on the line.
    """

    def __init__(self, **attributes: Any) -> None:
        listed = {name: TyperCommand(name, help=summary) for name, (_, summary) in COMMANDS.items()}
        super().__init__(**{**attributes, "commands": listed})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, imported."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help with the list of commands, none of them imported."""
        shared = {name: getattr(self, name) for name in ("params", "help", "epilog", "rich_markup_mode")}
        TyperGroup(name=self.name, commands=dict(self.commands), **shared).format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move `--debug` to the front."""
        if _DEBUG in args:
            args = [_DEBUG, *(arg for arg in args if arg != _DEBUG)]
        with _readable_usage():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; expected errors end in one message on stderr."""
        with _readable_warnings(), _readable_usage():
            try:
                return super().invoke(ctx)
            except FedkeelError as problem:
                if ctx.params.get("debug"):
                    traceback.print_exc()
                prefix = "" if problem.exit_code == 130 else "error: "
                print(f"{prefix}{problem}", file=sys.stderr)
                raise typer.Exit(problem.exit_code) from None
            except OSError as problem:
                if problem.filename is None or ctx.params.get("debug"):  # of the standard output: see `main`
                    raise
                print(f"error: {as_storage_error(problem)}", file=sys.stderr)
                raise typer.Exit(StorageError.exit_code) from None
            except KeyboardInterrupt:
                print("\nstopped", file=sys.stderr)
                raise typer.Exit(130) from None


app = typer.Typer(
    name="fedkeel",
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 bad configuration, 3 data, 4 diverged, 5 too few clients answered, "
    "6 storage, 130 stopped.\n\n[bold]Start with:[/] fedkeel demo",
)


def _version(wanted: bool) -> None:
    if wanted:
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
def _readable_usage() -> Iterator[None]:
    """Say what is wrong with a line in fedkeel's words."""
    try:
        yield
    except UsageError as problem:
        if asks_for_help(problem):
            raise
        print(f"error: {explain_usage(problem)}", file=sys.stderr)
        raise typer.Exit(problem.exit_code) from None


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
    prepare_streams()
    try:
        try:
            app(prog_name="fedkeel")
        finally:
            sys.stdout.flush()
    except OSError as problem:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  Python would try to write the rest again
        if isinstance(problem, BrokenPipeError):
            sys.exit(1)
        if _DEBUG in sys.argv:
            traceback.print_exc()
        where = problem.filename or "standard output"
        print(f"error: cannot write to {where}: {problem.strerror or problem}", file=sys.stderr)
        sys.exit(StorageError.exit_code)
