"""`train`: one call from a task, a federation and a method to a trained model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Federation
from fedkeel.engines import ENGINES, choose, settle
from fedkeel.engines.contract import Prospect, Setting
from fedkeel.engines.processes.mainmodule import refuse_unguarded
from fedkeel.errors import ConfigError, Diverged, Stopped, StorageError, did_you_mean
from fedkeel.experiments.tomlfile import dump
from fedkeel.files import storage_errors, write_durably
from fedkeel.methods.relaxed import Relaxed
from fedkeel.methods.stages import Stages, as_stages
from fedkeel.oracle import Oracle
from fedkeel.probes.base import Probe
from fedkeel.records import Record
from fedkeel.reducers import Mean, Reducer
from fedkeel.running.interrupts import uninterrupted
from fedkeel.running.manifest import describe, manifest_of, same_experiment
from fedkeel.running.panel import assemble
from fedkeel.running.population import Population, Sampling, Weighting, population
from fedkeel.running.preflight import check
from fedkeel.running.recorder import Recorder
from fedkeel.running.run_directory import RunDirectory, read_manifest
from fedkeel.running.session import Loop, Row, Session, begin
from fedkeel.running.store import Store
from fedkeel.task import Task
from fedkeel.work import Work


@dataclass(frozen=True)
class Result:
    """What a run gives: a row a round, the trained model, the server's last state, the clients' memories."""

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
    sampling: Sampling = "fixed",
    weighting: Weighting = "uniform",
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
        federation: the clients' data, and a test set to judge by (else all clients' data serves).
        algorithm: a method, a plug-in on one, or `stages(...)`.
        rounds: communication rounds in all; with `resume`, a larger number goes on from a finished run.
        cohort: clients a round: a count (int) or a fraction (float).
        work: a client's local work.
        seed: all randomness of the run comes from here; no global state is read or left changed.
        engine: "serial", "stacked", "stacked-uncompiled", "processes", or "auto" to take what suits the run.
        run_dir: where to keep the run; without it nothing is written.
        resume: go on from what `run_dir` holds, or start where it holds nothing.
        sampling: "fixed" draws exactly the cohort, "bernoulli" each client with that probability.
        weighting: "uniform", or by number of "samples".
        reducer: what stands between uploads and server; `Mean()` by default.
        eval_every: judge the model after every so many rounds, and after the last.
        checkpoint_every: rounds between checkpoints; by default one every 20 seconds.
        threads: threads of a local step; by default from the size of a step.
        workers: processes of the engine "processes"; by default one a core.
        device: where the model and its vectors live.
        probes: diagnostics beside the ones that are always on, as in `[fk.probes.Divergence(every=5)]`.
        callback: called with each round's row.
        experiment: what `experiment.toml` shall hold, where the run comes from a file.
    """
    refuse_unguarded()
    _check_counts(checkpoint_every=checkpoint_every)
    if resume and run_dir is None:
        raise ConfigError("resume=True needs run_dir: the directory of the run to go on with")
    before = _begun(run_dir, resume)
    if before is not None:
        threads = threads or before["threads"]
        engine = before["engine"] if engine == "auto" else engine
    session = open_session(
        task,
        federation,
        algorithm,
        rounds=rounds,
        cohort=cohort,
        work=work,
        seed=seed,
        engine=engine,
        sampling=sampling,
        weighting=weighting,
        reducer=reducer,
        eval_every=eval_every,
        threads=threads,
        workers=workers,
        device=device,
        probes=probes,
    )
    with closing(session.loop.engine):
        if run_dir is None:
            _play(session, None, callback)
            return _result(session, {}, None)
        with closing(RunDirectory(Path(run_dir))) as directory:
            keeper = Recorder(directory, checkpoint_every)
            manifest = take_up(
                session, keeper, manifest_of(session.loop, as_stages(algorithm), cohort), experiment
            )
            _play(session, keeper, callback)
            return _result(session, manifest, directory)


