"""The character LSTM of LEAF, FedProx, FedDyn and FedSAGD."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedkeel.models.network import Network


class Characters(nn.Embedding):
    """An embedding that takes characters as stored, one byte each."""

    def forward(self, input: Tensor) -> Tensor:
        """Look up (n, length) characters: (n, length, embedding)."""
        return super().forward(input.long())


class LastState(nn.LSTM):
    """LSTM layers that give the last layer's state after the last character, (n, hidden).

    The recurrence is spelled out: on a CPU it is as fast as PyTorch's own kernel, which vmap can
    only run one client after the other, eight times slower.
    """

    def forward(self, input: Tensor) -> Tensor:  # type: ignore[override]  # one output, not nn.LSTM's pair
        """Read (n, length, inputs)."""
        states = input.unbind(1)
        for weight_in, weight_state, bias_in, bias_state in self.all_weights:
            driven = linear(torch.stack(states, 1), weight_in, bias_in + bias_state).unbind(1)
            states = _scan(driven, weight_state.t())
        return states[-1]


def _scan(driven: tuple[Tensor, ...], weight: Tensor) -> tuple[Tensor, ...]:
    """Run one layer over time, from its inputs' share of the gates; PyTorch's order i, f, g, o."""
    states: list[Tensor] = []
    state = cell = None
    for step in driven:
        i, f, g, o = (step if state is None else torch.addmm(step, state, weight)).chunk(4, dim=-1)
        fresh = torch.sigmoid(i) * torch.tanh(g)
        cell = fresh if cell is None else torch.sigmoid(f) * cell + fresh
        state = torch.sigmoid(o) * torch.tanh(cell)
        states.append(state)
    return tuple(states)


def char_lstm(vocabulary: int = 80, *, embedding: int = 8, hidden: int = 100, layers: int = 2) -> Network:
    """Next character from the last 80 (FedSAGD Table 6): 133,520 parameters.

    Embedding (80, 8), two LSTM layers of 100 units with PyTorch's two bias vectors each, and a linear
    layer (100, 80): 640 + 44,000 + 80,800 + 8,080.
    """
    return Network(
        penultimate="lstm",
        embedding=Characters(vocabulary, embedding),
        lstm=LastState(embedding, hidden, layers, batch_first=True),
        head=nn.Linear(hidden, vocabulary),
    )
