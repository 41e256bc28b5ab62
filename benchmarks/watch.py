"""What `fedkeel watch` costs: 50 runs × 10,000 rounds on disk, idle and growing, and a run in training.

`python benchmarks/watch.py` prints figures; `--runs 5 --rounds 100` makes it small, `--json` is for programs.
With Playwright and chromium (`make browser`) it also draws the page. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import random
import shutil
import socket
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

import fedkeel as fk
from fedkeel.jsonfiles import json_text
from fedkeel.running.requests import RunRequests

GROWING = 10  # runs that grow in the measurement of growth
SECONDS = 20.0  # of each measurement of the processor
PAIRS, BLOCK = 40, 25  # of the measurement of training: pairs of blocks of rounds


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
        identity = {"algorithm": f"Method{index // 5}()", "seed": index % 5}
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


class Page:
    """A page that hears events, in a thread."""

    def __init__(self, address: str) -> None:
        host, _, self.path = address.removeprefix("http://").partition("/")
        self.connection = http.client.HTTPConnection(host, timeout=600)
        self.connection.request("GET", f"/{self.path}events")
        self.reply = self.connection.getresponse()
        self.bytes, self.events = 0, 0
        self.first: float | None = None
        self.first_bytes, self.last = 0, b""
        self.heard = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            while line := self.reply.readline():
                self.bytes += len(line)
                if line.startswith(b"data: "):
                    self.events += 1
                    self.last = line[6:]
                    if self.first is None:
                        self.first, self.first_bytes = time.perf_counter(), len(line)
                    self.heard.set()
        except (OSError, AttributeError, ValueError):
            return

    def rounds(self) -> int:
        """Return the rounds of all runs, as the page says."""
        found = json.loads(self.last)
        facts = dict(found.get("document", found)["facts"])
        return int(facts.get("rounds", "0").replace(",", ""))

    def close(self) -> None:
        """Hear no more."""
        sock = self.connection.sock or getattr(self.reply.fp.raw, "_sock", None)
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


@contextmanager
def watching(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fedkeel", "watch", str(root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().split(": ")[1].strip()
    try:
        yield process, address
    finally:
        process.terminate()
        process.wait()


def cpu_of(process: subprocess.Popen[str]) -> float:
    """Return the processor's seconds of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: subprocess.Popen[str]) -> float:
    """Return the largest memory of a process so far, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1000


def get(address: str, name: str = "") -> tuple[float, int]:
    """Return the seconds and the bytes that a file of the page takes."""
    host, _, path = address.removeprefix("http://").partition("/")
    started = time.perf_counter()
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{path}{name}")
    size = len(connection.getresponse().read())
    connection.close()
    return time.perf_counter() - started, size


class Figures(dict[str, float]):
    """What was measured, printed as it is found: a long measurement shows how far it is."""

    def __setitem__(self, name: str, value: float) -> None:
        super().__setitem__(name, value)
        print(f"{name:<36}{value:>12,.2f}", file=sys.stderr, flush=True)


def serve(root: Path, paths: list[Path], rounds: int, seconds: float, found: Figures) -> None:
    with watching(root) as (process, address):
        found["idle, no page open: CPU %"] = 100 * busy(process, seconds / 2)
        found["page: ms"], found["page: kB"] = scaled(get(address))
        _, size = get(address, "page.js")
        found["own script and style: kB"] = (size + get(address, "style.css")[1]) / 1000
        started = time.perf_counter()
        page = Page(address)
        page.heard.wait()
        found["first curves: ms"] = 1000 * ((page.first or 0) - started)
        total = len(paths) * rounds
        while page.rounds() < total:
            time.sleep(0.1)
        found["all rows read: s"] = time.perf_counter() - started
        page.close()
        page = Page(address)
        page.heard.wait()
        found["whole document: kB"] = page.first_bytes / 1000
        found["idle, page open: CPU %"] = 100 * busy(process, seconds)
        before, events = page.bytes, page.events
        with growth(paths[:GROWING], rounds) as lag:
            found["growing: CPU %"] = 100 * busy(process, seconds)
            found["growing: kB per second"] = (page.bytes - before) / 1000 / seconds
            found["growing: events per second"] = (page.events - events) / seconds
            found["a round is shown after: ms"] = 1000 * lag(page)
        found["server's memory: MB"] = memory_of(process)
        page.close()
        drawn(address, found)


def scaled(pair: tuple[float, int]) -> tuple[float, float]:
    return 1000 * pair[0], pair[1] / 1000


def busy(process: subprocess.Popen[str], seconds: float) -> float:
    before = cpu_of(process)
    time.sleep(seconds)
    return (cpu_of(process) - before) / seconds


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


def drawn(address: str, found: Figures) -> None:
    """Measure how long chromium takes to show the page, and to draw a change; nothing where it is missing."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415
    except ImportError:
        return
    if chromium is None:
        return
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--disable-gpu"])
        page = browser.new_page()
        started = time.perf_counter()
        page.goto(address)
        while not page.evaluate("document.querySelector('.plot.tall .scatterlayer .trace') !== null"):
            time.sleep(0.1)
        found["chromium, curves drawn: ms"] = 1000 * (time.perf_counter() - started)
        redraw = """() => {
            const started = performance.now();
            fedkeelPage.update(fedkeelPage.document);
            return performance.now() - started;
        }"""
        found["chromium, a change: ms"] = statistics.median(page.evaluate(redraw) for _ in range(9))
        browser.close()


