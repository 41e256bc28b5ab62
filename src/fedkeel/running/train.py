"""`train`: one call from a task, a federation and a method to a trained model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch

from fedkeel.attacks import Attack
from fedkeel.common.errors import ConfigError, Diverged, FedkeelError, Stopped, StorageError
from fedkeel.common.files import storage_errors
from fedkeel.common.interrupts import stoppable, uninterrupted
from fedkeel.core.algorithm import Algorithm
from fedkeel.core.task import Task
from fedkeel.core.work import Work
from fedkeel.data.federation import Federation
from fedkeel.methods.stages import Stages
from fedkeel.probes.base import Probe
from fedkeel.reducers import Mean, Reducer
from fedkeel.running.best import BestKeeper
from fedkeel.running.callbacks import CallbackLike, CallbackList
from fedkeel.running.ending import result_of, with_clients
from fedkeel.running.manifest import evaluated_as_before, manifest_of, plain_settings
from fedkeel.running.recorder import Recorder, Unrecorded
from fedkeel.running.result import Result
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.running.selection import columns_of, warning_of
from fedkeel.running.session import EngineMaker, Session, open_session
from fedkeel.running.shown import shown_run
from fedkeel.settings.faults import Faults
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings


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
    attack: Attack | None = None,
    eval_every: int = 1,
    evaluate_on: Literal["test", "clients", "nothing"] | None = None,
    checkpoint_every: int | None = None,
    keep_memories: bool = False,
    threads: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    device: str | torch.device = "cpu",
    probes: Sequence[Probe] = (),
    on_client_error: Literal["stop", "leave_out"] = "stop",
    min_clients: int | float = 1,
    client_seconds: float | None = None,
    max_upload_norm: float | None = None,
    faults: Faults | None = None,
    on_divergence: Literal["stop", "rollback"] = "stop",
    rollback_factor: float = 0.1,
    rollback_tries: int = 5,
    callback: CallbackLike | Sequence[CallbackLike] | None = None,
    callbacks: CallbackLike | Sequence[CallbackLike] | None = None,
    progress: bool | None = None,
    experiment: Mapping[str, Any] | None = None,
) -> Result:
    """Train a task over a federation with a method.

    Args:
        task: model, loss and metrics. The given module is never changed.
        federation: the clients' data, and a test set to evaluate on, if any.
        algorithm: a method, a plug-in on one, or `stages(...)`.
        rounds: communication rounds in all; with `resume`, a larger number goes on from a finished run.
        cohort: clients per round: a count (int) or a fraction (float).
        work: a client's local work.
        seed: all randomness of the run comes from here; no global state is read or left changed.
        engine: "serial", "stacked", "stacked-uncompiled", "processes", "ray" (needs `fedkeel[ray]`), or
            "auto" to take what suits the run on this machine.
        run_dir: where to keep the run; without it nothing is written.
        resume: go on from what `run_dir` holds, or start where it holds nothing.
        sampling: "fixed" draws exactly the cohort, "bernoulli" each client with that probability.
        weighting: "uniform", or by number of "samples".
        reducer: what stands between uploads and server; `Mean()` by default. `TrimmedMean(0.2)`, `Krum(0.2)`
            and others hold out against hostile clients.
        attack: what a share of the clients does to the others, as `SignFlip(share=0.2)`; for simulation.
        eval_every: evaluate the model after every so many rounds, and after the last.
        evaluate_on: "test" evaluates it on the test set, "clients" on all clients' data, which may take
            longer than the training; by default on the test set, and on "nothing" where there is none.
        checkpoint_every: rounds between checkpoints; by default one every 20 seconds.
        keep_memories: keep what the clients remember when the run is finished. Without it a method whose
            clients remember something cannot go on with more rounds later; the other methods can.
        threads: threads of a local step; by default from the size of a step.
        workers: processes of the engine "processes", and of "ray" on this machine; by default one per core.
        address: cluster of the engine "ray", as "head:6379" or "auto"; by default Ray is started here,
            and ended with the run.
        num_cpus: CPUs that a client takes of a node of the engine "ray"; by default as many as `threads`.
        num_gpus: GPUs that a client takes of a node; 0.25 lets four clients share one. By default none.
        device: where the model and its vectors live.
        probes: diagnostics beside the ones that are always on, as in `[fk.probes.Divergence(every=5)]`.
        on_client_error: what a client does to the run that fails (an exception, NaN or infinite values, a
            wrong shape, a deadline): "stop" it, or "leave_out" that client; the row says `left_out`.
        min_clients: with "leave_out", the clients that must answer in a round: a count, or a fraction of
            those drawn. With fewer the run ends with `TooFewClients`.
        client_seconds: a client that takes longer for its round has failed.
        max_upload_norm: a client that sends more than this, by norm, has failed.
        faults: clients that fail on purpose, as in `fk.Faults(drop=0.1)`; needs "leave_out".
        on_divergence: "stop" ends a run whose model or loss turns NaN or infinite; "rollback" plays the round
            again from the state before it, with smaller local steps from then on; the row says `rolled_back`.
        rollback_factor: the factor on the local learning rate from each rollback on.
        rollback_tries: how many rollbacks a run may have.
        callback: called with each round's row; it may return True to end the run. Or a `Callback`, as
            `EarlyStop(patience=5)`; or a list of them.
        callbacks: the same, for those who write it so.
        progress: show how far it is. By default only on a terminal (on stderr) and in a notebook.
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
        attack=attack,
        eval_every=eval_every,
        evaluate_on=evaluate_on,
        probes=probes,  # type: ignore[arg-type]  # made a tuple there
        on_client_error=on_client_error,
        min_clients=min_clients,
        client_seconds=client_seconds,
        max_upload_norm=max_upload_norm,
        faults=faults,
        on_divergence=on_divergence,
        rollback_factor=rollback_factor,
        rollback_tries=rollback_tries,
    )
    execution = Execution(
        engine=engine,
        threads=threads,
        workers=workers,
        address=address,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        device=str(device),
        checkpoint_every=checkpoint_every,
        keep_memories=keep_memories,
    )
    if callback is not None and callbacks is not None:
        raise ConfigError(
            "callback and callbacks are the same: give one of them, a list where there are several"
        )
    listeners = CallbackList(callbacks if callback is None else callback)
    with shown_run(settings, progress) as display:
        listeners.given += display
        return run(settings, execution, run_dir, resume=resume, callback=listeners, experiment=experiment)


