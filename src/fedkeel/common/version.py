"""The version of fedkeel."""

__version__ = "0.1.0"
