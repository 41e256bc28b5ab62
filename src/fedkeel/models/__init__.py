"""The papers' models, as functions that return a fresh `nn.Module`.

Each has an attribute `penultimate`: the name of the submodule whose output is the feature vector.
"""

from fedkeel.models.building import build, names
from fedkeel.models.recurrent import char_lstm
from fedkeel.models.residual import resnet18, resnet18_gn, resnet20, resnet34
from fedkeel.models.simple import cnn, lenet, logistic, mlp
from fedkeel.models.vgg import vgg11

__all__ = [
    "build",
    "char_lstm",
    "cnn",
    "lenet",
    "logistic",
    "mlp",
    "names",
    "resnet18",
    "resnet18_gn",
    "resnet20",
    "resnet34",
    "vgg11",
]