def run(
    settings: RunSettings,
    execution: Execution,
    run_dir: str | Path | None = None,
    *,
    resume: bool = False,
    callback: CallbackList | CallbackLike | Sequence[CallbackLike] | None = None,
    experiment: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    make_engine: EngineMaker | None = None,
) -> Result:
    """Train what the settings say, as `train` does; `experiment` is what experiment.toml shall hold.

    `about` is what else the manifest of a run says that begins here. `make_engine` gives an engine whose
    clients are elsewhere.
    """
    if run_dir is not None and (not isinstance(run_dir, str | os.PathLike) or "\0" in str(run_dir)):
        raise ConfigError(f"run_dir = {run_dir!r}: give the path of a directory, or None to keep nothing")
    if resume and run_dir is None:
        raise ConfigError("resume=True needs run_dir: the directory of the run to go on with")
    callbacks = callback if isinstance(callback, CallbackList) else CallbackList(callback)
    before = _begun(run_dir, resume)
    if before is not None:
        execution, settings = execution.as_before(before), evaluated_as_before(settings, before)
    with (
        stoppable(),
        callbacks.told_of_errors(),
        closing(open_session(settings, execution, make_engine)) as session,
    ):
        best = _best_keeper(session, callbacks)
        with _recorder(session, execution, best, run_dir) as recorder:
            recorder.restore_or_begin(experiment, about)
            callbacks.given[:0] = [best, recorder]
            if callbacks.ask_for_settings:
                manifest = recorder.manifest or manifest_of(session.context)
                callbacks.settings(plain_settings(manifest, experiment, run_dir))
            stopped_by = _play(session, recorder, callbacks)
            result = with_clients(_result(session, recorder, stopped_by), session)
            try:
                callbacks.run_end(result)
            except Exception as problem:
                _attach(problem, result)
                raise
            return result


