"""`fedkeel run` and `fedkeel resume`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkeel.cli import options as opt
from fedkeel.cli import paths
from fedkeel.cli.studies import go_on, option_of
from fedkeel.common.columns import shown_events
from fedkeel.common.errors import ClientFailed, ConfigError, Diverged, FedkeelError, Stopped, StorageError
from fedkeel.common.progress import RunProgress, console, shown_time
from fedkeel.directories.kinds import KeptStudy, kept_study
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import spell_method
from fedkeel.report.tables import best_round, cost_to, shown_best
from fedkeel.report.target_costs import shown_bytes
from fedkeel.running.run_directory import read_manifest, read_rows
from fedkeel.settings.options import FaultOptions
from fedkeel.studies.comparison import Comparison

if TYPE_CHECKING:
    from fedkeel.running.result import Result

_RUN_EXAMPLES = """[bold]Examples[/]

fedkeel run --method scaffold --rounds 100

fedkeel run --method "relaxed(scaffold(lr=0.5), beta=0.1)" --split "DirichletByClass(0.3)" --lr 0.05

fedkeel run --data cifar10 --model cnn --noise "ChannelGains(0.2)" --augment "Augment(pad=4)"

fedkeel run experiment.toml --seed 1 --set work.weight_decay=0.001 --out runs/mine

fedkeel run --json --rounds 20 > result.json"""
_RESUME_EXAMPLES = """[bold]Examples[/]

fedkeel resume runs/20260101-120000-scaffold

fedkeel resume runs/mine --rounds 200   (goes on with a finished run)

fedkeel resume runs/mine --set on_client_error=skip   (without clients that fail from now on)"""

_SHOWN = ("noise", "augment", "init", "reducer", "attack", "track")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog=_RUN_EXAMPLES + opt.OTHER_SETTINGS)(run)
    app.command(epilog=_RESUME_EXAMPLES)(resume)


@opt.takes_experiment(show=(*opt.TRAINING, *_SHOWN))
def run(experiment: Experiment, out: opt.Out = None, as_json: opt.Json = False) -> None:
    """Train one method; options change what the file says, and --set changes anything.

    The run is kept in a directory of its own and can be resumed after Ctrl-C, a crash or a power cut.
    """
    directory = out or paths.fresh(f"{experiment.method}-seed{experiment.seed}")
    if (directory / "manifest.json").exists():
        raise StorageError(
            f"{directory} holds a run already: go on with `fedkeel resume {shlex.quote(str(directory))}`, "
            "or choose another directory with --out"
        )
    _train(experiment, directory, resuming=False, as_json=as_json)


def resume(
    directory: opt.Directory,
    rounds: Annotated[int | None, typer.Option(min=1, help="Go on to this many rounds in all.")] = None,
    columns: Annotated[str | None, option_of(Comparison, "columns")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What happens from now on when clients fail, as on_client_error=skip; repeatable.",
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Go on with what was stopped: a run, comparison, sweep, search, study or recipe."""
    study = kept_study(directory)
    if study is not None:
        _go_on(study, rounds, columns, changes, as_json=as_json)
        return
    paths.refuse_columns(directory, columns)

    manifest, experiment = read_manifest(directory), Experiment.load(directory)
    rounds = rounds or max(experiment.rounds, manifest["rounds"], len(read_rows(directory)))
    experiment = experiment.with_settings([f"rounds={rounds}", *_of_faults(changes or [])])
    _train(experiment, directory, resuming=True, as_json=as_json)


def _go_on(
    kept: KeptStudy, rounds: int | None, columns: str | None, settings: list[str] | None, *, as_json: bool
) -> None:
    """Go on with a study of several runs."""
    if settings:
        raise ConfigError(f"--set {settings[0]}: {kept.directory} is a {kept.kind}; --set is for single runs")
    if kept.plan is None:
        raise StorageError(f"{kept.directory}: {kept.way_on()}")
    go_on(kept, rounds=rounds, columns=columns, as_json=as_json)


