"""Where data comes from: `load(name)` for the papers' data sets, `Dataset.from_arrays` for one's own."""

from fedkeel.data.sources.catalogue import load, names
from fedkeel.data.sources.dataset import Dataset, Scale

__all__ = ["Dataset", "Scale", "load", "names"]
