"""A metric, a probe and a reducer of one's own: `python examples/own_parts.py`.

A tenth of the clients have lost their labels. The probe shows how far clients' moves agree; a trimmed mean in
place of the mean keeps the broken ones from moving the model far; macro-F1 says what that is worth.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

import fedkeel as fk
from fedkeel.tensors.records import transform


def macro_f1(output: Tensor, target: Tensor) -> Tensor:
    """A function of one's own gets the outputs of all samples: no mean over batches is right for it."""
    found, scores = output.argmax(1), []
    for label in target.unique():
        right = ((found == label) & (target == label)).sum()
        scores.append(2 * right / ((found == label).sum() + (target == label).sum()))
    return torch.stack(scores).mean()


class MoveLength(NamedTuple):
    """What a client measures; the probe gets its mean over the cohort."""

    length: Tensor


@dataclass(frozen=True)
class Agreement(fk.Probe):
    """The length of the clients' mean move over their mean length: 1 where all move alike."""

    every: int = 1
    at_clients = True
    columns = (
        fk.probes.HistoryColumn("agreement", label="agreement of moves", better="more", panel="drift"),
    )

    def measure(self, view, notes, brief):
        return MoveLength(view.move.norm().reshape(1)), notes

    def report(self, state, seen):
        step = (seen.x - seen.x_before).double().norm()
        return {"agreement": float(step / seen.measures.length)}, state


@dataclass(frozen=True)
class TrimmedMean(fk.StackReducer):
    """The mean of each coordinate without its largest and smallest values."""

    share: float = 0.2

    def reduce(self, uploads, weights):
        def trimmed(stacked: Tensor) -> Tensor:
            cut = int(self.share * len(stacked))
            return stacked.sort(dim=0).values[cut : len(stacked) - cut].mean(dim=0)

        return transform(trimmed, uploads)


def federation() -> fk.Federation:
    """Digits of forty clients, of which four have random labels."""
    digits = fk.data.load("digits").split(fk.IID(), clients=40, seed=0)
    clients = [digits.samples(client) for client in range(40)]
    for client in range(0, 40, 10):
        x, y = clients[client]
        clients[client] = (
            30 * x,
            torch.randint(0, 10, y.shape, generator=torch.Generator().manual_seed(client)),
        )
    return fk.Federation.from_arrays(clients, test=tuple(digits.test), classes=10)


def main(rounds: int = 40) -> dict[str, float]:
    """Train with the mean and with the trimmed mean."""
    task = fk.Task(fk.models.mlp, metrics={"accuracy": fk.accuracy, "macro_f1": macro_f1})
    data, work, found = federation(), fk.Work(epochs=3, batch_size=10, lr=0.1), {}
    for name, reducer in (("mean", fk.Mean()), ("trimmed mean", TrimmedMean())):
        result = fk.train(
            task,
            data,
            fk.FedAvg(),
            rounds=rounds,
            cohort=10,
            work=work,
            aggregation=fk.Aggregation(reducer=reducer),
            probes=[Agreement()],
        )
        last = result.history[-10:]
        f1, agreement = (sum(row[key] for row in last) / len(last) for key in ("macro_f1", "agreement"))
        print(f"{name}: macro-F1 {f1:.3f}, agreement {agreement:.2f} (last {len(last)} rounds)")
        found[name] = f1
    return found


if __name__ == "__main__":
    main()
