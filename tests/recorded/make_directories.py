"""Make directories/*.tar.gz anew: a directory of each kind, by the present version.

Those that are here were made by `python tests/recorded/make_directories.py` with fedkeel 0.1.0, the version
in directories/version.txt; later versions shall read them. Each holds what the line of that name in the table
[old] of lines.toml leaves, without the page and the lock. `unfinished` was stopped after two rounds.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
sys.path.insert(0, str(Path(__file__).parents[1]))

from fedkeel.progress import RunProgress

import fedkeel as fk
from recorded.lines import HERE, OLD, Session

OUT = HERE / "directories"
_LEFT_OUT = {"page.html", ".lock"}
_WHEN = 1_700_000_000  # of every file: only those that are written again have another time


@contextlib.contextmanager
def stopped_after(rounds: int) -> Iterator[None]:
    """Press Ctrl-C when a run has so many rounds."""

    def row(self: RunProgress, row: dict[str, int]) -> None:
        if row["round"] + 1 == rounds:
            raise KeyboardInterrupt

    with mock.patch.object(RunProgress, "row", row):
        yield


def pack(directory: Path, file: Path) -> None:
    """Write a directory into an archive that is the same for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            if path.name in _LEFT_OUT or (directory.name == "recipe-runs" and "checkpoints" in path.parts):
                continue  # checkpoints of its model, which the recipe names, are large
            entry = tarfile.TarInfo(str(path.relative_to(directory.parents[1])))
            entry.size, entry.mtime = path.stat().st_size, _WHEN
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    file.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for old in OUT.glob("*.tar.gz"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        session = Session(Path(scratch) / "here")
        for kind, line in OLD.items():
            with contextlib.chdir(session.directory), stopped_after(2 if kind == "unfinished" else 0):
                code, _, err = session.call(line)
            assert code == (130 if kind == "unfinished" else 0), (kind, code, err)
            file = OUT / f"{kind}.tar.gz"
            pack(session.directory / "old" / kind, file)
            print(f"{file.name}: {file.stat().st_size / 1000:.1f} kB")
    (OUT / "version.txt").write_text(f"fedkeel {fk.__version__}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
