"""Trackers: callbacks that write a run's settings, rounds and end where others keep theirs.

`fk.train(…, callbacks=[fk.trackers.TensorBoard("logs")])`. Each needs its package, an extra of fedkeel. They
write to this machine alone unless they are told to send; the packages' own reports on their use are off.
"""

from __future__ import annotations

from fedkeel.trackers.base import Tracker
from fedkeel.trackers.mlflow import MLflow
from fedkeel.trackers.tensorboard import TensorBoard
from fedkeel.trackers.wandb import WandB

__all__ = ["MLflow", "TensorBoard", "Tracker", "WandB"]