def train(root: Path, pairs: int, found: Figures) -> None:
    """Measure what an open page costs a run: blocks of rounds with and without one, in turns."""
    wall: dict[bool, list[float]] = {False: [], True: []}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    page: list[Page] = []
    with watching(root) as (_, address):
        clock = {"wall": 0.0, "cpu": 0.0}

        def block(row: dict[str, Any]) -> bool:
            number, inside = divmod(row["round"], BLOCK)
            if inside == 4:  # after the turn has begun
                clock.update(wall=time.perf_counter(), cpu=time.process_time())
            if inside == BLOCK - 1:
                watched = bool(page)
                wall[watched].append(time.perf_counter() - clock["wall"])
                cpu[watched].append(time.process_time() - clock["cpu"])
                if (number % 2 == 0) == (number // 2 % 2 == 0):  # in the order ABBA
                    toggle()
            return number >= 2 * pairs

        def toggle() -> None:
            if page:
                page.pop().close()
            else:
                page.append(Page(address))
                page[0].heard.wait(10)

        federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=50, seed=0)
        fk.train(
            fk.Task(fk.models.mlp),
            federation,
            fk.SCAFFOLD(),
            rounds=2 * pairs * BLOCK + BLOCK,
            cohort=10,
            work=fk.Work(epochs=5, batch_size=20, lr=0.05),
            engine="serial",
            threads=1,
            run_dir=root / "run",
            callback=block,
            progress=False,
        )
        while page:
            page.pop().close()
    each = statistics.median(wall[False]) / (BLOCK - 5)
    found["training: ms per round"] = 1000 * each
    found["training, page open: % slower"] = 100 * (paired(wall) - 1)
    found["training, page open: % more CPU"] = 100 * (paired(cpu) - 1)
    found["looking for a request: us per round"] = 1e6 * request_seconds(root)


def paired(times: dict[bool, list[float]]) -> float:
    """Return the median ratio of neighbouring blocks."""
    return statistics.median(b / a for a, b in zip(times[False], times[True], strict=False))


def request_seconds(root: Path) -> float:
    requests, started = RunRequests(root), time.perf_counter()
    for _ in range(10_000):
        requests.follow(lambda: None)
    return (time.perf_counter() - started) / 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, found = Path(folder), Figures()
        (root / "one").mkdir()
        train(root / "one", given.pairs, found)
        paths = write_runs(root / "many", given.runs, given.rounds)
        serve(root / "many", paths, given.rounds, given.seconds, found)
    if given.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
