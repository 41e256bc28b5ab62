"""Curves that keep few points however long they become.

Rounds are put into buckets of equal width, each of which keeps its first point, its lowest and its highest.
When there are too many, neighbours are merged and buckets are twice as wide. So a peak of a single round
stays visible, and a new point costs the same after ten thousand rounds as after ten. Widths are powers of 2:
the first points of runs of one length lie at the same rounds, where means over seeds are taken. Downsampling
that picks points by their shape (LTTB) would have to see the whole curve again with every round.
"""

from __future__ import annotations

import math
from itertools import count
from typing import NamedTuple

_stamps = count()


class Point(NamedTuple):
    """A value after a round; rounds count from 1 here."""

    round: int
    value: float


class Bucket(NamedTuple):
    """Neighbouring rounds: the first point, the lowest and the highest."""

    first: Point
    low: Point
    high: Point

    def joined(self, other: Bucket) -> Bucket:
        """Return both as one; this one comes first."""
        low = other.low if other.low.value < self.low.value else self.low
        high = other.high if other.high.value > self.high.value else self.high
        return Bucket(self.first, low, high)


class ThinnedCurve:
    """A curve of at most `most` buckets, so of three points each at most, and its last point."""

    def __init__(self, most: int) -> None:
        self.most, self.width = most, 1
        self.buckets: list[Bucket] = []
        self.last: Point | None = None
        self.stamp = next(_stamps)  # another one after every change, and of its own

    def add(self, round: int, value: float) -> None:
        """Add a point behind all others; what is no number is left out."""
        if not math.isfinite(value):
            return
        point = Point(round, value)
        one = Bucket(point, point, point)
        if self.buckets and self._number(self.buckets[-1]) == self._number(one):
            self.buckets[-1] = self.buckets[-1].joined(one)
        else:
            self.buckets.append(one)
            self._merge()
        self.last, self.stamp = point, next(_stamps)

    def limit(self, most: int) -> None:
        """Keep fewer buckets from now on; more are not made again."""
        self.most, self.stamp = min(self.most, most), next(_stamps)
        self._merge()

    def points(self) -> list[Point]:
        """Return the points that are kept, by rounds."""
        found = {point for bucket in self.buckets for point in bucket}
        if self.last is not None:
            found.add(self.last)
        return sorted(found)

    @property
    def is_constant(self) -> bool:
        """Tell whether all values are the same."""
        return len({value for bucket in self.buckets for value in (bucket.low.value, bucket.high.value)}) <= 1

    def _number(self, bucket: Bucket) -> int:
        return (bucket.first.round - 1) // self.width

    def _merge(self) -> None:
        while len(self.buckets) > self.most:
            self.width *= 2
            merged: list[Bucket] = []
            for bucket in self.buckets:
                if merged and self._number(merged[-1]) == self._number(bucket):
                    merged[-1] = merged[-1].joined(bucket)
                else:
                    merged.append(bucket)
            self.buckets = merged
