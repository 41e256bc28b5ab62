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
from typing import TypeAlias

_stamps = count()


Point: TypeAlias = tuple[int, float]  # a round, counted from 1 on, and a value


class Bucket:
    """Neighbouring rounds: the first point, the lowest and the highest."""

    __slots__ = ("first", "high", "low", "number")

    def __init__(self, point: Point, number: int) -> None:
        self.first = self.low = self.high = point
        self.number = number  # of the bucket, counted from the first round on

    def join(self, other: Bucket) -> None:
        """Take in the one behind it."""
        if other.low[1] < self.low[1]:
            self.low = other.low
        if other.high[1] > self.high[1]:
            self.high = other.high


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
        self.last = point = (round, value)
        self.stamp = next(_stamps)
        number = (round - 1) // self.width
        if self.buckets and self.buckets[-1].number == number:
            bucket = self.buckets[-1]
            if value < bucket.low[1]:
                bucket.low = point
            elif value > bucket.high[1]:
                bucket.high = point
        else:
            self.buckets.append(Bucket(point, number))
            self._merge()

    def limit(self, most: int) -> None:
        """Keep fewer buckets from now on; more are not made again."""
        self.most, self.stamp = min(self.most, most), next(_stamps)
        self._merge()

    def points(self) -> list[Point]:
        """Return the points that are kept, by rounds."""
        found = {point for bucket in self.buckets for point in (bucket.first, bucket.low, bucket.high)}
        if self.last is not None:
            found.add(self.last)
        return sorted(found)

    @property
    def is_constant(self) -> bool:
        """Tell whether all values are the same."""
        return len({value for bucket in self.buckets for value in (bucket.low[1], bucket.high[1])}) <= 1

    def _merge(self) -> None:
        while len(self.buckets) > self.most:
            self.width *= 2
            merged: list[Bucket] = []
            for bucket in self.buckets:
                bucket.number //= 2
                if merged and merged[-1].number == bucket.number:
                    merged[-1].join(bucket)
                else:
                    merged.append(bucket)
            self.buckets = merged
