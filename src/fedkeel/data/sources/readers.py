"""Readers of files: arrays out of npz, IDX and pictures, with errors that name the file and the next step."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkeel.common.errors import DataError

Bytes: TypeAlias = NDArray[np.uint8]


class Arrays(NamedTuple):
    """A data set as arrays: pictures or other samples, and their labels."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes a library raise into one clear error."""
    try:
        yield
    except DataError:
        raise
    except (
        OSError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError,
        struct.error, zlib.error, zipfile.BadZipFile, tarfile.TarError,
    ) as problem:  # fmt: skip
        raise DataError(
            f"cannot read {path}: {problem or type(problem).__name__}; it is damaged, incomplete or of "
            "another kind: delete it and load again, or put a good copy there"
        ) from None


def read_npz(path: Path) -> Arrays:
    """Read x_train, y_train, x_test and y_test."""
    with reading(path), path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        absent = [name for name in Arrays._fields if name not in file.files]
        if absent:
            raise ValueError(f"no {', '.join(absent)} in it, only {', '.join(file.files)}")
        return Arrays(*(file[name] for name in Arrays._fields))


def read_idx(file: IO[bytes] | gzip.GzipFile) -> Bytes:
    """Read the MNIST family's format: two zero bytes, type 8 (bytes), number of axes, sizes, data."""
    zeros, kind, axes = struct.unpack(">HBB", file.read(4))
    if zeros != 0 or kind != 8:
        raise ValueError("it does not begin like an IDX file of bytes")
    shape = struct.unpack(f">{axes}I", file.read(4 * axes))
    data = np.frombuffer(file.read(), dtype=np.uint8)
    if data.size != np.prod(shape):
        raise ValueError(f"{data.size:,} bytes of data where {' × '.join(map(str, shape))} are announced")
    return data.reshape(shape)


def read_idx_path(path: Path) -> Bytes:
    """Read an IDX file, compressed or not."""
    with reading(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return read_idx(file)


def read_idx_zipped(path: Path, ending: str) -> Bytes:
    """Read the compressed IDX file in a zip archive whose name ends like this."""
    with reading(path), zipfile.ZipFile(path) as archive:
        member = next((name for name in archive.namelist() if name.endswith(ending)), None)
        if member is None:
            raise ValueError(f"no {ending} in it")
        with archive.open(member) as packed, gzip.open(packed) as file:
            return read_idx(file)


def read_picture(file: Path | bytes) -> Bytes:
    """Decode a picture to (3, height, width)."""
    with _pillow("reading").open(io.BytesIO(file) if isinstance(file, bytes) else file) as picture:
        return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def encode_png(pixels: Bytes) -> bytes:
    """Encode RGB pixels (height, width, 3) as a PNG file."""
    written = io.BytesIO()
    _pillow("writing").fromarray(pixels).save(written, "PNG")
    return written.getvalue()


def _pillow(doing: str) -> ModuleType:
    """Return Pillow's Image module; the one place that needs it."""
    try:
        from PIL import Image  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise DataError(f'{doing} pictures needs the package Pillow: pip install "fedkeel[data]"') from None
    return Image
