"""Freed memory stays with the process, unless the user wants it otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from fedkeel.engines.malloc import keep_freed_memory
print(keep_freed_memory(), keep_freed_memory())
def touch():
    torch.ones(10_000_000)
for _ in range(10):  # until the heap has grown to what it needs: small blocks come to lie between large ones
    touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**environment: str) -> tuple[str, int]:
    """Return what `keep_freed_memory` returned twice, and the page faults of asking for 40 MB 20 times."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))}
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=plain | environment, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return printed[0], int(printed[1])


@pytest.mark.slow(4)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library has no such switch")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    given_back = run(FEDKEEL_KEEP_HEAP="0")
    kept = min(run(), run(), key=lambda one: one[1])  # rarely the heap, put at random, has no room to grow
    assert (kept[0], given_back[0]) == ("True True", "False False")
    assert 4 * kept[1] < given_back[1]


@pytest.mark.slow(4)
def test_a_user_who_has_set_the_allocator_up_is_left_alone() -> None:
    assert run(MALLOC_TRIM_THRESHOLD_="131072")[0] == "False False"
