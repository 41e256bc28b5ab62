"""Jobs on a Ray cluster, of one machine or many."""

from fedkeel.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
