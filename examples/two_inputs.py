"""A model with two inputs and two outputs: `python examples/two_inputs.py`.

Each digit is seen by two cameras, one for the upper and one for the lower half. The network says which digit
it is and how much ink it has; a loss of one's own adds the two up.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import fedkeel as fk


class TwoCameras(nn.Module):
    """Its arguments are the keys of the inputs' dict; what it returns is what loss and metrics get."""

    def __init__(self) -> None:
        super().__init__()
        self.upper, self.lower = nn.Linear(32, 32), nn.Linear(32, 32)
        self.digit, self.ink = nn.Linear(64, 10), nn.Linear(64, 1)

    def forward(self, upper: Tensor, lower: Tensor) -> dict[str, Tensor]:
        seen = torch.cat([self.upper(upper), self.lower(lower)], 1).relu()
        return {"digit": self.digit(seen), "ink": self.ink(seen)}


def both(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
    return cross_entropy(output["digit"], target["digit"]) + mse_loss(output["ink"], target["ink"])


@fk.mean_over_samples
def accuracy(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
    return fk.accuracy(output["digit"], target["digit"])


@fk.mean_over_samples
def ink_error(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
    return (output["ink"] - target["ink"]).abs().mean()


def seen_by_two(x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    inputs = {"upper": x[:, :32], "lower": x[:, 32:]}
    return inputs, {"digit": y, "ink": x.mean(1, keepdim=True)}


def federation() -> fk.Federation:
    digits = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=20, seed=0)
    clients = [seen_by_two(*digits.samples(client)) for client in range(len(digits))]
    return fk.Federation.from_arrays(clients, test=seen_by_two(*digits.test))


def main(rounds: int = 30) -> dict[str, float]:
    """Train with two methods and print what they reach."""
    task = fk.Task(TwoCameras, loss=both, metrics={"accuracy": accuracy, "ink_error": ink_error})
    data, work, found = federation(), fk.Work(epochs=2, batch_size=20, lr=0.1), {}
    print(data)
    for method in (fk.FedAvg(), fk.FedDyn(alpha=0.1)):
        row = fk.train(task, data, method, rounds=rounds, cohort=5, work=work).history[-1]
        print(f"{method!r}: accuracy {row['accuracy']:.1%}, ink wrong by {row['ink_error']:.3f}")
        found[type(method).__name__] = row["accuracy"]
    return found


if __name__ == "__main__":
    main()
