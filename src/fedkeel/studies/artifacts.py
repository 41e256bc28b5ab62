"""Finished parts of a study, in a directory that belongs to its settings alone.

A part is made once: a study that is killed at any instant and started again with the same settings reads the
parts that are there and goes on with the next. A torn or damaged part is made again.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkeel.common.errors import StorageError
from fedkeel.common.files import make_directory, read_whole, storage_errors, write_durably
from fedkeel.common.jsonfiles import json_text, sealed
from fedkeel.common.tomlfile import flat
from fedkeel.experiments import COMPARISON_FILE, OUTCOME_FILE
from fedkeel.experiments import STUDY_FILE as FILE
from fedkeel.studies.description import read_description

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 2  # of study.json: with the plan of the study
_MARKS = {"comparison": COMPARISON_FILE, "recipe": OUTCOME_FILE}
_DIGEST_LENGTH = 65  # of the line that a part begins with, its end included


def open_directory(
    directory: Path,
    kind: str,
    settings: Mapping[str, Any],
    *,
    more: Mapping[str, Any] | None = None,
    begin: bool = True,
    may_change: Collection[str] = (),
) -> None:
    """Begin or continue a study in a directory; refuse one that holds other settings, or other files.

    What may grow from one call to the next (pairs, values, trials) is no part of `settings`; `more` has all
    of it: the plan, the line that makes it and where. Settings of `may_change` may be others. A directory in
    which nothing is finished yet may be used with any settings. Without `begin` it is only checked.
    """
    now = json.loads(json.dumps({"study": kind, "settings": dict(settings)}))
    with storage_errors(directory):
        before = _description(directory, kind)
    if before is not None:
        _check_same(directory, before, now, may_change)
    whole = now if more is None else {"format": FORMAT, **now, **more}
    if not begin or (before is not None and more is None):
        return
    with storage_errors(directory):
        make_directory(directory)
        write_durably(directory / FILE, json_text(sealed(whole), indent=2).encode())


def _check_same(
    directory: Path, before: Mapping[str, Any], now: Mapping[str, Any], may_change: Collection[str]
) -> None:
    """Refuse a directory of another study."""
    kind = now["study"]
    if before["study"] != kind:
        raise StorageError(
            f"{directory} holds {_with_article(before['study'])}, not {_with_article(kind)}: "
            "choose another directory"
        )
    stored, asked = flat(before["settings"]), flat(now["settings"])
    for key in {**stored, **asked}:
        if key not in may_change and stored.get(key) != asked.get(key):
            raise StorageError(
                f"{directory} belongs to another {kind}: its {key} is {_shown(stored.get(key))}, not "
                f"{_shown(asked.get(key))}; choose another directory or the same settings"
            )


def read_or_make(
    path: Path | None, make: Callable[[], Any], on_read: Callable[[], None] | None = None
) -> Any:
    """Return a part that is finished already (after calling `on_read`); else make it, and write it to `path`.

    A part consists of what JSON has, whether written or not: numbers to the bit, lists for tuples.
    """
    found = None if path is None else read_part(path)
    if found is not None:
        if on_read is not None:
            on_read()
        return found
    return write_part(path, make())


def write_part(path: Path | None, part: Any) -> Any:
    """Write a part, where a path is given; return it as it is read."""
    text = json.dumps(part)
    if path is not None:
        _write(path, text.encode())
    return json.loads(text)


def read_part(path: Path) -> Any:
    """Return a finished part, None where it is missing or damaged."""
    content = _read(path)
    return None if content is None else json.loads(content)


def write_tensors(path: Path | None, tensors: dict[str, Tensor]) -> None:
    """Write a part that consists of tensors, where a path is given."""
    from safetensors.torch import save  # noqa: PLC0415  heavy

    if path is not None:
        _write(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path | None) -> dict[str, Tensor] | None:
    """Return a part that consists of tensors, None where it is missing or damaged."""
    from safetensors.torch import load  # noqa: PLC0415  heavy

    content = None if path is None else _read(path)
    return None if content is None else load(content)


def _write(path: Path, content: bytes) -> None:
    with storage_errors(path):
        make_directory(path.parent)
        write_durably(path, _digest(path, content) + content)


def _read(path: Path) -> bytes | None:
    """Return what a file holds behind its digest, None where there is no file or the digest does not fit."""
    with storage_errors(path):
        if not path.exists():
            return None
        whole = read_whole(path)
    digest, content = whole[:_DIGEST_LENGTH], whole[_DIGEST_LENGTH:]
    if digest not in (_digest(path, content), _older_digest(content)):
        warnings.warn(f"{path} is damaged, or of another study, and is made again", stacklevel=4)
        return None
    return content


def _description(directory: Path, kind: str) -> dict[str, Any] | None:
    """Return which study a directory holds, with its settings; None where nothing is finished in it."""
    names = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
    begun = [name for name in names if name != FILE and not name.startswith(".")]
    if not begun:
        return None
    if FILE not in names:
        if _MARKS.get(kind) in names:  # of version 0.1, where the runs check their settings
            return None
        raise StorageError(f"{directory}: holds {begun[0]} and no study: choose an empty or new directory")
    return read_description(directory)


def _digest(path: Path, content: bytes) -> bytes:
    """Return the digest of a part: of its content, its name, and the study that it belongs to."""
    study = path.parent / FILE
    owner = read_whole(study) if study.exists() else path.parent.name.encode()
    return _older_digest(b"\0".join([hashlib.sha256(owner).digest(), path.name.encode(), content]))


def _older_digest(content: bytes) -> bytes:
    """Return the digest of a part from before it named its study."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n"


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)
