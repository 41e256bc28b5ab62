"""pfl-research: FedAvg on its simulated backend, users' tensors in memory."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from types import MethodType

import numpy as np
import torch
from benchlib.turns import Enough, Turns, job
from benchlib.workloads import Data, Workload, build_model, load_data, without_fedkeel
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

_ENDLESS = 1_000_000


class Mark(TrainingProcessCallback):
    """Says when a round is over."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # noqa: D102
        self.turns.round_done()
        return False, Metrics()


def module(workload: Workload) -> nn.Module:
    """Return the model with the two functions that pfl asks for."""
    model = build_model(workload)

    def loss(self: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self(x), y)

    def metrics(self: nn.Module, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(cross_entropy(self(x), y)) * len(y), len(y))}

    model.loss, model.metrics = MethodType(loss, model), MethodType(metrics, model)
    return model


def users(workload: Workload, data: Data) -> FederatedDataset:
    """Return the clients, drawn uniformly, their tensors held as views: pfl slices them into minibatches."""
    size = workload.samples
    held = [
        PyTorchTensorDataset(tuple(part[c * size : (c + 1) * size] for part in data), user_id=str(c))
        for c in range(workload.clients)
    ]
    return FederatedDataset(held.__getitem__, lambda: np.random.randint(workload.clients))


def main() -> None:
    """Take turns."""
    without_fedkeel()
    given = job()
    workload = Workload.from_json(given["workload"])
    torch.set_num_threads(given["options"]["threads"])
    model = module(workload)
    data = users(workload, load_data(given["data"], workload))
    turns = Turns(workload.warm, torch=torch.__version__, pfl=version("pfl"))
    with suppress(Enough):
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=_ENDLESS,
                evaluation_frequency=_ENDLESS,
                train_cohort_size=workload.cohort,
                val_cohort_size=None,
            ),
            SimulatedBackend(training_data=data, val_data=data),
            PyTorchModel(
                model,
                local_optimizer_create=torch.optim.SGD,
                central_optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            ),
            NNTrainHyperParams(
                local_batch_size=workload.batch,
                local_num_epochs=workload.epochs,
                local_learning_rate=workload.lr,
            ),
            callbacks=[Mark(turns)],
            send_metrics_to_platform=False,
        )


if __name__ == "__main__":
    main()
