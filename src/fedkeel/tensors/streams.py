"""Keyed randomness: every draw comes from (seed, purpose, key…), never from a global state.

The same key gives the same numbers in every engine, in any order of execution, after any resume.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import numpy.random  # now: NumPy would do it at the first draw, and swallow a Ctrl-C meanwhile


class Stream(NamedTuple):
    """The root of all randomness of a run, or a branch of it."""

    seed: int
    key: tuple[int, ...] = ()

    def branch(self, purpose: str, *key: int) -> Stream:
        """Return the stream of one purpose, round, client, …"""
        return Stream(self.seed, (*self.key, zlib.crc32(purpose.encode()), *key))

    def numpy(self) -> np.random.Generator:
        """Return this stream as a NumPy generator."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence((self.seed, *self.key))))

    def integer(self) -> int:
        """Return this stream as one 63-bit seed, for generators that take a number."""
        return int(np.random.SeedSequence((self.seed, *self.key)).generate_state(1, np.uint64)[0] >> 1)
