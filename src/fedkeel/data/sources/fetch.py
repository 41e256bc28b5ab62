"""Files of the official data sets: found in the user's folders, else downloaded, checked and kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fedkeel.common.errors import DataError
from fedkeel.common.files import cache_directory, make_directory
from fedkeel.common.frozen import frozen

_ATTEMPTS = 3  # connections opened for one file; each goes on where the last one broke off
_TIMEOUT = 60.0  # seconds without a byte before a connection counts as broken
_CHUNK = 1 << 20
_LOCAL = ("127.0.0.1", "localhost")  # a server on this machine may do without https


@frozen
class Archive:
    """A file, its official address (https), and the SHA-256 that is published or commonly known for it."""

    file: str
    url: str
    digest: str

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme != "https" and address.hostname not in _LOCAL:
            raise DataError(f"{self.url}: downloads are made over https only")
        if not self.digest.startswith("sha256:"):
            raise DataError(f"{self.url}: its checksum is {self.digest!r}: give a SHA-256")


class DataDirectories(NamedTuple):
    """The folders where files are searched for, the cache last, and whether to download what is missing."""

    folders: tuple[Path, ...]
    download: bool = True

    @classmethod
    def standard(cls, root: Path | None = None, *, download: bool = True) -> DataDirectories:
        """Look in `root` or else FEDKEEL_DATA, then in the user's cache."""
        named = root if root is not None else os.environ.get("FEDKEEL_DATA")
        if not named:
            return cls((cache(),), download)
        folder = Path(named).expanduser()
        if not folder.is_dir():
            origin = "root" if root is not None else "the variable FEDKEEL_DATA"
            raise DataError(
                f"{origin} is {str(folder)!r}, which is not a folder; create it or correct the path"
            )
        return cls((folder, cache()), download)

    def find(self, *names: str) -> Path | None:
        """Return the first file or folder with one of these names, folder by folder."""
        paths = (folder / name for folder in self.folders for name in names)
        return next((path for path in paths if path.exists()), None)

    def get(self, archive: Archive, *names: str) -> Path:
        """Return the first of `names` that exists, else the downloaded archive."""
        if (path := self.find(*names, archive.file)) is not None:
            if path in [folder / archive.file for folder in self.folders]:
                check_once(path, archive)
            return path
        if not self.download:
            raise DataError(
                self.missing(*names, archive.file) + f"; or allow the download from {archive.url}"
            )
        return fetch(archive, self.folders[-1])

    def missing(self, *names: str) -> str:
        """Return a message that says what was searched for and where."""
        searched = " or ".join(str(folder) for folder in self.folders)
        wanted = ", ".join(dict.fromkeys(names))
        return f"found none of {wanted} in {searched}; put one there or set FEDKEEL_DATA"


def check_once(path: Path, archive: Archive) -> None:
    """Check an official file that is there already; it is remembered until the file changes."""
    facts = path.stat()
    known = f"{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}\0{archive.digest}"
    mark = cache() / "checked" / hashlib.sha256(known.encode()).hexdigest()
    if mark.exists():
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if f"sha256:{found}" != archive.digest:
        raise DataError(
            f"{path} is not the official file: its SHA-256 is {found}, not {archive.digest[7:]}: delete it "
            f"to download it again, or get a good copy of {archive.url}"
        )
    with contextlib.suppress(OSError):  # a cache that cannot be written: then it is checked every time
        make_directory(mark.parent)
        mark.touch()


def cache() -> Path:
    """Return the folder of downloads: FEDKEEL_CACHE, else fedkeel in the user's cache folder."""
    if own := os.environ.get("FEDKEEL_CACHE"):
        return Path(own).expanduser()
    return cache_directory()


def fetch(archive: Archive, folder: Path) -> Path:
    """Download into `folder` and return the path; a file there is complete and checked, or absent."""
    pooch = _pooch()
    target = folder / archive.file
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        pooch.retrieve(
            archive.url,
            archive.digest,
            fname=target.name,
            path=target.parent,
            downloader=lambda url, output, _: _download(url, part, Path(str(output))),
        )
    except DataError:
        raise
    except ValueError as problem:  # pooch's word for a wrong checksum; it has removed the file
        raise DataError(
            f"{archive.url} does not have the checksum {archive.digest}: {problem}. "
            f"Try again later, or get the file elsewhere and put it in {target.parent}"
        ) from None
    except OSError as problem:
        raise DataError(f"cannot store {archive.url} in {target.parent}: {problem}; free space there or set "
                        "FEDKEEL_CACHE to another folder") from None  # fmt: skip
    return target


def _pooch() -> Any:
    try:
        import pooch  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise DataError('downloading needs the package pooch: pip install "fedkeel[data]"') from None
    pooch.get_logger().setLevel("WARNING")  # the progress bar says what it would say
    return pooch


def _download(url: str, part: Path, output: Path) -> None:
    """Fill `part`, from where an earlier try left it, and move it to `output` when complete."""
    with _progress(part.stem) as progress:
        for _ in range(_ATTEMPTS):
            try:
                if _transfer(url, part, progress):
                    os.replace(part, output)
                    return
                problem = "the connection closed early"
            except HTTPError as error:
                raise DataError(
                    f"cannot download {url}: the server says {error.code} {error.reason}; "
                    f"get the file elsewhere and put it in {part.parent}"
                ) from None
            except (URLError, TimeoutError, ConnectionError) as error:
                problem = str(error)
    have = part.stat().st_size if part.exists() else 0
    raise DataError(
        f"the download of {url} broke off after {have:,} bytes ({problem}); load again to go on from there, "
        f"or put the file into {part.parent} or the folder that FEDKEEL_DATA names"
    )


def _transfer(url: str, part: Path, progress: Progress) -> bool:
    """Append what is missing from `part`; True if it is then complete."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"User-Agent": "fedkeel", **({"Range": f"bytes={have}-"} if have else {})})
    try:
        response = urlopen(request, timeout=_TIMEOUT)
        if urlsplit(response.url).scheme != urlsplit(url).scheme:
            raise DataError(f"{url} sends on to {response.url}: downloads are made over https only")
    except HTTPError as error:
        if error.code != 416:
            raise
        part.unlink()  # longer than the file there: from another version, start anew
        return False
    with response:
        resumed = response.status == 206
        length = response.headers.get("Content-Length")
        total = None if length is None else int(length) + (have if resumed else 0)
        progress.update(progress.task_ids[0], total=total, completed=have if resumed else 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                progress.advance(progress.task_ids[0], len(chunk))
    return total is None or part.stat().st_size == total


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        progress.add_task(f"downloading {name}")
        yield progress
