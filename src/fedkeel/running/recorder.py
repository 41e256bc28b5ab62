"""Writes a session to its run directory, round by round, and reads it back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from torch import Tensor

from fedkeel.common.errors import ConfigError, StorageError
from fedkeel.common.interrupts import uninterrupted
from fedkeel.common.tomlfile import dump
from fedkeel.running.best import BestKeeper
from fedkeel.running.callbacks import Callback
from fedkeel.running.checkpoints import Checkpoints, Loaded
from fedkeel.running.ending import write_end
from fedkeel.running.manifest import describe, manifest_of, same_experiment, same_start, warn_of_other_bits
from fedkeel.running.requests import RunRequests
from fedkeel.running.result import Result
from fedkeel.running.round import Row, RunState
from fedkeel.running.row_files import RunKey
from fedkeel.running.run_directory import RunDirectory
from fedkeel.running.session import Session
from fedkeel.running.store import Store
from fedkeel.tensors.records import ClientMemory, leaves, rebuild

_CHECKPOINT_SECONDS = 20.0


class Unrecorded(Callback):
    """Stands in for the recorder of a run without a run directory."""

    path: Path | None = None

    def __init__(self, best: BestKeeper) -> None:
        self.best: BestKeeper | None = best
        self.manifest: dict[str, Any] = {}

    def restore_or_begin(self, experiment: Mapping[str, Any] | None, about: Mapping[str, Any] | None) -> None:
        """Begin the run: there is nothing to restore."""

    def checkpoint(self) -> None:
        """Write nothing."""

    def rescue(self) -> str:
        """Say where the finished rounds are."""
        return " (no run_dir was given: the finished rounds are in `result` of this exception only)"

    def interrupted(self, kind: str, message: str) -> None:
        """Write nothing."""


class Recorder(Callback):
    """Writes a session to its run directory and reads it back.

    As a callback it comes after `best`, whose model is part of a checkpoint, and before those of the user,
    who may read in the directory what they are called for.
    """

    def __init__(
        self,
        session: Session,
        directory: RunDirectory,
        every: int | None = None,
        *,
        keep_client_states: bool = True,
        best: BestKeeper | None = None,
    ) -> None:
        self.session, self.directory, self.path, self.best = session, directory, directory.path, best
        self.every, self.keep_client_states = every, keep_client_states
        self.manifest: dict[str, Any] = {}
        self.checkpoints = Checkpoints(directory.path)
        self.requests = RunRequests(directory.path)
        self._last = time.monotonic()
        self._written = 0  # rows on disk

    def on_round_begin(self, round: int) -> None:
        """Do what others ask of the run; KeyboardInterrupt where that is to stop."""
        if round:
            self.requests.follow(self.checkpoint)

    def on_round_end(self, row: Row) -> None:
        """Keep the last round's row, and a checkpoint where one is due."""
        with uninterrupted():
            self._append()
            done, since = self.session.state.round, time.monotonic() - self._last
            due = done % self.every == 0 if self.every else since > _CHECKPOINT_SECONDS
            if due or self.session.finished:
                self.checkpoint()

    def on_run_end(self, result: Result) -> None:
        """Write how the run ended and let others into the directory.

        What nothing reads once the last round is played is removed then. A run that may go on later (it keeps
        its memories, or was stopped early) keeps both checkpoints.
        """
        write_end(self.directory, self.manifest, result)
        with uninterrupted():
            self.checkpoints.finish(goes_on=self.keep_client_states or not self.session.finished)
        self.directory.close()

    def restore_or_begin(
        self, experiment: Mapping[str, Any] | None = None, about: Mapping[str, Any] | None = None
    ) -> None:
        """Set a fresh session to what the run directory holds, or begin the run there."""
        session, directory, rounds = self.session, self.directory, self.session.context.settings.rounds
        manifest = {**manifest_of(session.context), **(about or {})}
        session.store = Store(directory=directory.path)
        if directory.holds_run:
            now, manifest = manifest, same_experiment(directory, manifest)
            directory.restore_experiment()
            warn_of_other_bits(manifest, now)
            self._bind_run(manifest)
            self._restore()
            if session.state.round == 0:
                same_start(manifest, now)
            directory.goes_on()
        else:
            manifest["run_id"] = uuid4().hex
            self._bind_run(manifest)
        if rounds > manifest["rounds"] or not directory.holds_run:
            manifest["rounds"] = rounds
            manifest["experiment"] = dump(experiment or describe(manifest))
            directory.describe(manifest)

    def _bind_run(self, manifest: dict[str, Any]) -> None:
        """Tie what is read and written to the run with this manifest."""
        self.manifest = manifest
        self.directory.key = self.checkpoints.run = RunKey.of(manifest)
        self.directory.timings_key = RunKey.of_timings(manifest)

    def _restore(self) -> None:
        """Set a fresh session to the newest whole checkpoint, and cut the rows after it."""
        session = self.session
        loaded = self.checkpoints.read(report=lambda text: warnings.warn(text, stacklevel=4))
        done = 0 if loaded is None else loaded.values["round"]
        rounds = session.context.settings.rounds
        if done > rounds:
            raise ConfigError(f"rounds = {rounds}: {self.directory.path} holds {done} rounds: give more")
        if loaded is not None and loaded.not_kept and done < rounds:
            raise ConfigError(
                f"rounds = {rounds}: the run in {self.directory.path} ended after round {done}, and its "
                f"client states were not kept: train all {rounds} rounds in another directory; a run "
                "that is to go on later keeps them with keep_client_states=True (--keep-client-states)"
            )
        session.history[:] = self.directory.keep_rows(
            done, None if loaded is None else loaded.values.get("rows")
        )
        self._written = done
        if loaded is not None:
            session.state = unpack(session, loaded)
            if self.best is not None and "best" in loaded.values:
                device = session.context.oracle.device
                kept = {name: tensor.to(device) for name, tensor in _below("best.", loaded.tensors).items()}
                self.best.restore(loaded.values["best"], kept)

    def checkpoint(self) -> None:
        """Write a checkpoint of the last finished round."""
        session, state = self.session, self.session.state
        tensors = {
            "x0": state.x0,
            "buffers": state.buffers,
            **{f"server.{name}": tensor for name, tensor in leaves(state.server)},
            **{f"probes.{name}": tensor for name, tensor in leaves(state.probes)},
        }
        values: dict[str, Any] = {"round": state.round, "stage": state.stage}
        if self.best is not None:
            values["best"] = self.best.values()
            tensors |= {f"best.{name}": tensor for name, tensor in self.best.tensors().items()}
        memories = self.keep_client_states or not session.finished
        with uninterrupted():
            self._append()
            self.directory.sync_rows()
            values["rows"] = self.directory.rows_sha256
            self.checkpoints.write(state.round, values, tensors, session.store, memories=memories)
        self._last = time.monotonic()

    def _append(self) -> None:
        """Write the rows that are not on disk yet: one, or none; a checkpoint counts on all of them."""
        for row in self.session.history[self._written :]:
            self.directory.append(row, self.session.seconds)
            self._written += 1

    def interrupted(self, kind: str, message: str) -> None:
        """Write into the directory what ended the run before its time, unless that is what does not work."""
        with suppress(StorageError):
            self.directory.interrupted(kind, message)

    def rescue(self) -> str:
        """Write a checkpoint of what is good, and say where it is."""
        if self.session.state.round == 0:
            return f"; no round was finished in {self.directory.path}"
        self.checkpoint()
        path = self.directory.path / "checkpoints" / str(self.checkpoints.latest)
        return f"; the last good checkpoint is {path}"


def unpack(session: Session, loaded: Loaded) -> RunState:
    """Rebuild state and memories from named tensors, in the records of the stage's method."""
    context, values = session.context, loaded.values
    device, panel = context.oracle.device, context.panel
    tensors = {name: tensor.to(device) for name, tensor in loaded.tensors.items()}
    method = context.stages.parts[values["stage"]].method
    x0 = tensors["x0"]
    server = rebuild(method.init(x0), _below("server.", tensors))
    begun = panel.begin(x0, context.oracle.layout)
    probes = rebuild(begun, {**dict(leaves(begun)), **_below("probes.", tensors)})
    template = ClientMemory(method.init_client(x0), panel.first_notes(probes))
    for client, memory in loaded.memories:
        placed = {name: tensor.to(device) for name, tensor in memory.items()}
        session.store.commit({client: panel.restored(template, placed)})
    session.store.mark_saved()
    return RunState(values["round"], values["stage"], x0, server, tensors["buffers"], probes)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): tensor for n, tensor in tensors.items() if n.startswith(prefix)}
