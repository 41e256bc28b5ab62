"""Federated optimisation that keeps its course: methods against client drift, right by test."""

__version__ = "0.1.0"

from fedkeel import data, models
from fedkeel.algorithm import Algorithm, Cohort, Momentum, Objective, Plan, Sharp, Walk, method
from fedkeel.data import (
    IID,
    Dataset,
    DirichletByClass,
    DirichletByClient,
    Federation,
    Natural,
    Pathological,
)
from fedkeel.errors import (
    ConfigError,
    DataError,
    Diverged,
    FedkeelError,
    Stopped,
    StorageError,
    TooFewClients,
)
from fedkeel.methods import (
    METHODS,
    SCAFFOLD,
    Adaptive,
    Decayed,
    FedAvg,
    FedDyn,
    FedInit,
    FedProx,
    relaxed,
    sharp,
    stages,
)
from fedkeel.reducers import Mean
from fedkeel.runner import Result, train
from fedkeel.task import Task, accuracy
from fedkeel.vector import zeros_like
from fedkeel.work import Drop, InverseRoot, InverseTime, Work

__all__ = [
    "IID",
    "METHODS",
    "SCAFFOLD",
    "Adaptive",
    "Algorithm",
    "Cohort",
    "ConfigError",
    "DataError",
    "Dataset",
    "Decayed",
    "DirichletByClass",
    "DirichletByClient",
    "Diverged",
    "Drop",
    "FedAvg",
    "FedDyn",
    "FedInit",
    "FedProx",
    "Federation",
    "FedkeelError",
    "InverseRoot",
    "InverseTime",
    "Mean",
    "Momentum",
    "Natural",
    "Objective",
    "Pathological",
    "Plan",
    "Result",
    "Sharp",
    "Stopped",
    "StorageError",
    "Task",
    "TooFewClients",
    "Walk",
    "Work",
    "accuracy",
    "data",
    "method",
    "models",
    "relaxed",
    "sharp",
    "stages",
    "train",
    "zeros_like",
]
