"""Engines that hand out jobs: what a job is (`jobs`), and who runs it (`processes`)."""

from fedkeel.engines.pool.processes import Processes

__all__ = ["Processes"]
