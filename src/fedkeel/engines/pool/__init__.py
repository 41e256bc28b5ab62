"""Jobs on worker processes of this machine."""

from fedkeel.engines.pool.processes import Processes

__all__ = ["Processes"]