@contextmanager
def _recorder(
    session: Session, execution: Execution, best: BestKeeper, run_dir: str | Path | None
) -> Iterator[Recorder | Unrecorded]:
    if run_dir is None:
        yield Unrecorded(best)
        return
    every, keep_memories = execution.checkpoint_every, execution.keep_memories
    with closing(RunDirectory(Path(run_dir))) as directory:
        yield Recorder(session, directory, every, keep_memories=keep_memories, best=best)


def _best_keeper(session: Session, callbacks: CallbackList) -> BestKeeper:
    """Check the columns that callbacks go by, and return what keeps the best model."""
    if callbacks.selections:
        columns = columns_of(session.context)
        for selection in callbacks.selections:
            selection.check(columns)
        if told := warning_of(callbacks.selections, columns):
            warnings.warn(f"the best round is {told}", stacklevel=4)
    return BestKeeper(session, callbacks.selection)


def _begun(run_dir: str | Path | None, resume: bool) -> dict[str, Any] | None:
    """Return the manifest of the run that is to be resumed, None where none was begun."""
    if run_dir is None:
        return None
    with storage_errors(Path(run_dir)):
        begun = (Path(run_dir) / "manifest.json").exists()
    if not begun:
        return None
    if not resume:
        raise StorageError(
            f"{run_dir} holds a run already: resume it (resume=True) or choose another directory"
        )
    return read_manifest(Path(run_dir))


def _play(session: Session, recorder: Recorder | Unrecorded, callbacks: CallbackList) -> str | None:
    """Play the rounds that are left; return who ended the run early, None where its last round is played.

    Whatever ends it before, it leaves a checkpoint, and what there is of the result on the exception.
    """
    try:
        rounds, stopped_by = session.rounds(), callbacks.run_begin(session.history)
        while stopped_by is None and not session.finished:
            callbacks.round_begin(session.state.round)
            stopped_by = callbacks.round_end(next(rounds))
        if session.finished:
            return None
        if session.state.round:
            recorder.checkpoint()
        return stopped_by
    except KeyboardInterrupt as interrupt:
        with uninterrupted(forget=True):
            where, total = recorder.rescue(), session.context.settings.rounds
            name = getattr(interrupt, "name", None)
            by = "" if name in (None, "SIGINT") else f" by {name}"
            short = f"stopped{by} after {session.state.round} of {total} rounds"
            recorder.interrupted("stopped", short)
            stop = Stopped(f"{short}{where}")
            stop.result = _result(session, recorder)
        raise stop from None
    except Exception as problem:
        with uninterrupted(forget=True):
            diverged = isinstance(problem, Diverged)
            message = str(problem) if diverged else f"{type(problem).__name__}: {problem}"
            _save_what_there_is(session, recorder, problem)
            recorder.interrupted("diverged" if diverged else "failed", message)
            _attach(problem, _result(session, recorder))
        raise


def _save_what_there_is(session: Session, recorder: Recorder | Unrecorded, problem: Exception) -> None:
    """Write a checkpoint of the finished rounds, and say so in an exception that ends a run."""
    if isinstance(problem, StorageError):
        return
    with suppress(StorageError):
        where = recorder.rescue()
        if isinstance(problem, FedkeelError):
            problem.args = (f"{problem}{where}",)
        else:
            total = session.context.settings.rounds
            problem.add_note(f"fedkeel: after {session.state.round} of {total} rounds{where}")


def _result(session: Session, recorder: Recorder | Unrecorded, stopped_by: str | None = None) -> Result:
    return result_of(session, recorder.best, recorder.manifest, recorder.path, stopped_by)


def _attach(problem: Exception, result: Result) -> None:
    with suppress(AttributeError):  # of an exception that takes no further attributes
        problem.result = result  # type: ignore[attr-defined]
