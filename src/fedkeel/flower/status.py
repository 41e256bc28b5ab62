"""What the server says of a deployment while it runs: a small file beside the run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedkeel.common.files import storage_errors, write_durably
from fedkeel.common.jsonfiles import json_text

State = Literal["waiting", "running", "finished", "failed", "stopped"]


class ServerStatus(NamedTuple):
    """How far the server is; `message` says why it failed, with the exit code of that kind of error."""

    state: State
    clients: int = 0
    online: int = 0
    round: int = 0
    rounds: int = 0
    message: str = ""
    exit_code: int = 0


def status_file(run_dir: Path) -> Path:
    """Return where the status of a run in a directory lies."""
    return run_dir.parent / f"{run_dir.name}.status.json"


def write_status(run_dir: Path, status: ServerStatus) -> None:
    """Write it whole or not at all."""
    path = status_file(run_dir)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json_text(status._asdict()).encode())


def read_status(run_dir: Path) -> ServerStatus | None:
    """Return what the server said last, None where it has not said anything."""
    try:
        found: dict[str, Any] = json.loads(status_file(run_dir).read_text())
        return ServerStatus(**found)
    except (OSError, ValueError, TypeError):
        return None
