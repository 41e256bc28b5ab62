"""Curves that keep few points however long they become.

Rounds are put into buckets of equal width, each of which keeps its first point, its lowest and its highest.
When there are too many, neighbours are merged and buckets are twice as wide. So a peak of a single round
stays visible, and a new point costs the same after ten thousand rounds as after ten; many points that are
added at once cost little more than their lowest and highest. Widths are powers of 2:
the first points of runs of one length lie at the same rounds, where means over seeds are taken. Downsampling
that picks points by their shape (LTTB) would have to see the whole curve again with every round.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import count
from operator import itemgetter
from typing import TypeAlias

_stamps = count()


Point: TypeAlias = tuple[int, float]  # a round, counted from 1 on, and a value


class Bucket:
    """Neighbouring rounds: the first point, the lowest and the highest."""

    __slots__ = ("first", "high", "low", "number")

    def __init__(self, first: Point, low: Point, high: Point, number: int) -> None:
        self.first, self.low, self.high = first, low, high
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
        self.ahead: list[Point] = []  # a few points of what lies behind the last one and is not read yet
        self.stamp = next(_stamps)  # another one after every change, and of its own

    def add(self, rounds: Sequence[int], values: Sequence[float]) -> None:
        """Add finite values behind all others, with their rounds in order."""
        if not rounds:
            return
        self.last = (rounds[-1], values[-1])
        self.stamp = next(_stamps)
        self._widen(rounds)
        start = 0
        while start < len(rounds):
            number = (rounds[start] - 1) // self.width
            end = bisect_right(rounds, (number + 1) * self.width, start)
            part = values[start:end]
            low, high = min(part), max(part)
            bucket = Bucket(
                (rounds[start], values[start]),
                (rounds[start + part.index(low)], low),
                (rounds[start + part.index(high)], high),
                number,
            )
            if self.buckets and self.buckets[-1].number == number:
                self.buckets[-1].join(bucket)
            else:
                self.buckets.append(bucket)
            start = end
        self._merge()

    def _widen(self, rounds: Sequence[int]) -> None:
        """Make buckets about as wide as they must be for these rounds at once, instead of again and again."""
        begun = self.buckets[0].number * self.width if self.buckets else rounds[0] - 1
        points = len(self.buckets) + len(rounds)
        while min(points, (rounds[-1] - begun) // self.width) > 2 * self.most:
            self._double()

    def limit(self, most: int) -> None:
        """Keep fewer buckets from now on; more are not made again."""
        self.most, self.stamp = min(self.most, most), next(_stamps)
        self._merge()

    def points(self) -> list[Point]:
        """Return the points that are kept, by rounds."""
        found = {point for bucket in self.buckets for point in (bucket.first, bucket.low, bucket.high)}
        if self.last is not None:
            found.add(self.last)
        read = 0 if self.last is None else self.last[0]
        return sorted(found) + self.ahead[bisect_right(self.ahead, read, key=itemgetter(0)) :]

    @property
    def is_constant(self) -> bool:
        """Tell whether all values are the same."""
        return len({value for bucket in self.buckets for value in (bucket.low[1], bucket.high[1])}) <= 1

    def _merge(self) -> None:
        while len(self.buckets) > self.most:
            self._double()

    def _double(self) -> None:
        self.width *= 2
        merged: list[Bucket] = []
        for bucket in self.buckets:
            bucket.number //= 2
            if merged and merged[-1].number == bucket.number:
                merged[-1].join(bucket)
            else:
                merged.append(bucket)
        self.buckets = merged
