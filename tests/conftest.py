"""Set-up of all tests: each is independent of the order, of other test processes and of what the user has cached."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported, and for the processes that tests start: test processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

# the folder of shared helpers is importable from every test, wherever it lies
sys.path.insert(0, str(Path(__file__).parent))

# CI judges a change by the same examples every time; at home each run looks at new ones
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("home", deadline=None)  # a busy core is no failure
settings.load_profile("ci" if os.environ.get("CI") else "home")

# Compiled steps are found by their content, so they may be shared with other runs of the tests: no result depends
# on them. All else that fedkeel remembers (measured choices, downloads) starts empty in every test process.
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(_CACHES / "fedkeel" / "inductor"))


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("FEDKEEL_CACHE", raising=False)
        yield


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep tests that share something costly in one test process, and begin with the slow ones."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (group := _group(item)):
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):  # one test process of several: the last tests to end are then short ones
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _group(item: pytest.Item) -> str | None:
    """Return the group of a test: those of the processes engine, or of a file whose tests share a fixture."""
    if item.path.name.startswith("test_processes"):
        return "processes"
    definitions = item._fixtureinfo.name2fixturedefs.values()  # pytest has no public way to a fixture's scope
    return item.path.stem if any(d[-1].scope == "module" for d in definitions) else None
