"""What stands between the clients' uploads and the server: a weighted mean, or a robust rule."""

from __future__ import annotations

from fedkeel.reducers.base import CHUNK, Mean, Reducer, StackReducer
from fedkeel.reducers.clipping import NormClip
from fedkeel.reducers.coordinates import Median, TrimmedMean
from fedkeel.reducers.geometric import GeometricMedian
from fedkeel.reducers.krum import Krum, MultiKrum

REDUCERS = (Mean, Median, TrimmedMean, NormClip, Krum, MultiKrum, GeometricMedian)

__all__ = [
    "CHUNK",
    "REDUCERS",
    "GeometricMedian",
    "Krum",
    "Mean",
    "Median",
    "MultiKrum",
    "NormClip",
    "Reducer",
    "StackReducer",
    "TrimmedMean",
]
