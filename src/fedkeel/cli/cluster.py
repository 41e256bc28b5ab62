"""`fedkeel cluster check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from fedkeel.cli import options as opt
from fedkeel.common.errors import ConfigError
from fedkeel.common.progress import console, plain_table, shown_time
from fedkeel.experiments.experiment import Experiment

if TYPE_CHECKING:
    from fedkeel.experiments.cluster_check import ClusterReport, NodeReport

_EXAMPLES = """[bold]Examples[/]

fedkeel cluster check --address head:6379

fedkeel cluster check experiment.toml --address auto --rounds 500

fedkeel cluster check --address head:6379 --json > cluster.json"""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Ray clusters, on which --engine ray and --on ray run.")

    @group.callback()
    def cluster() -> None:
        """Ray clusters, on which --engine ray and --on ray run."""

    group.command(epilog=_EXAMPLES + opt.OTHER_SETTINGS)(check)
    app.add_typer(group, name="cluster")


@opt.takes_experiment(show=("address", "num_cpus", "num_gpus"))
def check(experiment: Experiment, as_json: opt.Json = False) -> None:
    """Show of every node whether it can run fedkeel, has the same versions and the data, and how fast it is.

    Then how long the experiment would take there with --engine ray, without evaluation. Nodes need the data
    for --on ray alone: with --engine ray it is sent to them. Without --address Ray is started here.
    """
    from fedkeel.experiments.cluster_check import check_cluster  # noqa: PLC0415  loads PyTorch

    report = check_cluster(experiment)
    if as_json:
        nodes = [node._asdict() for node in report.nodes]
        found = {**report._asdict(), "nodes": nodes, "fit": report.fit}
        print(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        _print(report)
    if not report.fit:
        unfit = [f"{node.address}: {node.problem}" for node in report.nodes if node.problem is not None]
        raise ConfigError(
            "; ".join(unfit) or "no node of the cluster has room for a client: start one with CPUs"
        )


def _print(report: ClusterReport) -> None:
    screen = console()
    headings = ("node", "CPUs", "GPUs", "clients at once", "fedkeel", "torch", "versions", "data", "steps/s")
    screen.print(plain_table(headings, [_cells(node) for node in report.nodes]))
    number = len(report.nodes)
    lines = [
        f"\n{number} node{'s' * (number != 1)}, {report.slots} clients at once; a round has {report.cohort} "
        f"clients × {report.steps} steps, the model {report.model_bytes / 1e6:.2f} MB"
    ]
    if report.task_seconds is not None and report.model_seconds is not None:
        task, model = 1e3 * report.task_seconds, 1e3 * report.model_seconds
        lines.append(f"a task costs {task:.1f} ms, handing out the model {model:.1f} ms per round")
    if report.seconds is not None:
        lines.append(f"{report.rounds} rounds take about {shown_time(report.seconds)}, without evaluation")
    lines += [f"{node.address}: no data: {node.lacks_data}" for node in report.nodes if node.lacks_data]
    screen.print("\n".join(lines), markup=False, soft_wrap=True)


def _cells(node: NodeReport) -> list[str]:
    speed = node.steps_per_second
    return [
        f"{node.address} {node.host}".strip(),
        f"{node.cpus:g}",
        f"{node.gpus:g}",
        str(node.slots),
        node.versions.get("fedkeel", "—"),
        node.versions.get("torch", "—"),
        "the same" if node.problem is None else "differ" if node.versions else "cannot run it",
        "—" if not node.versions else "no" if node.lacks_data else "yes",
        "—" if speed is None else f"{speed:,.0f}",
    ]
