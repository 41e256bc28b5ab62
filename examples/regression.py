"""Real numbers as targets, from pandas tables: `python examples/regression.py`.

Ten clinics with patients of different ages predict how a disease progresses, without sharing a record.
"""

from sklearn.datasets import load_diabetes
from torch import nn

import fedkeel as fk


def clinics(count: int = 10) -> fk.Federation:
    """One client per band of ages; every fifth patient of each is in the common test set."""
    table = load_diabetes(as_frame=True).frame.sort_values("age", ignore_index=True)
    table["target"] = (table["target"] - table["target"].mean()) / table["target"].std()
    held_out = table.index % 5 == 0
    test, train = table[held_out], table[~held_out].reset_index(drop=True)
    bands = train.index * count // len(train)
    parts = [train[bands == band] for band in range(count)]
    inputs = [name for name in table.columns if name != "target"]
    return fk.Federation.from_arrays(
        [(part[inputs] * 20, part[["target"]]) for part in parts], test=(test[inputs] * 20, test[["target"]])
    )


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))


def main(rounds: int = 60) -> dict[str, float]:
    """Train with two methods and print what they reach."""
    federation, task = clinics(), fk.Task.regression(net)
    work = fk.Work(epochs=2, batch_size=16, lr=0.02, last_batch="merge")
    found = {}
    for method in (fk.FedAvg(), fk.SCAFFOLD()):
        result = fk.train(task, federation, method, rounds=rounds, cohort=5, work=work, seed=0)
        row = result.history[-1]
        print(f"{method!r}: R² {row['r2']:.3f}, mean absolute error {row['mae']:.3f} of a standard deviation")
        found[type(method).__name__] = row["r2"]
    return found


if __name__ == "__main__":
    main()
