"""The version of fedkeel."""

__version__ = "0.2.0"
