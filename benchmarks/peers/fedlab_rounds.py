"""FedLab: FedAvg in its standalone pipeline, one process, clients one after another."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from importlib.metadata import version
from types import ModuleType

import torch
from benchlib.turns import Enough, Turns, job
from benchlib.workloads import Data, Workload, build_model, load_data, without_fedkeel
from torch.utils.data import DataLoader, TensorDataset


class _Unused(ModuleType):
    """FedLab imports torchvision for data sets that are not used here; its wheels miss some torch builds."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _stand_in_for_torchvision() -> None:
    try:
        import torchvision  # noqa: F401, PLC0415
    except (ImportError, RuntimeError):
        for name in ("torchvision", "torchvision.transforms", "torchvision.datasets"):
            sys.modules[name] = _Unused(name)


class Clients:
    """Gives the trainer each client's loader."""

    def __init__(self, workload: Workload, data: Data) -> None:
        size = workload.samples
        self.sets = [
            TensorDataset(*(part[c * size : (c + 1) * size] for part in data))
            for c in range(workload.clients)
        ]

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        """Return shuffled minibatches, as FedLab's own data sets do."""
        return DataLoader(self.sets[client], batch_size=batch_size, shuffle=True)


def main() -> None:
    """Take turns."""
    without_fedkeel()
    given = job()
    workload = Workload.from_json(given["workload"])
    torch.set_num_threads(given["options"]["threads"])
    _stand_in_for_torchvision()
    from fedlab.contrib.algorithm.fedavg import (  # noqa: PLC0415
        FedAvgSerialClientTrainer,
        FedAvgServerHandler,
    )
    from fedlab.core.standalone import StandalonePipeline  # noqa: PLC0415

    logging.getLogger().setLevel(logging.WARNING)
    turns = Turns(workload.warm, torch=torch.__version__, fedlab=version("fedlab"))
    trainer = FedAvgSerialClientTrainer(build_model(workload), workload.clients, cuda=False)
    trainer.setup_dataset(Clients(workload, load_data(given["data"], workload)))
    trainer.setup_optim(workload.epochs, workload.batch, workload.lr)
    share = (workload.cohort + 0.5) / workload.clients  # FedLab rounds the cohort down
    pipeline = StandalonePipeline(FedAvgServerHandler(build_model(workload), 10**6, share), trainer)
    pipeline.evaluate = turns.round_done  # the place it leaves to its users, after every round
    with suppress(Enough):
        pipeline.main()


if __name__ == "__main__":
    main()
