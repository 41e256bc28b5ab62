"""The form all models share: named parts applied in order, one of them marked as penultimate."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn


class Network(nn.Sequential):
    """Named modules one after the other; the output of `penultimate` is the feature vector (n, features)."""

    def __init__(self, *, penultimate: str, **parts: nn.Module) -> None:
        super().__init__(OrderedDict(parts))
        self.penultimate = penultimate


class GlobalMean(nn.Module):
    """The mean of each channel over the picture: (n, c, h, w) to (n, c)."""

    def forward(self, x: Tensor) -> Tensor:
        """Average over height and width."""
        return x.mean((2, 3))


def he_initialise(network: Network) -> Network:
    """Draw convolution weights with He's variance 2 / fan-out, biases zero: deep ReLU nets need it."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network
