"""Weights & Biases: a directory of its own format, on this machine unless it is asked to send."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.common.tomlfile import flat
from fedkeel.trackers.base import FINISHED, NoteInRunDirectory, Tracker


class WandB(Tracker):
    """Writes runs for Weights & Biases below `directory`, in its folder wandb.

    `wandb sync` uploads them later. With `online=True` they are sent while the run goes on.
    """

    def __init__(
        self,
        project: str = "fedkeel",
        *,
        directory: str | Path = ".",
        online: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.project, self.directory, self.online = project, Path(directory), online
        self._run: Any = None
        self._note = NoteInRunDirectory(None, "wandb")
        self._noted: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"WandB({self.project!r}{', online=True' * self.online})"

    def open(self, done: int) -> int:
        """Begin, or go on under the same identifier; the rounds that were written before are not again."""
        wandb = _wandb()
        self._note = NoteInRunDirectory(self.run_dir, "wandb")
        before = self._note.read()
        same = before.get("project") == self.project
        self._run = wandb.init(
            project=self.project,
            dir=str(self.directory.resolve()),  # W&B's own process may have another working directory
            name=self.run_name,
            id=before["id"] if same else None,
            resume="allow" if same and self.online else None,
            mode="online" if self.online else "offline",
            config={key: value for key, value in flat(self.settings).items() if value is not None},
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_machine_info=True
            ),
        )
        logged = before["logged"] if same else 0
        self._noted = {"project": self.project, "id": self._run.id, "logged": logged}
        self._note.write(self._noted)
        return min(done, logged)

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Add a round to the history."""
        if round < self._noted["logged"]:
            return
        self._run.log(dict(numbers), step=round)
        self._noted["logged"] = round + 1
        self._note.write(self._noted)

    def close(self, state: str, summary: Mapping[str, Any]) -> None:
        """Write the summary, and how it ended."""
        self._run.summary.update({**summary, "state": state})
        self._run.finish(exit_code=0 if state == FINISHED else 1)


def _wandb() -> Any:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before it is imported
    try:
        import wandb  # noqa: PLC0415  an extra
    except ImportError:
        raise ConfigError('WandB needs its package: pip install "fedkeel[wandb]"') from None
    return wandb
