"""The recorded lines, and what they give: each is called in the process, in the order of lines.toml.

What is left out: how far a line is while it works (the shape of progress is no outcome), and stderr, but
where a line is refused; `stderr = true` records what a line says to be there already. The machine is one of
two cores without data sets.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from csv import reader
from pathlib import Path
from typing import Any
from unittest import mock

from pages import document_in
from typer.testing import CliRunner

from fedkeel.cli import app
from recorded.placeholders import plain, plain_table, plain_text

HERE = Path(__file__).parent
OUTPUTS = HERE / "outputs"
TABLE: dict[str, Any] = tomllib.loads((HERE / "lines.toml").read_text())
LINES: list[dict[str, Any]] = TABLE["lines"]
OLD: dict[str, str] = TABLE["old"]
_PROGRESS = re.compile(r".+: round \d+/\d+, (?!.*kept from before).*")
_THERE = re.compile(r"there already|kept from before")
# what a run, or a finished part of a study, a search or a recipe, has written
_PART = re.compile(
    r"(metrics|timings)\.jsonl(\.gz)?|.*\.(safetensors|tensors)|(unchanged|pilot|.*recipe|.*-\d+)\.json"
)

Outcome = str | dict[str, Any] | list[Any]


class Session:
    """An empty directory in which lines are called; later ones find what earlier ones made."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[str, Any] = {"texts": texts}
        directory.mkdir(parents=True)
        shutil.copy(HERE / "tiny.toml", directory)
        for archive in (HERE / "directories").glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(directory, filter="data")

    def play(self, entries: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Outcome]]]:
        """Yield each entry with what it gives: a content by the name of its file in `outputs`."""
        for entry in entries:
            yield entry, self.outcomes(entry)

    def outcomes(self, entry: dict[str, Any]) -> dict[str, Outcome]:
        """Call a line; return what it gives by the names of its files."""
        with contextlib.chdir(self.directory), _same_machine(self.directory / "cache"):
            line, name, before = spelling(entry), entry["id"], _parts(entry)
            if "page" in entry:
                Path(entry["page"]).unlink(missing_ok=True)
            code, out, err = self.call(line) if line.startswith("fedkeel ") else self.run(line)
            said = err.splitlines(keepends=True) if code or entry.get("stderr") else []
            heard = "".join(one for one in said if code or _THERE.search(one))
            found = {name: self._told(code, out, heard, csv=entry.get("csv", False))}
            if before:
                now = _parts(entry)
                written = sorted(part for part in {**before, **now} if before.get(part) != now.get(part))
                found[f"{name}.written"] = "\n".join(
                    [f"{len(before)} parts, of which written:", *written, ""]
                )
            if "page" in entry:
                document = json.loads(document_in(Path(entry["page"])).to_json())
                found[f"{name}.page"] = plain(document, self.directory)
        return {f"{name}.{'txt' if isinstance(part, str) else 'json'}": part for name, part in found.items()}

    def call(self, line: str) -> tuple[int, str, str]:
        """Call a command; return its exit code, stdout and stderr."""
        words = shlex.split(line)
        with mock.patch.object(sys, "argv", words):
            result = CliRunner().invoke(app, words[1:])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    def run(self, source: str) -> tuple[int, str, str]:
        """Run Python; what it prints is its outcome. All such lines share their names."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(source, "<recorded>", "exec"), self.names)
        return 0, out.getvalue(), ""

    def _told(self, code: int, out: str, err: str, *, csv: bool) -> Outcome:
        here = self.directory
        told: Any
        try:
            told = plain_table(list(reader(out.splitlines())), here) if csv else plain(json.loads(out), here)
        except ValueError:
            parts = {f"exit code {code}": out, "stderr": err}
            return "\n".join(
                f"--- {name}\n{plain_text(_without_progress(text), here)}"
                for name, text in parts.items()
                if text or name != "stderr"
            )
        said = {"stderr": plain_text(_without_progress(err), here)} if err else {}
        return {"exit code": code, "stdout": told, **said}


@contextlib.contextmanager
def _same_machine(cache: Path) -> Iterator[None]:
    """Let the machine be one of two cores, that has no data sets and that nobody has set up."""
    with mock.patch.dict(os.environ), mock.patch("os.cpu_count", return_value=2):
        for name in [name for name in os.environ if name.startswith("FEDKEEL_")]:
            del os.environ[name]
        os.environ.update(XDG_CACHE_HOME=str(cache), COLUMNS="200")
        yield


def spelling(entry: dict[str, Any]) -> str:
    """Return an entry's line as it is written today; `again` is the line that made an old directory."""
    line: str = entry.get("now") or entry.get("line") or OLD[entry["again"]]
    return line


def _parts(entry: dict[str, Any]) -> dict[str, bytes | int]:
    """Return the files of an old directory that training writes, and what tells if it was trained anew.

    Of a run that is its content: a resumed one may be written again as it was, a new one has other timings.
    Its table of clients, and with it the manifest, is made again at every end. A search keeps no runs, and
    its journal notes every look at it.
    """
    kind = entry.get("again", entry.get("keeps"))
    files = (path for path in (Path("old") / kind).rglob("*") if _PART.fullmatch(path.name)) if kind else ()
    return {
        str(path): path.read_bytes() if (path.parent / "timings.jsonl").exists() else path.stat().st_mtime_ns
        for path in files
    }


def _without_progress(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not _PROGRESS.fullmatch(line)) + "\n"


def texts(html: str) -> str:
    """Return the texts of HTML without its pictures, a line of a table on a line."""
    html = re.sub(r"<(style|svg)\b.*?</\1>|<img[^>]*>", "", html, flags=re.DOTALL)
    html = re.sub(r"</t[hd]>\s*(?=<t[hd])", " | ", html)
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]*>", "\n", re.sub(r"</?t[hd][^>]*>", "", html))).strip()


def file_text(outcome: Outcome) -> str:
    """Return an outcome as its file holds it; JSON in lines that people can read."""
    return outcome if isinstance(outcome, str) else f"{_laid_out(outcome)}\n"


def file_content(name: str) -> Outcome:
    """Return what is recorded in a file."""
    text = (OUTPUTS / name).read_text()
    return text if name.endswith(".txt") else json.loads(text)


def _laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in which what fits on a line stands on one; numbers have seven digits."""
    if isinstance(value, float):
        value = float(f"{value:.7g}")
    whole = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list):
        return whole
    further = f"{indent} "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_laid_out(part, further)}"
            for key, part in value.items()
        ]
    else:
        parts = [_laid_out(part, further) for part in value]
    first, last = ("{", "}") if isinstance(value, dict) else ("[", "]")
    line = f"{first}{', '.join(parts)}{last}"
    if "\n" not in line and len(line) + len(indent) <= 120:
        return line
    separator = f",\n{further}"
    return f"{first}\n{further}{separator.join(parts)}\n{indent}{last}"
