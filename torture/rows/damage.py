"""Damages one file of a run, a comparison or a sweep, and sees what every command makes of it."""

from __future__ import annotations

import os
import random
import re
import shutil
import warnings
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import torch
from damages import damage
from harness import Progress, Tally, random_of
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.experiments.experiment import Experiment

NAME = "damage"
FAULT = (
    "a damaged file of a run, a comparison or a sweep (flips, cuts, swaps with another run, lost, doubled or "
    "moved lines, wrong JSON, bad UTF-8, wrong types), through resume, show, runs, report, load and "
    "train(resume=True)"
)
MUST_HOLD = "exact, or a clear message with the right code; 0 silent, 0 tracebacks"
COUNT = 5000

SMALL = [
    "data.clients=6", "cohort=3", "work.epochs=1", "engine=serial", "threads=1", "rounds=6",
    "checkpoint_every=3", "data.split=IID()", "model.name=logistic", "data.client_tests=0.2",
    "keep_client_states=true", "work.batch_size=200",
]  # fmt: skip
METHODS = ["scaffold", "stages((feddyn(0.1), 2), fedavg)"]
LINE = [f"--set={one}" for one in SMALL]
RUNNER = CliRunner()


class Call(NamedTuple):
    """How a command ended: its code, what it printed, and the exception nobody caught."""

    code: int
    out: str
    err: str
    crash: str


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    tally = Tally()
    torch.set_num_threads(1)
    os.environ["FEDKEEL_CACHE"] = str(scratch / "cache")
    with chdir(scratch), warnings.catch_warnings():
        originals = make_originals(progress)
        for number in progress.tries(count):
            try_once(number, random_of(seed, number), originals, tally)
    return tally


def make_originals(progress: Progress) -> dict[str, dict[str, str]]:
    """Make finished and cut runs, a comparison and a sweep; return what commands print of each, undamaged."""
    progress.say("making the runs that are to be damaged")
    for name, method, seed in (("a", METHODS[0], 0), ("b", METHODS[0], 1), ("c", METHODS[1], 0)):
        experiment = Experiment().with_settings([*SMALL, f"method={method}", f"seed={seed}"])
        experiment.train(Path("originals", name))
        cut_short(experiment, Path("originals", f"{name}-cut"))
    for words in (
        ["compare", "--method=fedavg", "--method=scaffold", "--seeds=2", "--out=originals/compared"],
        ["sweep", "--over=work.lr", "--values=0.1,0.2", "--seeds=2", "--parallel=1", "--out=originals/swept"],
    ):
        ended = call(*words, *LINE, "--set=rounds=2")
        assert ended.code == 0, ended
    shutil.copytree("originals/a", "healthy")
    told = {}
    for original in sorted(Path("originals").iterdir()):
        place(original)
        told[original.name] = outputs(original.name)
        if original.name.endswith("-cut"):
            Path("t/metrics.jsonl").write_bytes(without_last_row(original))
            told[f"{original.name}, a row earlier"] = outputs(original.name)
    return told


def outputs(name: str) -> dict[str, str]:
    return {action: call(*words).out for action, words in commands(name).items()}


def without_last_row(original: Path) -> bytes:
    """Return the rows of a cut run as a kill leaves them between the timings of a round and its row."""
    return b"".join((original / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:-1])


def cut_short(experiment: Experiment, path: Path) -> None:
    """Leave a run as a kill after its fifth round does: a checkpoint after three, and rows behind it."""
    child = os.fork()
    if child == 0:
        experiment.train(path, callbacks=lambda row: os._exit(0) if row["round"] == 4 else None)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def commands(name: str) -> dict[str, list[str]]:
    """Return the commands that only read what is at `t`."""
    group = name in ("compared", "swept")
    more = {} if group else {"clients": ["show", "t", "--per-client"]}
    if name.endswith("-cut"):
        more = {}
    report = {"report": ["report", "t", "--out", "page.html"]}
    return {
        "show": ["show", "t"],
        "json": ["show", "t", "--json"],
        "runs": ["runs", ".", "--all"],
        **report,
        **more,
    }


def place(original: Path) -> None:
    shutil.rmtree("t", ignore_errors=True)
    shutil.copytree(original, "t")


def call(*words: str) -> Call:
    """Call a command; of a page what it shows counts as printed."""
    page = Path("page.html")
    page.unlink(missing_ok=True)
    result = RUNNER.invoke(app, list(words))
    crash = "" if isinstance(result.exception, SystemExit | None) else repr(result.exception)[:300]
    shown = page.read_text() if page.exists() else ""
    return Call(result.exit_code, result.stdout + shown, result.stderr, crash)


