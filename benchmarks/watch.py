"""What `fedkeel watch` costs: 50 runs × 10,000 rounds on disk, idle and growing, and a run in training.

`python benchmarks/watch.py` prints the table of docs/watch.md in some ten minutes; `--runs 5 --rounds 100`
makes it small, `--rounds 0` measures training alone, for `--minutes`, and `--minutes 0` none; `--json` is for
programs. With Playwright and chromium (`make browser`) it also draws the page. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchlib.beside import train
from benchlib.live import Page, cpu_of, memory_of, watching

from fedkeel.common.jsonfiles import json_text

GROWING = 10  # runs that grow in the measurement of growth
SECONDS = 20.0  # of each measurement of the processor
MINUTES = 6.0  # of the measurement of training


def row_of(round: int, draw: random.Random) -> dict[str, Any]:
    level = 1 / math.sqrt(round + 1)
    return {
        "round": round,
        "stage": 0,
        "cohort": draw.sample(range(100), 10),
        "loss": level + draw.random() * 0.1,
        "accuracy": 1 - level + draw.random() * 0.01,
        "train_loss": level + draw.random() * 0.2,
        "norm": 10 + level,
        "lr": 0.1 * 0.999**round,
        "gradients": 500,
        "bytes_down": 123456,
        "bytes_up": 123456,
        "drift": level * draw.random(),
        "diversity": 1 + draw.random(),
    }


def append(path: Path, first: int, rows: int, draw: random.Random) -> None:
    made = [row_of(first + index, draw) for index in range(rows)]
    for name, part in (
        ("metrics.jsonl", made),
        ("timings.jsonl", [{"round": one["round"], "seconds": 0.2} for one in made]),
    ):
        with (path / name).open("a") as file:
            file.writelines(json_text(one) + "\n" for one in part)


def write_runs(root: Path, runs: int, rounds: int) -> list[Path]:
    """Write a comparison as a long one leaves it; the first ten look as if they went on."""
    draw, paths = random.Random(0), []
    for index in range(runs):
        path = root / "compare" / f"method-{index // 5}" / f"seed-{index % 5}"
        path.mkdir(parents=True)
        identity = {"method": f"Method{index // 5}()", "seed": index % 5}
        about = {"identity": identity, "rounds": rounds + 1000, "data": {}}
        if index >= GROWING:
            about |= {"rounds": rounds, "end": {"rounds": rounds}}
        else:
            (path / ".lock").write_text(f"{os.uname().nodename} {os.getpid()}")
        (path / "manifest.json").write_text(json.dumps(about))
        if paths:  # all have the rows of the first: to write half a million takes longer than to read them
            for name in ("metrics.jsonl", "timings.jsonl"):
                shutil.copy(paths[0] / name, path)
        else:
            append(path, 0, rounds, draw)
        paths.append(path)
    methods = sorted({f"Method{index // 5}()" for index in range(runs)})
    listed = json.dumps(methods)
    (root / "compare" / "comparison.toml").write_text(f"methods = {listed}\nseeds = [0, 1, 2, 3, 4]\n")
    return paths


def get(address: str, name: str = "") -> tuple[float, int]:
    """Return the seconds and the bytes that a file of the page takes."""
    host, _, path = address.removeprefix("http://").partition("/")
    started = time.perf_counter()
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{path}{name}")
    size = len(connection.getresponse().read())
    connection.close()
    return time.perf_counter() - started, size


class Figures(dict[str, str]):
    """What was measured, printed as it is found: a long measurement shows how far it is."""

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        print(f"{name}: {value}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """Return it as the table of docs/watch.md."""
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in self.items())])


def serve(root: Path, paths: list[Path], rounds: int, seconds: float, found: Figures) -> None:
    drawn(root, len(paths), rounds, found)
    with watching(root) as (process, address):
        nobody = busy(process, seconds / 2)
        taken, _ = get(address)
        own = get(address, "page.js")[1] + get(address, "style.css")[1]
        started, before = time.perf_counter(), cpu_of(process)
        page = Page(address)
        page.heard.wait()
        first = time.perf_counter() - started
        while page.rounds() < len(paths) * rounds:
            time.sleep(0.05)
        found["the page; the first event with curves of all runs"] = f"{1000 * taken:.0f} ms; {first:.1f} s"
        read = time.perf_counter() - started
        found["all rows are read after; processor"] = f"{read:.1f} s; {cpu_of(process) - before:.1f} s"
        page.close()
        page = Page(address)
        page.heard.wait()
        found["the page's data; its own script and style"] = (
            f"{page.first_bytes / 1000:.0f} kB; {own / 1000:.0f} kB"
        )
        idle = busy(process, seconds)
        sent, events = page.bytes, page.events
        with growth(paths[:GROWING], rounds) as lag:
            growing = busy(process, seconds)
            rates = (page.bytes - sent) / 1000 / seconds, (page.events - events) / seconds
            found["server's processor: nobody looks; a page open, nothing new; growing"] = (
                f"{nobody:.2f} %; {idle:.2f} %; {growing:.2f} % of a core"
            )
            found["sent while growing"] = f"{rates[0]:.0f} kB in {rates[1]:.1f} events per second"
            found["a round is on the page's wire after (median)"] = f"{lag(page):.2f} s"
        found["server's memory"] = f"{memory_of(process):.0f} MB"
        page.close()


def busy(process: subprocess.Popen[str], seconds: float) -> float:
    """Return how much of a core a process takes, in per cent."""
    before = cpu_of(process)
    time.sleep(seconds)
    return 100 * (cpu_of(process) - before) / seconds


@contextmanager
def growth(paths: list[Path], first: int) -> Iterator[Any]:
    """Let runs grow, each by five rounds per second; give what measures the delay of a round."""
    ending, draw = threading.Event(), random.Random(1)
    done = dict.fromkeys(paths, first)

    def grow() -> None:
        while not ending.wait(0.2):
            for path in paths:
                append(path, done[path], 1, draw)
                done[path] += 1

    def lag(page: Page) -> float:
        """Return the median seconds from a row on disk to its event, of a run that grows alone."""
        ending.set()
        thread.join()
        times = []
        time.sleep(2)
        for _ in range(15):
            page.heard.clear()
            time.sleep(draw.random())
            append(paths[0], done[paths[0]], 1, draw)
            done[paths[0]] += 1
            written = time.perf_counter()
            page.heard.wait(10)
            times.append(time.perf_counter() - written)
        return statistics.median(times)

    thread = threading.Thread(target=grow, daemon=True)
    thread.start()
    yield lag
    ending.set()


SEEN = """() => {
    const runs = fedkeelPage.document?.runs ?? [];
    const ends = runs.map((run) => run.columns.accuracy?.rounds.at(-1) ?? 0);
    return [document.querySelectorAll(".plot.tall .scatterlayer .trace").length, ends];
}"""
REDRAW = """() => {
    const started = performance.now();
    fedkeelPage.update(fedkeelPage.document);
    return (performance.now() - started) / 1000;
}"""


def drawn(root: Path, runs: int, rounds: int, found: Figures) -> None:
    """Measure when chromium shows whole curves of all runs, and how long it takes to draw a change."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415
    except ImportError:
        return
    if chromium is None:
        return
    flags = [
        "--disable-gpu",
        "--disable-background-networking",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    with watching(root) as (_, address), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page()
        started, slowest = time.perf_counter(), 0.0
        page.goto(address)
        lines, ends = 0, list[int]()
        while not (lines and len(ends) == runs and min(ends) >= rounds):
            time.sleep(0.05)
            asked = time.perf_counter()
            lines, ends = page.evaluate(SEEN)
            slowest = max(slowest, time.perf_counter() - asked)
        whole = time.perf_counter() - started
        found["chromium: curves of all runs, whole; longest without an answer"] = (
            f"{whole:.1f} s; {slowest:.1f} s"
        )
        changes = statistics.median(page.evaluate(REDRAW) for _ in range(9))
        found["chromium draws a change of all curves in"] = f"{changes:.2f} s"
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of training; 0: none")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, found = Path(folder), Figures()
        if given.rounds:
            paths = write_runs(root / "many", given.runs, given.rounds)
            serve(root / "many", paths, given.rounds, given.seconds, found)
        if given.minutes:
            (root / "one").mkdir()
            for name, value in train(root / "one", given.minutes).items():
                found[name] = value
    print(json.dumps(found, indent=2) if given.json else found.table())


if __name__ == "__main__":
    main()
