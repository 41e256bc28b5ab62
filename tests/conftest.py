"""Set-up of all tests: none depends on the order, on other test processes or on what the user has cached."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

# before torch is imported, and for the processes that tests start: test processes share the cores
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# as if started from a terminal: a shell lets what it starts in the background ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)

# the folder of shared helpers is importable from every test, wherever it lies
sys.path.insert(0, str(Path(__file__).parent))

from selecting import is_thorough  # noqa: E402  it lies there

# CI judges a change by the same examples every time; at home each run looks at new ones.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("home", deadline=None)  # a busy core is no failure
settings.register_profile("check", deadline=None, max_examples=20)  # `make check`: quick
settings.load_profile("ci" if os.environ.get("CI") else "home")

# Compiled steps are found by their content, so runs of the tests may share them: no result depends on that.
# All else that fedkeel remembers (measured choices, downloads) starts empty in every test process.
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(_CACHES / "fedkeel" / "inductor"))


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("FEDKEEL_CACHE", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_synced() -> Iterator[None]:
    """Wait for no disk: what is synced matters when the power fails, which no test lets happen.

    A handle that is not open is still an error. Processes that tests start do sync.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: os.fstat(handle) and None)
        yield


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """No test leaves torch on more threads: those of the test processes would wait for each other."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if torch:
        assert torch.get_num_threads() == before, "the test leaves torch on another number of threads"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, help="run only so many cases of every parametrized test")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark what is thorough; after `-m` leave out what `--cases` does not want, and sort the rest.

    Where test processes share the files, begin with the longest: so they end at about the same time.
    """
    for item in items:
        if any(map(is_thorough, item.iter_markers("slow"))):
            item.add_marker("thorough")
    yield
    if (most := config.getoption("--cases")) is not None:
        _keep_cases(config, items, most)
    if hasattr(config, "workerinput"):
        seconds = _seconds_by_file(items)
        items.sort(key=lambda item: -seconds[item.path])


def _seconds_by_file(items: list[pytest.Item]) -> Counter[Path]:
    """Add up what the marks of a file's tests say; the tests of one mark share its seconds."""
    shared = Counter(id(mark) for item in items for mark in item.iter_markers("slow"))
    seconds: Counter[Path] = Counter()
    for item in items:
        marks = item.iter_markers("slow")
        parts = (mark.args[0] / shared[id(mark)] if mark.args else 0.3 for mark in marks)
        seconds[item.path] += max(parts, default=0)
    return seconds


def _keep_cases(config: pytest.Config, items: list[pytest.Item], most: int) -> None:
    """Keep the first cases of every test."""
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        seen[test] += 1
        (kept if seen[test] <= most else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