def try_once(number: int, rng: random.Random, originals: dict[str, dict[str, str]], tally: Tally) -> None:
    original = Path("originals", rng.choice(sorted(p.name for p in Path("originals").iterdir())))
    place(original)
    files = sorted(
        p.relative_to("t") for p in Path("t").rglob("*") if p.is_file() and p.suffix not in (".html", ".svg")
    )
    inside = rng.choice(files)
    donors = [p for p in Path("originals").rglob(inside.name) if not p.is_relative_to(original)]
    done = f"{original.name}/{inside}: {damage(Path('t', inside), donors, rng)}"
    told = originals[original.name]
    if original.name.endswith("-cut") and inside.name == "metrics.jsonl":
        rows = Path("t/metrics.jsonl").read_bytes() if Path("t/metrics.jsonl").is_file() else b""
        if rows[: rows.rfind(b"\n") + 1] == without_last_row(original):
            told = originals[f"{original.name}, a row earlier"]
    reading = commands(original.name)
    resuming = (
        ["resume"]
        if original.name == "compared"
        else []
        if original.name == "swept"
        else ["resume", "train", "load"]
    )
    action = rng.choice([*reading, *resuming, *resuming])
    tally.note(f"by {action}")
    if action in reading:
        problem = judge_reading(call(*reading[action]), told[action], Path("t", inside))
    elif action == "resume":
        problem = judge_resumed(call("resume", "t"), original)
    elif action == "load":
        problem = judge_loaded(original)
    else:
        problem = judge_trained(original)
    if problem is None:
        tally.exact += 1
    elif problem == "":
        tally.refused += 1
    else:
        tally.fail(number, f"{action} after {done}: {problem}")


def clear(ended: Call) -> str:
    """Return what is wrong with a refusal; nothing where it names the file and exits with 6."""
    if ended.crash or "Traceback" in ended.err:
        return f"traceback: {ended.crash}"
    if ended.code != 6:
        return f"code {ended.code}: {ended.err.strip()[-300:]}"
    return (
        "" if re.search(r"error: \S*t(/|:)", ended.err) else f"no file is named: {ended.err.strip()[-300:]}"
    )


def judge_reading(ended: Call, expected: str, damaged: Path) -> str | None:
    if ended.code == 0 and ended.out == expected:
        return None
    if ended.code != 0:
        return clear(ended)
    if ended.crash:
        return f"traceback: {ended.crash}"
    if "healthy" in expected and "healthy" not in ended.out:
        return "the healthy run is not listed"
    told = ended.out + ended.err
    named = damaged.name in told or f"{damaged.parent}/" in ended.err or "unreadable" in told
    return "" if named else "silent: other output"


def whole_run(original: Path) -> Path:
    return original.with_name(original.name.removesuffix("-cut"))


def judge_resumed(ended: Call, original: Path) -> str | None:
    if ended.code != 0:
        return clear(ended)
    return "the end is another one" if different(whole_run(original)) else None


def different(whole: Path) -> bool:
    """Compare all runs below a directory with what they are when nothing was damaged."""
    for name in ("model.safetensors", "metrics.jsonl", "clients.jsonl"):
        for file in whole.rglob(name):
            mine = Path("t", file.relative_to(whole))
            if not mine.is_file() or mine.read_bytes() != file.read_bytes():
                return True
    return False


def judge_trained(original: Path) -> str | None:
    """Go on from Python, with the settings of the run as they are known."""
    method, seed = (METHODS[1], 0) if original.name[0] == "c" else (METHODS[0], int(original.name[0] == "b"))
    experiment = Experiment().with_settings([*SMALL, f"method={method}", f"seed={seed}"])
    return python(lambda: experiment.train(Path("t"), resume=True), original)


def judge_loaded(original: Path) -> str | None:
    whole = Path("originals", "a" if original.name[0] == "a" else original.name[0])

    def load() -> None:
        result = fk.load("t")
        if original.name.endswith("-cut"):
            return
        expected = fk.load(whole)
        same = [
            torch.equal(a, b)
            for a, b in zip(result.model.parameters(), expected.model.parameters(), strict=True)
        ]
        timeless = [
            [{k: v for k, v in row.items() if k != "seconds"} for row in one.history]
            for one in (result, expected)
        ]
        if not all(same) or timeless[0] != timeless[1]:
            raise AssertionError("another model or history")

    return python(load, None)


def python(job: object, original: Path | None) -> str | None:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            job()  # type: ignore[operator]
    except fk.StorageError as problem:
        return "" if re.match(r"\S*t(/|:| )", str(problem)) else f"no file is named: {problem}"
    except Exception as problem:
        named = any("t/" in str(one.message) for one in caught)
        return (
            ""
            if isinstance(problem, fk.ConfigError) and named
            else f"{type(problem).__name__}: {problem}"[:300]
        )
    return "the end is another one" if original is not None and different(whole_run(original)) else None
