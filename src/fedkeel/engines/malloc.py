"""Memory that is freed stays with the process, ready for the next step.

A training step frees tens of megabytes and the next one asks for them again. glibc gives large blocks back to
the kernel at once, which clears them page by page before they can be used again: up to a quarter of a step.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

SWITCH = "FEDKEEL_KEEP_HEAP"
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as in malloc.h
_LARGEST_BLOCKS = (2**30, 2**25)  # older versions of glibc refuse the first
_USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Tell the C library to keep freed memory, once per process; return whether it does.

    Nothing is done where the user has set the allocator up, or FEDKEEL_KEEP_HEAP=0, or where the C library
    has no such switch. The process then stays as large as it once was.
    """
    if os.environ.get(SWITCH) == "0" or any(name in os.environ for name in _USERS_OWN):
        return False
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    blocks = any(tune(_MMAP_THRESHOLD, size) for size in _LARGEST_BLOCKS)
    return bool(blocks and tune(_TRIM_THRESHOLD, 2**31 - 1) and tune(_TOP_PAD, 2**26))
