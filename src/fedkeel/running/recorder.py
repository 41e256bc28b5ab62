"""Writes a session to its run directory and reads it back."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedkeel.errors import ConfigError
from fedkeel.interrupts import uninterrupted
from fedkeel.records import ClientMemory, leaves, rebuild
from fedkeel.running.checkpoints import Checkpoints, Loaded
from fedkeel.running.requests import RunRequests
from fedkeel.running.round import RunState
from fedkeel.running.row_files import RunKey
from fedkeel.running.run_directory import RunDirectory
from fedkeel.running.session import Session

_CHECKPOINT_SECONDS = 20.0


class Recorder:
    """Writes a session to its run directory and reads it back."""

    def __init__(self, directory: RunDirectory, every: int | None, *, keep_memories: bool = True) -> None:
        self.directory, self.every, self.keep_memories = directory, every, keep_memories
        self.checkpoints = Checkpoints(directory.path)
        self.requests = RunRequests(directory.path)
        self._last = time.monotonic()
        self._written = 0  # rows on disk

    def belong_to(self, manifest: Mapping[str, Any]) -> None:
        """Tie what is read and written to the run with this manifest."""
        self.directory.key = self.checkpoints.run = RunKey.of(manifest)
        self.directory.timings_key = RunKey.of_timings(manifest)

    def restore(self, session: Session) -> None:
        """Set a fresh session to the newest whole checkpoint, and cut the rows after it."""
        loaded = self.checkpoints.read(report=lambda text: warnings.warn(text, stacklevel=4))
        done = 0 if loaded is None else loaded.values["round"]
        rounds = session.context.settings.rounds
        if done > rounds:
            raise ConfigError(f"rounds = {rounds}: {self.directory.path} holds {done} rounds: give more")
        if loaded is not None and loaded.left_out and done < rounds:
            raise ConfigError(
                f"rounds = {rounds}: the run in {self.directory.path} ended after round {done}, and its "
                f"clients' memories were not kept: train all {rounds} rounds in another directory; a run "
                "that is to go on later keeps them with keep_memories=True (--keep-memories)"
            )
        session.history[:] = self.directory.keep_rows(
            done, None if loaded is None else loaded.values.get("rows")
        )
        self._written = done
        if loaded is not None:
            session.state = unpack(session, loaded)
            if session.best is not None and "best" in loaded.values:
                device = session.context.oracle.device
                kept = {name: tensor.to(device) for name, tensor in _below("best.", loaded.tensors).items()}
                session.best.restore(loaded.values["best"], kept)

    def row(self, session: Session) -> None:
        """Keep the last round's row, and a checkpoint where one is due."""
        self._append(session)
        done = session.state.round
        due = done % self.every == 0 if self.every else time.monotonic() - self._last > _CHECKPOINT_SECONDS
        if due or done == session.context.settings.rounds:
            self.checkpoint(session)

    def checkpoint(self, session: Session) -> None:
        """Write a checkpoint of the last finished round."""
        state = session.state
        tensors = {
            "x0": state.x0,
            "buffers": state.buffers,
            **{f"server.{name}": tensor for name, tensor in leaves(state.server)},
            **{f"probes.{name}": tensor for name, tensor in leaves(state.probes)},
        }
        values: dict[str, Any] = {"round": state.round, "stage": state.stage}
        if session.best is not None:
            values["best"] = session.best.values()
            tensors |= {f"best.{name}": tensor for name, tensor in session.best.tensors().items()}
        memories = self.keep_memories or not session.finished
        with uninterrupted():
            self._append(session)
            self.directory.sync_rows()
            values["rows"] = self.directory.rows_sha256
            self.checkpoints.write(state.round, values, tensors, session.store, memories=memories)
        self._last = time.monotonic()

    def follow_requests(self, session: Session) -> None:
        """Do what others ask of the run; KeyboardInterrupt where that is to stop."""
        self.requests.follow(lambda: self.checkpoint(session))

    def _append(self, session: Session) -> None:
        """Write the rows that are not on disk yet: one, or none; a checkpoint counts on all of them."""
        for row in session.history[self._written :]:
            self.directory.append(row, session.seconds)
            self._written += 1

    def finish(self, session: Session) -> None:
        """Remove what nothing reads once the last round is played and the models are written.

        A run that may go on later (it keeps its memories, or was stopped early) keeps both checkpoints.
        """
        with uninterrupted():
            self.checkpoints.finish(goes_on=self.keep_memories or not session.finished)

    def rescue(self, session: Session) -> str:
        """Write a checkpoint of what is good, and say where it is."""
        if session.state.round == 0:
            return f"; no round was finished in {self.directory.path}"
        self.checkpoint(session)
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
    template = ClientMemory(method.enlist(x0), panel.first_notes(probes))
    for client, memory in loaded.memories:
        placed = {name: tensor.to(device) for name, tensor in memory.items()}
        session.store.commit({client: panel.restored(template, placed)})
    session.store.mark_saved()
    return RunState(values["round"], values["stage"], x0, server, tensors["buffers"], probes)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): tensor for n, tensor in tensors.items() if n.startswith(prefix)}
