"""The stacked engine: all clients of a cohort in one computation."""

from fedkeel.engines.stacked.engine import Stacked, is_compiled
from fedkeel.engines.stacked.stackable import Unstackable

__all__ = ["Stacked", "Unstackable", "is_compiled"]
