"""Data that does not fit in memory: `python examples/lazy_data.py`.

Every client's samples lie in a file of their own, and are read when the client takes part. Here the files are
written first, to a temporary folder; yours are there already.
"""

import tempfile
from pathlib import Path

import numpy as np

import fedkeel as fk


def write_files(folder: Path, clients: int) -> list[int]:
    """Write one file per client, and return how many samples each has."""
    digits = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=clients, seed=0)
    for client in range(clients):
        x, y = digits.samples(client)
        np.savez(folder / f"client-{client}.npz", x=x.numpy(), y=y.numpy())
    np.savez(folder / "test.npz", x=digits.test[0].numpy(), y=digits.test[1].numpy())
    return digits.sizes.tolist()


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as file:
        return file["x"], file["y"]


def main(rounds: int = 20, clients: int = 100) -> dict[str, float]:
    """Train, and say how many files were read how often."""
    reads: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = write_files(folder, clients)

        def load(client: int) -> tuple[np.ndarray, np.ndarray]:
            reads.append(client)
            return read(folder / f"client-{client}.npz")

        data = fk.Federation.from_clients(
            clients,
            load,
            sizes=sizes,  # nothing is read to find out
            classes=10,
            test=read(folder / "test.npz"),
            cache=50_000,  # bytes: a few clients here; 1 GiB where it is not said
            fingerprint="digits, Dirichlet 0.3, seed 0",  # what a resumed run compares
        )
        work = fk.Work(epochs=2, batch_size=10, lr=0.1)
        result = fk.train(fk.Task(fk.models.mlp), data, fk.FedAvg(), rounds=rounds, cohort=5, work=work)
    accuracy = result.history[-1]["accuracy"]
    print(f"accuracy {accuracy:.1%} after {rounds} rounds of 5 clients")
    print(f"{len(set(reads))} of {clients} files were read, {len(reads)} times in all")
    return {"accuracy": accuracy, "files": len(set(reads))}


if __name__ == "__main__":
    main()
