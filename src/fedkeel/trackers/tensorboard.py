"""TensorBoard: event files below a directory, read by `tensorboard --logdir DIR`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkeel.common.errors import ConfigError
from fedkeel.common.files import storage_errors
from fedkeel.common.tomlfile import dump, flat
from fedkeel.trackers.base import Tracker


class TensorBoard(Tracker):
    """Writes runs as TensorBoard's event files, each in a directory of its own below `directory`.

    `name` is that of the run, "." for `directory` itself; by default it is that of the run's directory.
    """

    def __init__(self, directory: str | Path = "tensorboard", *, name: str | None = None) -> None:
        super().__init__(name)
        self.directory = Path(directory)
        self._writer: Any = None

    def __repr__(self) -> str:
        return f"TensorBoard({str(self.directory)!r})"

    def open(self, done: int) -> int:
        """Open the event file; readers drop what was written of rounds that are played again."""
        board = _torch_tensorboard()
        where = self.directory / "/".join(_file_name(part) for part in self.run_name.split("/"))
        with storage_errors(where):
            known = any(where.glob("events.out.tfevents.*"))
            self._writer = board.SummaryWriter(str(where), purge_step=done if known else None)
        if not known:
            self._writer.add_text("settings", "```toml\n" + dump(self.settings) + "```")
        return done if known else 0

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Add a point to every curve."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)

    def close(self, state: str, summary: Mapping[str, Any]) -> None:
        """Write settings and summary to the page of hyperparameters, and close the file."""
        self._writer.add_text("end", f"{state}: " + ", ".join(f"{k} {v}" for k, v in summary.items()))
        settings = {key: _plain(value) for key, value in flat(self.settings).items() if value is not None}
        measured = {f"summary/{k}": float(v) for k, v in summary.items() if isinstance(v, int | float)}
        if measured:
            for part in _torch_tensorboard().summary.hparams(settings, measured):
                self._writer.file_writer.add_summary(part)
            for name, value in measured.items():
                self._writer.add_scalar(name, value)
        self._writer.close()


def _torch_tensorboard() -> Any:
    try:
        import tensorboard  # noqa: F401, PLC0415  an extra, which torch's writer needs
        from torch.utils import tensorboard as board  # noqa: PLC0415
    except ImportError:
        raise ConfigError('TensorBoard needs its package: pip install "fedkeel[tensorboard]"') from None
    return board


def _file_name(part: str) -> str:
    return re.sub(r"[^\w.,=+-]+", "-", part) or "run"


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else str(value)
