"""Wrong and unusual lines, a row of wrong_lines.txt each: a message, an exit code, and nothing left behind.

A row is `exit code | arguments | words of the message`, the words separated by ` … `. The messages were read
as a new user would before they were written down: the thing, the value and the fix.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from selecting import one_in
from typer.testing import CliRunner

from fedkeel.cli import app
from fedkeel.cli.app import COMMANDS, load_command
from fedkeel.common.errors import Diverged
from fedkeel.running.run_directory import RunDirectory

TABLE = Path(__file__).with_name("wrong_lines.txt")
SMALL = (
    'rounds = 2\ncohort = 2\nengine = "serial"\n[data]\nclients = 4\n'
    '[work]\nsteps = 1\nbatch_size = 8\n[model]\nname = "logistic"\n'
)
FILES = {
    "small.toml": SMALL,
    "file": "not a directory",
    "torn.toml": "rounds = \n",
    "dup.toml": "rounds = 3\nrounds = 4\n",
    "twice.toml": "[data]\nclients = 4\n[data]\nname = 'digits'\n",
    "long.toml": f"x = [{'1, ' * 20_000}1]\n",
    "deep.toml": f"x = {'[' * 5_000}{']' * 5_000}\n",
    "typo.toml": "lerning_rate = 1\n",
    "table.toml": "[wrk]\nlr = 1\n",
    "inner.toml": "[work]\nstps = 3\n",
    "data.toml": "data = 3\n",
    "work.toml": "work = 'fast'\n",
    "tables.toml": "[[work]]\nlr = 1\n",
    "options.toml": "[data.options]\nfoo = 1\n",
    "method.toml": "method = 3\n",
    "probes.toml": "probes = 'drift'\n",
    "true.toml": "rounds = true\n",
    "float.toml": "seed = 1.0\n",
    "date.toml": "rounds = 2026-01-01\n",
    "nan.toml": "[work]\nlr = nan\n",
    "inf.toml": "[work]\nlr = inf\n",
    "noise.toml": "[data]\nnoise = [1]\n",
    "trim.toml": "reducer = 'TrimmedMean(0.5)'\n",
    "krum.toml": "reducer = 'Krum(2)'\ncohort = 5\n",
    "unclipped.toml": "method = 'private(fedavg, noise=1.0)'\n",
    "share.toml": "attack = 'SignFlip(share=2)'\n",
    "both.toml": "[work]\nepochs = 1\nsteps = 1\n",
    "dtype.toml": "[model]\ndtype = 'float16'\n",
    "space.toml": "'rounds ' = 3\n",
    "two.toml": "rounds = 0\nseed = -1\n",
    "foreign/thesis.tex": "precious",
    "torn/manifest.json": "{",
    "list/manifest.json": "[1]",
    "bare/manifest.json": "{}",
    "torn-comparison/comparison.toml": "methods = ['FedAvg']\nseeds = [0]\n",
    "list.json": "[1]",
    "words.json": '{"FedAvg": "small"}',
}
UNUSUAL = [
    "run nothing.toml --rounds 1 --steps 1 --engine serial",
    "run small.toml --set 'rounds = 1 ' --out 'with spaces and ümläuts'",
    "run small.toml --rounds 1 --rounds 3 --set rounds=2",
    "run small.toml --schedule none --optimizer none --noise none --augment none",
    "run small.toml --set probes=none --set work.clip=none --set data.seed=none",
    "run small.toml --batch-size all --cohort 1.0",
    "run small.toml --cohort 0.001 --seed 99999999999999999999",
    "run small.toml --clients 1 --cohort 1",
    "run small.toml --split \"natural(by='class')\" --clients all",
    "run small.toml --method ' RELAXED ( fed-avg ( ) , beta = 0.1 ) '",
    "run small.toml --method 'stages((fedavg, 100), scaffold)'",
    "run small.toml --method 'stages((fedavg, 0), (scaffold, 0.0), (fedcm, 1.0), feddyn)'",
    "run small.toml --init none",
    "run small.toml --init done",
    "run small.toml --target 1 --eval-every 50 --probe drift --probe 'diversity(every=2)'",
    "run done --rounds 1 --out again",
    "resume done",
    "resume done --rounds 3",
    "show done",
    "runs .",
    "runs done",
    "report done",
    "export done --format markdown",
    "compare done --method fedavg --seeds 1 --measure smoothed:50",
    "compare small.toml --method feddyn --seeds 1 --measure 'top of loss/gamma (min)' --columns 'top;final'",
    "split done --clients 1",
    "split small.toml --split IID --held-out 3 --json",
    "explain --method scaffold",
    "bounds fedinit-1 --values 3,1,1",
    "costs small.toml --method fedavg --method FedAvg --counted 2",
    "--debug methods",
]
# what Python or a library says, and no user should have to read
RAW = re.compile(
    r"Traceback|\w+Error\b|NoneType|not supported|must be integers between|object is not|<class|pydantic"
)


class Row(NamedTuple):
    """A line that is wrong."""

    code: int
    line: str
    words: list[str]

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.line)


def read_table() -> list[Row]:
    rows = []
    for text in TABLE.read_text().splitlines():
        if text and not text.startswith("#"):
            code, line, words = text.split(" | ")
            rows.append(Row(int(code), line.strip(), words.split(" … ")))
    return rows


ROWS = read_table()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with broken files, and with runs that are finished, damaged or held by another process."""
    root = tmp_path_factory.mktemp("wide-net")
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "binary.toml").write_bytes(bytes(range(256)))
    (root / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name in ("done", "held", "hollow"):
            run("run", "small.toml", "--out", name)
        run(
            "compare",
            "small.toml",
            "--method",
            "fedavg",
            "--seeds",
            "1",
            "--parallel",
            "1",
            "--out",
            "comparison",
        )
        run(*shlex.split("sweep small.toml --over work.lr --values 0.1 --seeds 1 --parallel 1 --out sweep"))
    (root / "hollow" / "manifest.json").write_text("{}")
    held = RunDirectory(root / "held")
    yield root
    held.close()


def run(*arguments: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


def listing(root: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_size) for path in root.rglob("*"))


@pytest.fixture
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FEDKEEL_DATA", str(place / "empty"))
    return place


def check(row: Row, code: int, told: str) -> None:
    assert code == row.code, told
    for words in row.words:
        assert words in told, told
    assert told.startswith("error: ")
    assert not RAW.search(told), told
    assert len(told.splitlines()) <= 6, told


@pytest.mark.parametrize("row", one_in(6, ROWS), ids=[row.line for row in ROWS])
def test_a_wrong_line_gets_its_message_and_exit_code_and_leaves_nothing(row: Row, inside: Path) -> None:
    if row.line.startswith("tune"):
        pytest.importorskip("optuna")
    before = listing(inside)
    result = CliRunner().invoke(app, row.arguments, prog_name="fedkeel")
    assert isinstance(result.exception, SystemExit), result.exception
    check(row, result.exit_code, result.stderr)
    if row.code != Diverged.exit_code:  # of a run that diverged, what there is stays
        assert listing(inside) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    one_in(
        6,
        [row for row in ROWS if row.code != Diverged.exit_code][:: len(ROWS) // 6],
        pytest.mark.slow(12),
    ),
    ids=lambda row: row.line,
)
def test_a_process_of_its_own_says_the_same(row: Row, inside: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedkeel", *row.arguments],
        cwd=inside,
        env={**os.environ, "FEDKEEL_DATA": str(inside / "empty")},
        capture_output=True,
        text=True,
        check=False,
    )
    check(row, done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("line", UNUSUAL)
def test_an_unusual_line_works(line: str, fedkeel: Callable) -> None:
    Path("small.toml").write_text(SMALL)
    Path("nothing.toml").touch()
    fedkeel("run", "small.toml", "--out", "done")
    result = fedkeel(*shlex.split(line))
    assert result.stdout
    assert not RAW.search(result.stderr)


def test_the_table_is_wide() -> None:
    lines = [row.line for row in ROWS]
    assert len(set(lines)) == len(lines) >= 150
    assert {row.code for row in ROWS} == {2, 3, 4, 6}


def test_every_command_and_every_option_is_in_the_table() -> None:
    known, given = set(), set()
    for name in COMMANDS:
        command = load_command(name)
        for inner in getattr(command, "commands", {name: command}).values():
            known |= {flag for one in inner.params for flag in one.opts if flag.startswith("--")}
    for row in ROWS:
        given |= {word.partition("=")[0] for word in row.arguments if word.startswith("--")}
    assert known - given - {"--help", "--json"} == set()
    assert {row.arguments[0] for row in ROWS if row.arguments} >= COMMANDS.keys()
