"""Shakespeare in LEAF's form (Caldas et al. 2018): 80 characters of a role's text, then the next one."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.common.jsonfiles import parse_object
from fedkeel.data.sources.dataset import Dataset
from fedkeel.data.sources.fetch import DataDirectories
from fedkeel.data.sources.readers import reading
from fedkeel.tensors.streams import Stream

Bytes: TypeAlias = NDArray[np.uint8]

LENGTH = 80
VOCABULARY = "\n !\"&'(),-.0123456789:;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
_NOTICES = ("THE_COMEDY_OF_ERRORS_COMMERCIALLY", "THE_COMEDY_OF_ERRORS_WITH_PERMISSION")
_FILES = (
    "shakespeare.json",
    "shakespeare/all_data",
    "shakespeare/data/all_data",
    "shakespeare/all_data.json",
)


class _Role(NamedTuple):
    name: str
    x: Bytes
    y: Bytes


def shakespeare(
    directories: DataDirectories,
    *,
    max_samples: int | None = 2000,
    roles: int | None = None,
    train_share: float = 0.8,
    notices: bool = True,
    seed: int = 0,
) -> Dataset:
    """Shakespeare by speaking role: 80 characters (bytes, numbers in LEAF's vocabulary), next character.

    As LEAF does, the first `train_share` of a role's samples are for training, the next 79, which
    overlap both parts, are dropped, and the rest is the test set; roles too short for one are left out.
    As FedDyn does, a window of at most `max_samples` training and a fifth as many test samples of
    each role is kept, from a start drawn from `seed`. `roles` takes that many of the roles that fill both
    windows: 100 gives the 200,000 + 40,000 samples of FedSAGD.

    Two of LEAF's roles are none: LEAF reads lines of the edition's licence notice in The Comedy of Errors as
    names ("COMMERCIALLY.", "WITH PERMISSION."), and what follows as their speech. The notice is repeated, so
    that some of its test windows are training windows too. `notices=False` leaves these two out.
    """
    if not 0 < train_share < 1:
        raise DataError(f"shakespeare: train_share is {train_share}; use a number between 0 and 1")
    if max_samples is not None and max_samples < 5:
        raise DataError(f"shakespeare: max_samples is {max_samples}; use 5 or more, or None for all")
    path = directories.find(*_FILES)
    if path is None:
        raise DataError(
            directories.missing(*_FILES)
            + ". There is no official download; LEAF makes it: in data/shakespeare of "
            "https://github.com/TalwalkarLab/leaf run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample -tf 0.8"
        )
    with reading(path):
        everyone = [role for role in _read(path) if notices or role.name not in _NOTICES]
    halves = [(role, *_halves(len(role.y), train_share)) for role in everyone]
    kept = [(role, train, test) for role, train, test in halves if len(train) and len(test)]
    if roles is not None:
        kept = _choose(kept, roles, max_samples, seed)
    return _collect(kept, max_samples, seed)


def encode(text: str) -> Bytes:
    """Return each character's number in LEAF's vocabulary of 80."""
    codes = _CODES[np.minimum(np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32), 255)]
    if (codes == 255).any():
        raise ValueError(f"the character {text[int(np.argmax(codes == 255))]!r} is not in LEAF's vocabulary")
    return codes


def _table() -> Bytes:
    table = np.full(256, 255, dtype=np.uint8)
    table[[ord(character) for character in VOCABULARY]] = np.arange(len(VOCABULARY))
    return table


_CODES = _table()


def _read(path: Path) -> list[_Role]:
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ValueError("no .json file in it")
    return [role for file in files for role in _read_json(parse_object(file.read_bytes()))]


def _read_json(content: dict[str, Any]) -> list[_Role]:
    """Read LEAF's own form (users, user_data with x and y), or texts by user."""
    if "text" in content:
        return [_windows(user, content["text"][user]) for user in content["users"]]
    pairs = ((user, content["user_data"][user]) for user in content["users"])
    return [
        _Role(user, encode("".join(data["x"])).reshape(-1, LENGTH), encode("".join(data["y"])))
        for user, data in pairs
    ]


def _windows(user: str, text: str) -> _Role:
    codes = encode(text)
    if len(codes) <= LENGTH:
        return _Role(user, np.empty((0, LENGTH), dtype=np.uint8), codes[:0])
    windows = np.lib.stride_tricks.sliding_window_view(codes, LENGTH + 1)  # a view: no copy of the text
    return _Role(user, windows[:, :LENGTH], windows[:, LENGTH])


def _halves(samples: int, train_share: float) -> tuple[range, range]:
    cut = 1 if samples == 2 else max(1, int(train_share * samples))
    return range(min(cut, samples)), range(min(cut + LENGTH - 1, samples), samples)


def _choose(
    kept: list[tuple[_Role, range, range]], roles: int, max_samples: int | None, seed: int
) -> list[tuple[_Role, range, range]]:
    need = max_samples or 1
    long = [entry for entry in kept if len(entry[1]) >= need and len(entry[2]) >= max(1, need // 5)]
    if not 1 <= roles <= len(long):
        raise DataError(f"shakespeare: {roles} roles asked for, but {len(long)} are long enough for "
                        f"max_samples={max_samples}; use between 1 and {len(long)}")  # fmt: skip
    rng = Stream(seed).branch("roles").numpy()
    return [long[i] for i in np.sort(rng.choice(len(long), roles, replace=False))]


def _collect(kept: list[tuple[_Role, range, range]], max_samples: int | None, seed: int) -> Dataset:
    if not kept:
        raise DataError("shakespeare: no role is long enough for a training and a test sample")
    stream = Stream(seed)
    windows = []
    for number, (_, train, test) in enumerate(kept):
        rng = stream.branch("window", number).numpy()
        windows.append(
            (_window(train, max_samples, rng), _window(test, max_samples and max_samples // 5, rng))
        )
    spans = list(zip(kept, windows, strict=True))
    x_train, x_test = (_join([role.x[window[i]] for (role, *_), window in spans]) for i in (0, 1))
    y_train, y_test = (_join([role.y[window[i]] for (role, *_), window in spans]) for i in (0, 1))
    return Dataset(
        "shakespeare",
        x_train,
        y_train.long(),
        test=(x_test, y_test.long()),
        classes=len(VOCABULARY),
        groups=np.repeat(np.arange(len(kept)), [train.stop - train.start for train, _ in windows]),
        group_names=tuple(role.name for role, *_ in kept),
        class_names=tuple(VOCABULARY),
    )


def _window(part: range, most: int | None, rng: np.random.Generator) -> slice:
    size = min(len(part), most or len(part))
    start = part.start + int(rng.integers(len(part) - size + 1))
    return slice(start, start + size)


def _join(parts: list[Bytes]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
