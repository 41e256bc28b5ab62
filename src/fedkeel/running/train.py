"""`train`: one call from a task, a federation and a method to a trained model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save
from torch import nn

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Federation
from fedkeel.errors import ConfigError, Diverged, Stopped, StorageError
from fedkeel.files import storage_errors, write_durably
from fedkeel.methods.stages import Stages
from fedkeel.options import Execution
from fedkeel.probes.base import Probe
from fedkeel.records import Record
from fedkeel.reducers import Mean, Reducer
from fedkeel.running.interrupts import uninterrupted
from fedkeel.running.manifest import describe, manifest_of, same_experiment, same_start
from fedkeel.running.panel import MethodMemories
from fedkeel.running.recorder import Recorder
from fedkeel.running.round import Row
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.running.session import Session, open_session
from fedkeel.running.store import Store
from fedkeel.settings import RunSettings
from fedkeel.task import Task
from fedkeel.tomlfile import dump
from fedkeel.work import Work


@dataclass(frozen=True)
class Result:
    """What a run gives: a row per round, the trained model, the server's state, the clients' memories."""

    history: list[Row]
    model: nn.Module
    server: Record
    memories: Mapping[int, Record]
    manifest: Mapping[str, Any]
    run_dir: Path | None = None

    def to_pandas(self) -> Any:
        """Return the history as a pandas DataFrame."""
        try:
            import pandas  # noqa: PLC0415  an extra
        except ImportError:
            raise ConfigError('Result.to_pandas() needs pandas: pip install "fedkeel[pandas]"') from None
        return pandas.DataFrame(self.history)


def train(
    task: Task,
    federation: Federation,
    algorithm: Algorithm | Stages,
    *,
    rounds: int,
    cohort: int | float,
    work: Work,
    seed: int = 0,
    engine: str = "auto",
    run_dir: str | Path | None = None,
    resume: bool = False,
    sampling: Literal["fixed", "bernoulli"] = "fixed",
    weighting: Literal["uniform", "samples"] = "uniform",
    reducer: Reducer | None = None,
    eval_every: int = 1,
    checkpoint_every: int | None = None,
    threads: int | None = None,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    probes: Sequence[Probe] = (),
    callback: Callable[[Row], None] | None = None,
    experiment: Mapping[str, Any] | None = None,
) -> Result:
    """Train a task over a federation with a method.

    Args:
        task: model, loss and metrics. The given module is never changed.
        federation: the clients' data, and a test set to evaluate on (else all clients' data serves).
        algorithm: a method, a plug-in on one, or `stages(...)`.
        rounds: communication rounds in all; with `resume`, a larger number goes on from a finished run.
        cohort: clients per round: a count (int) or a fraction (float).
        work: a client's local work.
        seed: all randomness of the run comes from here; no global state is read or left changed.
        engine: "serial", "stacked", "stacked-uncompiled", "processes", or "auto" to take what suits the run.
        run_dir: where to keep the run; without it nothing is written.
        resume: go on from what `run_dir` holds, or start where it holds nothing.
        sampling: "fixed" draws exactly the cohort, "bernoulli" each client with that probability.
        weighting: "uniform", or by number of "samples".
        reducer: what stands between uploads and server; `Mean()` by default.
        eval_every: evaluate the model after every so many rounds, and after the last.
        checkpoint_every: rounds between checkpoints; by default one every 20 seconds.
        threads: threads of a local step; by default from the size of a step.
        workers: processes of the engine "processes"; by default one per core.
        device: where the model and its vectors live.
        probes: diagnostics beside the ones that are always on, as in `[fk.probes.Divergence(every=5)]`.
        callback: called with each round's row.
        experiment: what `experiment.toml` shall hold, where the run comes from a file.
    """
    settings = RunSettings(
        task=task,
        federation=federation,
        algorithm=algorithm,
        rounds=rounds,
        cohort=cohort,
        work=work,
        seed=seed,
        sampling=sampling,
        weighting=weighting,
        reducer=Mean() if reducer is None else reducer,
        eval_every=eval_every,
        probes=tuple(probes),
    )
    execution = Execution(
        engine=engine,
        threads=threads,
        workers=workers,
        device=str(device),
        checkpoint_every=checkpoint_every,
    )
    return run(settings, execution, run_dir, resume=resume, callback=callback, experiment=experiment)


def run(
    settings: RunSettings,
    execution: Execution,
    run_dir: str | Path | None = None,
    *,
    resume: bool = False,
    callback: Callable[[Row], None] | None = None,
    experiment: Mapping[str, Any] | None = None,
) -> Result:
    """Train what the settings say, as `train` does; `experiment` is what experiment.toml shall hold."""
    if resume and run_dir is None:
        raise ConfigError("resume=True needs run_dir: the directory of the run to go on with")
    before = _begun(run_dir, resume)
    if before is not None:
        execution = execution.as_before(before)
    with closing(open_session(settings, execution)) as session:
        if run_dir is None:
            _play(session, None, callback)
            return _result(session, {}, None)
        with closing(RunDirectory(Path(run_dir))) as directory:
            recorder = Recorder(directory, execution.checkpoint_every)
            manifest = take_up(session, recorder, experiment)
            _play(session, recorder, callback)
            return _result(session, manifest, directory)


def take_up(
    session: Session, recorder: Recorder, experiment: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Set a fresh session to what its run directory holds, or begin the run there; return its manifest."""
    directory, rounds = recorder.directory, session.context.settings.rounds
    manifest = manifest_of(session.context)
    session.store = Store(directory=directory.path)
    if directory.holds_run:
        before = same_experiment(directory, manifest)
        recorder.restore(session)
        if session.state.round == 0:
            same_start(before, manifest)
        manifest = before
    if rounds > manifest["rounds"] or not directory.holds_run:
        manifest["rounds"] = rounds
        directory.describe(dump(experiment or describe(manifest)), manifest)
    return manifest


def _begun(run_dir: str | Path | None, resume: bool) -> dict[str, Any] | None:
    """Return the manifest of the run that is to be resumed, None where none was begun."""
    if run_dir is None or not (Path(run_dir) / "manifest.json").exists():
        return None
    if not resume:
        raise StorageError(
            f"{run_dir} holds a run already: resume it (resume=True) or choose another directory"
        )
    return read_manifest(Path(run_dir))


def _play(session: Session, recorder: Recorder | None, callback: Callable[[Row], None] | None) -> None:
    try:
        for row in session.rounds():
            if recorder is not None:
                with uninterrupted():
                    recorder.row(session, row)
            if callback is not None:
                callback(row)
    except KeyboardInterrupt:
        where, rounds = _rescued(session, recorder), session.context.settings.rounds
        raise Stopped(f"stopped after {session.state.round} of {rounds} rounds{where}") from None
    except Diverged as problem:
        where = _rescued(session, recorder)
        raise Diverged(f"{problem}{where}", round=problem.round, client=problem.client) from None


def _rescued(session: Session, recorder: Recorder | None) -> str:
    return " (nothing is kept: no run_dir was given)" if recorder is None else recorder.rescue(session)


def _result(session: Session, manifest: Mapping[str, Any], directory: RunDirectory | None) -> Result:
    context, state = session.context, session.state
    model = context.oracle.trained(context.model(state), state.buffers)
    if directory is not None:
        with storage_errors(directory.path):
            tensors = {name: t.detach().cpu().clone() for name, t in model.state_dict().items()}
            write_durably(directory.path / "model.safetensors", save(tensors))
    path = None if directory is None else directory.path
    memories = MethodMemories(session.store)
    return Result(session.history, model, state.server, memories, manifest, path)
