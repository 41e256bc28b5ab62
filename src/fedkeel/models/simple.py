"""Small models: logistic regression, the multi-layer perceptron, the papers' CNN, LeNet-5."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedkeel.common.errors import ConfigError
from fedkeel.models.network import Network


def check_sizes(model: str, **sizes: object) -> None:
    """Refuse sizes of layers that are no positive whole numbers."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError(f"{model}: {name} = {size!r}: give a whole number of at least 1")


def logistic(inputs: int = 784, classes: int = 10) -> Network:
    """Multinomial logistic regression (FedSAGD on EMNIST-L): 7,850 parameters on 28×28 pictures."""
    check_sizes("logistic", inputs=inputs, classes=classes)
    return Network(penultimate="flatten", flatten=nn.Flatten(), head=nn.Linear(inputs, classes))


def mlp(inputs: int = 64, hidden: Sequence[int] = (64,), classes: int = 10) -> Network:
    """Fully connected layers with ReLU; the demo's model for digits."""
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        raise ConfigError(f"mlp: hidden = {hidden!r}: give the widths of the layers, as in (64,)")
    check_sizes("mlp", inputs=inputs, classes=classes, **{f"hidden[{i}]": n for i, n in enumerate(hidden)})
    widths = (inputs, *hidden)
    body = OrderedDict[str, nn.Module]()
    for i, (fan_in, fan_out) in enumerate(pairwise(widths), start=1):
        body[f"fc{i}"], body[f"relu{i}"] = nn.Linear(fan_in, fan_out), nn.ReLU()
    last = f"relu{len(hidden)}" if hidden else "flatten"
    return Network(penultimate=last, flatten=nn.Flatten(), **body, head=nn.Linear(widths[-1], classes))


def cnn(classes: int = 10, channels: int = 3, size: int = 32) -> Network:
    """The CNN of FedAvg, FedDyn and FedSAGD (Table 5): 797,962 parameters for CIFAR-10.

    Two 5×5 convolutions of 64 filters without padding, each followed by ReLU and 2×2 max-pooling,
    then 384 and 192 units: 32 → 28 → 14 → 10 → 5 pixels, 64·5·5 = 1,600 features.
    """
    return _convolutional("cnn", classes, channels, size, widths=(64, 64, 384, 192))


def lenet(classes: int = 10, channels: int = 3, size: int = 32) -> Network:
    """LeNet-5 as it is trained today, with ReLU and max-pooling: 62,006 parameters for CIFAR-10.

    The shape of `cnn` with 6 and 16 filters, 120 and 84 units: some ten times as fast.
    """
    return _convolutional("lenet", classes, channels, size, widths=(6, 16, 120, 84))


def _convolutional(
    name: str, classes: int, channels: int, size: int, *, widths: tuple[int, int, int, int]
) -> Network:
    """Return two 5×5 convolutions, each with ReLU and 2×2 max-pooling, and two fully connected layers."""
    check_sizes(name, classes=classes, channels=channels, size=size)
    first, second, third, fourth = widths
    side = ((size - 4) // 2 - 4) // 2
    if side < 1:
        raise ConfigError(f"{name}: pictures of {size}×{size} pixels are too small; it needs 16×16 or more")
    return Network(
        penultimate="relu4",
        conv1=nn.Conv2d(channels, first, 5),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(first, second, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc1=nn.Linear(second * side * side, third),
        relu3=nn.ReLU(),
        fc2=nn.Linear(third, fourth),
        relu4=nn.ReLU(),
        head=nn.Linear(fourth, classes),
    )
