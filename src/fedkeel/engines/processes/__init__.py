"""The processes engine: a cohort's walks on worker processes of this machine."""

from fedkeel.engines.processes.engine import Processes

__all__ = ["Processes"]
