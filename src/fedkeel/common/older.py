"""Names of version 0.1: what is read from files is mapped here, and nowhere else.

Functions that end in `now` take what was read and return it with today's names. Those that end in `before` go
the other way, for hashes over names: a run and a recipe's directory are known by what 0.1 would have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkeel.common.errors import ConfigError

# as version 0.1 wrote them, and as they are now
IDENTITY = {"algorithm": "method"}
SETTINGS = {"keep_memories": "keep_client_states"}
VALUES: dict[str, dict[Any, Any]] = {"on_client_error": {"leave_out": "skip"}}
COLUMNS = {"left_out": "skipped", "memory_lost": "state_lost"}
FUNCTIONS = {"enlist": "init_client"}
CHECKPOINT = {"left_out": "not_kept"}
FILES = {"memories.safetensors": "client_states.safetensors"}


def identity_now(identity: Any) -> Any:
    """Return what decides a run's numbers; anything but a table is returned as it is."""
    return _renamed(identity, IDENTITY) if isinstance(identity, Mapping) else identity


def identity_before(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity with the names of version 0.1."""
    return _renamed(identity, _turned(IDENTITY))


def manifest_now(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest; its copy of the experiment stays the text that was written."""
    return {key: identity_now(part) if key == "identity" else part for key, part in manifest.items()}


def settings_now(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of an experiment, or its settings by key."""
    return _valued(_renamed(table, SETTINGS), VALUES)


def settings_before(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of an experiment with the names of version 0.1."""
    return _renamed(_valued(table, {key: _turned(words) for key, words in VALUES.items()}), _turned(SETTINGS))


def row_now(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a history."""
    return _renamed(row, COLUMNS) if COLUMNS.keys() & row.keys() else row


def index_now(index: Mapping[str, Any]) -> dict[str, Any]:
    """Return what checkpoint.json says."""
    return _renamed(index, CHECKPOINT)


def file_now(path: Path) -> Path:
    """Return where a file is: under its name, or under that of version 0.1."""
    older = (path.with_name(old) for old, now in FILES.items() if now == path.name)
    return next((file for file in older if file.exists()), path)


def refuse_old_functions(cls: type) -> None:
    """Refuse a method or a probe with a function that has another name now: nothing would call it."""
    for name, now in FUNCTIONS.items():
        if name in vars(cls):
            raise ConfigError(f"{cls.__name__}.{name} is {now} since version 0.2: rename it")


def _renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in table.items()}


def _valued(table: Mapping[str, Any], words: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    return {
        key: words[key].get(value, value) if key in words and isinstance(value, str) else value
        for key, value in table.items()
    }


def _turned(names: Mapping[Any, Any]) -> dict[Any, Any]:
    return {now: before for before, now in names.items()}