def _of_faults(settings: list[str]) -> list[str]:
    """Refuse settings that would make a run that goes on another one."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key not in FaultOptions.model_fields:
            known = ", ".join(FaultOptions.model_fields)
            raise ConfigError(
                f"--set {setting}: a run that goes on keeps its {key}; what may change: {known}"
            )
    return settings


def _train(experiment: Experiment, directory: Path, *, resuming: bool, as_json: bool) -> None:
    name = f"{spell_method(experiment.method)}, seed {experiment.seed}"
    command = f"fedkeel resume {shlex.quote(str(directory))}{f' --rounds {experiment.rounds}' * resuming}"
    before = len(read_rows(directory)) if resuming else 0
    try:
        with RunProgress([name], experiment.rounds, stderr=as_json) as progress:
            progress.begin(0, before)
            result = experiment.train(directory, resume=resuming, callbacks=progress.row)
        summary = summarise(experiment, result, directory)
        if as_json:
            print(json.dumps(summary, ensure_ascii=False, indent=2))
        else:
            _print(name, summary)
    except ConfigError as problem:
        raise _without_python(problem) from None
    except StorageError:
        raise
    except KeyboardInterrupt:  # amid the beginning or the end: between them `train` says more
        if not (directory / "manifest.json").exists():
            raise
        raise Stopped(f"\nstopped\nresume with: {command}") from None
    except Exception as problem:
        told = _with_way_on(problem, command)
        if told is problem:
            raise
        raise told from problem


def _with_way_on(problem: Exception, command: str) -> Exception:
    """Say of what ended a run how to go on with it; what is no error of fedkeel's is told in a line too."""
    if getattr(problem, "result", None) is None:  # it ended before its first round
        return problem
    if isinstance(problem, FedkeelError):
        told = str(problem)
    else:
        notes = (note for note in getattr(problem, "__notes__", ()) if note.startswith("fedkeel: "))
        told = f"{type(problem).__name__}: {problem} ({'; '.join(notes)}; --debug shows where)"
        problem = FedkeelError(told)
    if isinstance(problem, ClientFailed):
        command += " --set on_client_error=skip"
    if isinstance(problem, Diverged):
        command += " --set on_divergence=rollback"
    before = "\n" if isinstance(problem, Stopped) else ""
    problem.args = (f"{before}{told}\nresume with: {command}",)
    return problem


def _without_python(problem: ConfigError) -> ConfigError:
    """Say an error of `fedkeel.train` in the command line's words."""
    return ConfigError(str(problem).replace("resume=True", "fedkeel resume"))


def summarise(experiment: Experiment, result: Result, directory: Path) -> dict[str, Any]:
    """Return what a run came to, for people and programs."""
    rows = result.history
    last = rows[-1]
    cost = cost_to(rows, experiment.target)
    return {
        "directory": str(directory),
        "method": repr(experiment.make_method()),
        "rounds": len(rows),
        "loss": last["loss"],
        "accuracy": last["accuracy"],
        "accuracies": {key: value for key, value in last.items() if key.startswith("accuracy/")},
        "best": best_round(rows, None if result.best is None else result.best.describe()),
        "target": experiment.target,
        "rounds_to_target": None if cost is None else cost.rounds,
        "bytes_to_target": None if cost is None else cost.bytes,
        "gradients_to_target": None if cost is None else cost.gradients,
        "seconds_to_target": None if cost is None else cost.seconds,
        "bytes_down": sum(row["bytes_down"] for row in rows),
        "bytes_up": sum(row["bytes_up"] for row in rows),
        "seconds": sum(row["seconds"] for row in rows),
        "events": shown_events(rows),
        "last_row": last,
    }


def _print(name: str, found: dict[str, Any]) -> None:
    sent = shown_bytes(found["bytes_down"] + found["bytes_up"])
    parts = [f"accuracy {_percent(found['accuracy'])}"] if found["loss"] is not None else []
    parts += [f"{key} {_percent(value)}" for key, value in found["accuracies"].items()]
    if found["best"] is not None:
        parts.append(shown_best(found["best"]))
    name_of_loss = "train_loss" if found["loss"] is None else "loss"
    loss = f"{name_of_loss.replace('_', ' ')} {found['last_row'][name_of_loss]:.4f}"
    parts += [loss, f"{sent} sent", shown_time(found["seconds"])]
    lines = [f"{name}: {found['rounds']} rounds", "  " + ", ".join(parts)]
    if found["target"] is not None:
        reached = found["rounds_to_target"]
        shown = f"{_percent(found['target'])}"
        what = (
            f"reached after round {reached}"
            if reached is not None
            else f"not reached in {found['rounds']} rounds"
        )
        lines.append(f"  target {shown} {what}")
    lines += [f"  {name}: {told}" for name, told in found["events"].items()]
    quoted = shlex.quote(found["directory"])
    lines += [f"  kept in {found['directory']}", f"  look at it: fedkeel show {quoted}"]
    console().print("\n".join(lines), markup=False, soft_wrap=True)


def _percent(share: float | None) -> str:
    return "—" if share is None else f"{100 * share:.1f} %"
