"""`train`: one call from a task, a federation and a method to a trained model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Never, TypeVar

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
from fedkeel.running.best import BestKeeper
from fedkeel.running.callbacks import CallbackLike, CallbackList
from fedkeel.running.ending import result_of, with_clients
from fedkeel.running.from_0_1 import refuse_old
from fedkeel.running.manifest import evaluated_as_before, manifest_of, plain_settings
from fedkeel.running.recorder import Recorder, Unrecorded
from fedkeel.running.result import Result
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.running.selection import columns_of, warning_of
from fedkeel.running.session import EngineMaker, Session, open_session
from fedkeel.running.shown import shown_run
from fedkeel.settings.arguments import Aggregation, Bernoulli, Failures
from fedkeel.settings.options import Evaluation, Execution
from fedkeel.settings.run_settings import RunSettings

T = TypeVar("T")


def train(
    task: Task,
    federation: Federation,
    method: Algorithm | Stages,
    *,
    rounds: int,
    cohort: int | float | Bernoulli,
    work: Work,
    seed: int = 0,
    aggregation: Aggregation | None = None,
    attack: Attack | None = None,
    evaluation: Evaluation | None = None,
    failures: Failures | None = None,
    execution: Execution | None = None,
    run_dir: str | Path | None = None,
    resume: bool = False,
    probes: Sequence[Probe] = (),
    callbacks: CallbackLike | Sequence[CallbackLike] = (),
    progress: bool | None = None,
    **old: Never,
) -> Result:
    """Train a task over a federation with a method.

    Args:
        task: model, loss and metrics. The given module is never changed.
        federation: the clients' data, and a test set to evaluate on, if any.
        method: a method, a plug-in on one, or `stages(...)`.
        rounds: total number of communication rounds; with `resume`, a larger number continues a finished run.
        cohort: clients per round: a count (int), a fraction (float), or `Bernoulli(10)`, where each client
            takes part with the same probability and a round has ten on average.
        work: local training of a client.
        seed: all randomness of the run comes from the seed; no global state is read or changed.
        aggregation: how uploads are combined: `Aggregation(weighting="samples", reducer=TrimmedMean(0.2))`
            weights clients by their number of samples and tolerates some malicious clients. By default the
            mean over clients with equal weights.
        attack: what a share of malicious clients does, as `SignFlip(share=0.2)`; for simulation.
        evaluation: when and on what the model is evaluated: `Evaluation(every=10, on="clients")`. By default
            after every round on the test set, or on nothing if there is none. The last round is always
            evaluated. On all clients' data, evaluation may take longer than training.
        failures: what happens when clients fail or the model diverges. `Failures("skip", min_clients=0.5)`
            skips a client that fails (an exception, NaN or infinite values, a wrong shape, a deadline) and
            notes it in the row as `skipped`; with fewer clients the run ends with `TooFewClients`.
            `Failures(on_divergence="rollback")` repeats a round that diverges with a smaller local learning
            rate. `Failures("skip", faults=Faults(drop=0.1))` simulates failures. By default any failure stops
            the run.
        execution: how the run is executed: `Execution("stacked")`, `Execution("processes", workers=4)`,
            `Execution(device="cuda")`, `Execution(checkpoint_every=10)`. By default the engine is chosen for
            this run and this machine, and a checkpoint is written every 20 seconds.
        run_dir: where to keep the run; by default nothing is written.
        resume: continue the run in `run_dir`, or start it if there is none.
        probes: further diagnostics, as in `[fk.probes.Divergence(every=5)]`.
        callbacks: a function that is called with each round's row and may return True to end the run, a
            `Callback`, as `EarlyStop(patience=5)`, or a list of these.
        progress: show progress. By default only on a terminal (on stderr) and in a notebook.
        old: nothing: an argument of version 0.1 is refused with a message that says what it is now.
    """
    refuse_old(old)
    drawn = cohort.described() if isinstance(cohort, Bernoulli) else {"cohort": cohort}
    evaluated = _value("evaluation", evaluation, Evaluation)
    settings = RunSettings(
        task=task,
        federation=federation,
        method=method,
        rounds=rounds,
        work=work,
        seed=seed,
        attack=attack,
        eval_every=evaluated.every,
        evaluate_on=evaluated.on,
        probes=probes,  # type: ignore[arg-type]  # made a tuple there
        **drawn,
        **dict(_value("aggregation", aggregation, Aggregation)),
        **dict(_value("failures", failures, Failures)),
    )
    how = _value("execution", execution, Execution)
    listeners = CallbackList(callbacks)
    with shown_run(settings, progress) as display:
        listeners.given += display
        return run(settings, how, run_dir, resume=resume, callbacks=listeners)


def _value(name: str, given: T | None, kind: type[T]) -> T:
    """Return the value that is given for an argument, or the one by default."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise ConfigError(f"{name} = {given!r}: give a value, as in {name}=fk.{kind.__name__}(…)")
    return given


def run(
    settings: RunSettings,
    execution: Execution,
    run_dir: str | Path | None = None,
    *,
    resume: bool = False,
    callbacks: CallbackList | CallbackLike | Sequence[CallbackLike] | None = None,
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
    told = callbacks if isinstance(callbacks, CallbackList) else CallbackList(callbacks)
    before = _begun(run_dir, resume)
    if before is not None:
        execution, settings = execution.as_before(before), evaluated_as_before(settings, before)
    with (
        stoppable(),
        told.told_of_errors(),
        closing(open_session(settings, execution, make_engine)) as session,
    ):
        best = _best_keeper(session, told)
        with _recorder(session, execution, best, run_dir) as recorder:
            recorder.restore_or_begin(experiment, about)
            told.given[:0] = [best, recorder]
            if told.ask_for_settings:
                manifest = recorder.manifest or manifest_of(session.context)
                told.settings(plain_settings(manifest, experiment, run_dir))
            stopped_by = _play(session, recorder, told)
            result = with_clients(_result(session, recorder, stopped_by), session)
            try:
                told.run_end(result)
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
    every, keep = execution.checkpoint_every, execution.keep_client_states
    with closing(RunDirectory(Path(run_dir))) as directory:
        yield Recorder(session, directory, every, keep_client_states=keep, best=best)


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
