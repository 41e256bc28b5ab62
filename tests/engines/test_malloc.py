"""Freed memory stays with the process, unless the user wants it otherwise."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os
import resource
import sys
import torch
from fedkeel.engines.malloc import keep_freed_memory

def touch():
    torch.ones(10_000_000)

def measure():
    print(keep_freed_memory(), keep_freed_memory())
    for _ in range(10):  # until the heap has grown to what it needs: small blocks lie between large ones
        touch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        touch()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)

for switch in sys.argv[1:]:  # a process each, since it cannot be taken back, but torch is imported once
    if os.fork() == 0:
        if switch:
            os.environ["FEDKEEL_KEEP_HEAP"] = switch
        measure()
        os._exit(0)
    os.wait()
"""
ASK_TWICE = """
import importlib.util
import sys
spec = importlib.util.spec_from_file_location("malloc", sys.argv[1])  # by itself it needs no torch
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.keep_freed_memory(), module.keep_freed_memory())
"""


def run(program: str, *arguments: str, **environment: str) -> list[str]:
    """Return the lines that a program prints in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=plain | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


@pytest.mark.slow(5)
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library has no such switch")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    """By what `keep_freed_memory` returns twice, and the page faults of asking for 40 MB 20 times."""
    for _ in range(2):  # rarely the heap, put at random, has no room to grow
        returned, given_back, returned_too, kept = run(PROGRAM, "0", "")
        assert (returned_too, returned) == ("True True", "False False")
        if 4 * int(kept) < int(given_back):
            break
    assert 4 * int(kept) < int(given_back)


def test_a_user_who_has_set_the_allocator_up_is_left_alone() -> None:
    path = str(importlib.util.find_spec("fedkeel.engines.malloc").origin)
    assert run(ASK_TWICE, path, MALLOC_TRIM_THRESHOLD_="131072") == ["False False"]
