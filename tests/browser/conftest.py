"""Pages in a real browser: Debian's chromium, driven by Playwright.

`make browser` installs what these tests need. Where chromium, Playwright or axe-core are missing, they are
skipped with the reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from children import interruptible

from fedkeel.running.run_directory import read_rows

ROOT = Path(__file__).parents[2]
AXE = ROOT / ".browser" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}
PATIENCE = 90  # seconds until something that must happen is given up on: a busy machine is no failure


@dataclass
class OpenedPage:
    """A page in the browser, and what it wrote to the console and asked for since it was opened."""

    page: Any
    address: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def foreign_requests(self) -> list[str]:
        """What the page asked for elsewhere: not in itself, nor from the server that it came from."""
        own = ("data:", "blob:", "about:", self.address.split("?")[0])
        if self.address.startswith("http"):
            own += ("/".join(self.address.split("/")[:3]) + "/",)
        return [url for url in self.requests if not url.startswith(own)]

    def wait_until(self, expression: str) -> None:
        """Wait until an expression holds; Playwright's own way needs `eval`, which strict pages forbid."""
        wait_for(lambda: self.page.evaluate(expression))

    def check_quiet(self) -> None:
        """See that nothing went wrong in the page and that it asked nobody else for anything."""
        assert self.errors == []
        assert self.foreign_requests == []

    def serious_faults(self) -> list[str]:
        """Return what axe-core finds that keeps people out: each serious or critical fault."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{fault['id']} ({fault['impact']}): {fault['help']}: "
            + "; ".join(node["html"][:160] for node in fault["nodes"][:3])
            for fault in found["violations"]
            if fault["impact"] in {"serious", "critical"}
        ]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: `make browser`")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: apt-get install chromium")
    if not AXE.exists():
        pytest.skip("axe-core is missing: `make browser`")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))  # without a sandbox
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., OpenedPage]]:
    """Open a file or an address, in a `dark` scheme, on a `phone`."""
    contexts = []

    def opened(where: Path | str, *, dark: bool = False, phone: bool = False, **options: Any) -> OpenedPage:
        context = browser.new_context(
            viewport=PHONE if phone else DESKTOP,
            has_touch=phone,
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
            **options,
        )
        context.set_default_timeout(1000 * PATIENCE)
        contexts.append(context)
        address = where.resolve().as_uri() if isinstance(where, Path) else where
        shown = OpenedPage(context.new_page(), address)
        shown.page.on("console", lambda said: said.type == "error" and shown.errors.append(said.text))
        shown.page.on("pageerror", lambda problem: shown.errors.append(str(problem)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(address)
        return shown

    yield opened
    for context in contexts:
        context.close()


class Background:
    """Commands of fedkeel beside the tests, in a folder; what still runs at the end is stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start `fedkeel …`; what it says on stderr goes to a file."""
        with (self.folder / f"stderr-{len(self.started)}.txt").open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", "fedkeel", *map(str, words)],
                cwd=self.folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                preexec_fn=interruptible,  # noqa: PLW1509
            )
        self.started.append(process)
        return process

    def train(self, directory: Path, *options: str, rounds: int = 3) -> subprocess.Popen[str]:
        """Start a run of digits that goes on until it is stopped; return when it has some rounds."""
        tiny = ("--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--engine", "serial")
        process = self.start("run", *tiny, "--rounds", "1000000", "--out", directory, *options)
        wait_for(lambda: len(read_rows(directory)) >= rounds, process)
        return process

    def watch(self, directory: Path, *options: str) -> str:
        """Start `fedkeel watch`; return the page's address."""
        directory.mkdir(exist_ok=True)
        process = self.start("watch", directory, *options)
        assert process.stdout is not None
        return process.stdout.readline().split(": ")[1].strip()

    def stop(self) -> None:
        """Stop what still runs, as Ctrl-C does."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self.started:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Background]:
    """Commands beside a test, in its temporary directory."""
    made = Background(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def shared_background(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    """Commands beside all tests: to start a run takes seconds."""
    made = Background(tmp_path_factory.mktemp("background"))
    yield made
    made.stop()


def wait_for(holds: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something holds; fail where that takes too long, or where the process has ended before."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        assert process is None or process.poll() is None, f"the process ended with code {process.returncode}"
        time.sleep(0.05)