def take_up(
    session: Session, keeper: Recorder, manifest: dict[str, Any], experiment: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Set a fresh session to what its run directory holds, or begin the run there; return its manifest."""
    directory, rounds = keeper.directory, session.loop.rounds
    session.store = Store(scratch=directory.path)
    if directory.holds_run:
        manifest = same_experiment(directory, manifest)
        keeper.restore(session)
    if rounds > manifest["rounds"] or not directory.holds_run:
        manifest["rounds"] = rounds
        directory.describe(dump(experiment or describe(manifest)), manifest)
    return manifest


def open_session(
    task: Task,
    federation: Federation,
    algorithm: Algorithm | Stages,
    *,
    rounds: int,
    cohort: int | float,
    work: Work,
    seed: int = 0,
    engine: str = "auto",
    sampling: Sampling = "fixed",
    weighting: Weighting = "uniform",
    reducer: Reducer | None = None,
    eval_every: int = 1,
    threads: int | None = None,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    probes: Sequence[Probe] = (),
) -> Session:
    """Check everything and return a session before its first round; `session.rounds()` plays it.

    For those who want to see the state between rounds; `train` is the easy way. Close `loop.engine` after.
    """
    refuse_unguarded()
    _check_counts(rounds=rounds, eval_every=eval_every, threads=threads, workers=workers)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed = {seed!r}: give a whole number from 0 on")
    if engine not in ENGINES:
        raise ConfigError(f"engine = {engine!r}: {did_you_mean(str(engine), ENGINES)}")
    if not isinstance(algorithm, Algorithm | Stages):
        raise ConfigError(f"algorithm = {algorithm!r} is not a method: give one, as in FedAvg()")
    given = as_stages(algorithm)
    drawn = population(federation, cohort, sampling, weighting, seed)
    setting = Setting(task, federation, work, seed, torch.device(device))
    oracle = Oracle(task, setting.device)
    check(setting, oracle)
    _warn_of_growth(given, drawn)
    panel = assemble(probes, given, setting, oracle, uniform=drawn.weights is None)
    prospect = Prospect(rounds, drawn.size)
    choice = settle(engine, setting, oracle, threads, prospect)
    worker = choose(choice, setting, oracle, prospect, workers)
    stages = given.fixed(rounds)
    loop = Loop(setting, stages, drawn, reducer or Mean(), rounds, eval_every, worker, oracle, panel, choice)
    return Session(loop, begin(loop), Store(), [])


def _begun(run_dir: str | Path | None, resume: bool) -> dict[str, Any] | None:
    """Return the manifest of the run that is to be resumed, None where none was begun."""
    if run_dir is None or not (Path(run_dir) / "manifest.json").exists():
        return None
    if not resume:
        raise StorageError(
            f"{run_dir} holds a run already: resume it (resume=True) or choose another directory"
        )
    return read_manifest(Path(run_dir))


def _play(session: Session, keeper: Recorder | None, callback: Callable[[Row], None] | None) -> None:
    try:
        for row in session.rounds():
            if keeper is not None:
                with uninterrupted():
                    keeper.row(session, row)
            if callback is not None:
                callback(row)
    except KeyboardInterrupt:
        where = _rescued(session, keeper)
        raise Stopped(f"stopped after {session.state.round} of {session.loop.rounds} rounds{where}") from None
    except Diverged as problem:
        where = _rescued(session, keeper)
        raise Diverged(f"{problem}{where}", round=problem.round, client=problem.client) from None


def _rescued(session: Session, keeper: Recorder | None) -> str:
    return " (nothing is kept: no run_dir was given)" if keeper is None else keeper.rescue(session)


def _result(session: Session, manifest: Mapping[str, Any], directory: RunDirectory | None) -> Result:
    loop, state = session.loop, session.state
    vector = next(iter(loop.stages.parts[state.stage].method.models(state.server).values()))
    model = loop.oracle.trained(vector, state.buffers)
    if directory is not None:
        with storage_errors(directory.path):
            tensors = {name: t.detach().cpu().clone() for name, t in model.state_dict().items()}
            write_durably(directory.path / "model.safetensors", save(tensors))
    place = None if directory is None else directory.path
    memories = loop.panel.memories(session.store)
    return Result(session.history, model, state.server, memories, manifest, place)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is None and name not in {"rounds", "eval_every"}:
            continue
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"{name} = {count!r}: give a whole number from 1 on")


def _warn_of_growth(stages: Stages, drawn: Population) -> None:
    """Warn where relaxed initialisation may let the model grow without bound."""
    for method, _ in stages.parts:
        if isinstance(method, Relaxed) and method.origin == "model" and isinstance(method.beta, float):
            rounds_apart = drawn.clients / drawn.size
            if method.beta * rounds_apart > 1:
                warnings.warn(
                    f"relaxed: beta·C/N = {method.beta:g}·{rounds_apart:g} > 1: the model may grow without "
                    "bound (watch the column `norm`); a smaller beta or beta=Adaptive() holds",
                    stacklevel=3,
                )
