"""Federated optimisation that keeps its course: methods against client drift, right by test.

`import fedkeel` costs nothing: a name is imported, and PyTorch with it, when it is first used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from fedkeel.common.version import __version__ as __version__

if TYPE_CHECKING:  # what type checkers and editors see; the same names as in `__all__`
    from fedkeel import data, models, probes, trackers
    from fedkeel.attacks import Attack, Backdoor, Collusion, LabelFlip, RandomNoise, Scaling, SignFlip
    from fedkeel.common.errors import (
        ClientFailed,
        ConfigError,
        DataError,
        Diverged,
        FedkeelError,
        Stopped,
        StorageError,
        TooFewClients,
    )
    from fedkeel.core import metrics
    from fedkeel.core.algorithm import (
        Algorithm,
        Cohort,
        Facts,
        Momentum,
        Objective,
        Plan,
        Sharp,
        Walk,
        method,
    )
    from fedkeel.core.metrics import Metric, accuracy, mean_over_samples
    from fedkeel.core.schedules import DecayPerEpoch, DecayPerRound, Drop, InverseRoot, InverseTime, Schedule
    from fedkeel.core.task import Task
    from fedkeel.core.work import AdamW, Work
    from fedkeel.data import (
        IID,
        Dataset,
        DirichletByClass,
        DirichletByClient,
        Federation,
        Natural,
        Pathological,
    )
    from fedkeel.directories import study
    from fedkeel.directories.study import tune
    from fedkeel.experiments.experiment import Experiment
    from fedkeel.experiments.loading import load
    from fedkeel.methods import (
        METHODS,
        MOON,
        SCAFFOLD,
        Adaptive,
        Decayed,
        FedACG,
        FedAdagrad,
        FedAdam,
        FedANAG,
        FedAvg,
        FedAvgM,
        FedCM,
        FedDyn,
        FedGamma,
        FedInit,
        FedLNAG,
        FedNova,
        FedNTD,
        FedProx,
        FedSAGD,
        FedSAM,
        FedSMOO,
        FedSpeed,
        FedYogi,
        MimeLite,
        MoFedSAM,
        private,
        relaxed,
        sharp,
        stages,
    )
    from fedkeel.probes import Probe, SwitchingRule
    from fedkeel.reducers import (
        GeometricMedian,
        Krum,
        Mean,
        Median,
        MultiKrum,
        NormClip,
        Reducer,
        StackReducer,
        TrimmedMean,
    )
    from fedkeel.running.callbacks import Callback, EarlyStop, KeepBest
    from fedkeel.running.result import Result
    from fedkeel.running.train import train
    from fedkeel.settings.arguments import Aggregation, Bernoulli, Failures
    from fedkeel.settings.faults import Faults
    from fedkeel.settings.options import Evaluation, Execution
    from fedkeel.studies.base import StudyResult
    from fedkeel.studies.grid import RunGrid, compare, sweep
    from fedkeel.tensors.vector import Vector, zeros_like

__all__ = [
    "IID",
    "METHODS",
    "MOON",
    "SCAFFOLD",
    "AdamW",
    "Adaptive",
    "Aggregation",
    "Algorithm",
    "Attack",
    "Backdoor",
    "Bernoulli",
    "Callback",
    "ClientFailed",
    "Cohort",
    "Collusion",
    "ConfigError",
    "DataError",
    "Dataset",
    "DecayPerEpoch",
    "DecayPerRound",
    "Decayed",
    "DirichletByClass",
    "DirichletByClient",
    "Diverged",
    "Drop",
    "EarlyStop",
    "Evaluation",
    "Execution",
    "Experiment",
    "Facts",
    "Failures",
    "Faults",
    "FedACG",
    "FedANAG",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDyn",
    "FedGamma",
    "FedInit",
    "FedLNAG",
    "FedNTD",
    "FedNova",
    "FedProx",
    "FedSAGD",
    "FedSAM",
    "FedSMOO",
    "FedSpeed",
    "FedYogi",
    "Federation",
    "FedkeelError",
    "GeometricMedian",
    "InverseRoot",
    "InverseTime",
    "KeepBest",
    "Krum",
    "LabelFlip",
    "Mean",
    "Median",
    "Metric",
    "MimeLite",
    "MoFedSAM",
    "Momentum",
    "MultiKrum",
    "Natural",
    "NormClip",
    "Objective",
    "Pathological",
    "Plan",
    "Probe",
    "RandomNoise",
    "Reducer",
    "Result",
    "RunGrid",
    "Scaling",
    "Schedule",
    "Sharp",
    "SignFlip",
    "StackReducer",
    "Stopped",
    "StorageError",
    "StudyResult",
    "SwitchingRule",
    "Task",
    "TooFewClients",
    "TrimmedMean",
    "Vector",
    "Walk",
    "Work",
    "accuracy",
    "compare",
    "data",
    "load",
    "mean_over_samples",
    "method",
    "metrics",
    "models",
    "private",
    "probes",
    "relaxed",
    "sharp",
    "stages",
    "study",
    "sweep",
    "trackers",
    "train",
    "tune",
    "zeros_like",
]

_SUBPACKAGES = {
    "study": "directories.study",
    "data": "data",
    "metrics": "core.metrics",
    "models": "models",
    "probes": "probes",
    "trackers": "trackers",
}
_MODULES = (
    "common.errors",
    "settings.faults",
    "settings.options",
    "core.schedules",
    "core.work",
    "tensors.vector",
    "core.algorithm",
    "reducers",
    "attacks",
    "settings.arguments",
    "core.task",
    "methods",
    *(path for path in _SUBPACKAGES.values() if path != "directories.study"),
    "running.callbacks",
    "running.result",
    "running.train",
)
_ABOVE = {
    "RunGrid": "studies.grid",
    "compare": "studies.grid",
    "sweep": "studies.grid",
    "Experiment": "experiments.experiment",
    "StudyResult": "studies.base",
    "load": "experiments.loading",
    "tune": "directories.study",
}  # `data` has a load too

if not TYPE_CHECKING:  # or checkers would take any name for one of ours

    def __getattr__(name):
        """Import a public name from the first of the modules that has it."""
        if name in _SUBPACKAGES:
            return _import_module(f"fedkeel.{_SUBPACKAGES[name]}")
        if name in _ABOVE:
            found = vars(_import_module(f"fedkeel.{_ABOVE[name]}"))
            return globals().setdefault(name, found[name])
        if name in __all__:
            for module in _MODULES:
                found = vars(_import_module(f"fedkeel.{module}"))
                if name in found:
                    return globals().setdefault(name, found[name])
        raise AttributeError(f"module 'fedkeel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
