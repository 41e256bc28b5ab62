"""The character LSTM of LEAF, FedProx, FedDyn and FedSAGD."""

from __future__ import annotations

from torch import Tensor, nn

from fedkeel.models.network import Network
from fedkeel.models.simple import check_sizes


class Characters(nn.Embedding):
    """An embedding that takes characters as stored, one byte each."""

    def forward(self, input: Tensor) -> Tensor:
        """Look up (n, length) characters: (n, length, embedding)."""
        return super().forward(input.long())


class Last(nn.Module):
    """The last layer's state after the last character: of what an `nn.LSTM` gives, (n, hidden)."""

    def forward(self, given: tuple[Tensor, tuple[Tensor, Tensor]]) -> Tensor:
        """Take it from the states of all characters."""
        return given[0][:, -1]


def char_lstm(vocabulary: int = 80, *, embedding: int = 8, hidden: int = 100, layers: int = 2) -> Network:
    """Next character from the last 80 (FedSAGD Table 6): 133,520 parameters.

    Embedding (80, 8), two LSTM layers of 100 units with PyTorch's two bias vectors each, and a linear
    layer (100, 80): 640 + 44,000 + 80,800 + 8,080.
    """
    check_sizes("char_lstm", vocabulary=vocabulary, embedding=embedding, hidden=hidden, layers=layers)
    return Network(
        penultimate="last",
        embedding=Characters(vocabulary, embedding),
        lstm=nn.LSTM(embedding, hidden, layers, batch_first=True),
        last=Last(),
        head=nn.Linear(hidden, vocabulary),
    )
