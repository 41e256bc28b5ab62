"""A method of one's own, on real data: `python examples/own_method.py`."""

from typing import NamedTuple

import fedkeel as fk


@fk.method
class FedNudge(fk.Algorithm):
    """Push every local step along the last round's mean direction, so that clients drift together."""

    beta: float = 0.3

    class Server(NamedTuple):
        x: fk.Vector
        m: fk.Vector

    class Up(NamedTuple):
        delta: fk.Vector
        direction: fk.Vector

    def init(self, x: fk.Vector) -> Server:
        return self.Server(x, fk.zeros_like(x))

    def plan(self, down: Server, client: fk.Algorithm.Client, facts: fk.Facts) -> fk.Plan:
        return fk.Plan(start=down.x, push=self.beta * down.m)

    def finish(
        self, walk: fk.Walk, down: Server, client: fk.Algorithm.Client, facts: fk.Facts
    ) -> tuple[Up, fk.Algorithm.Client]:
        return self.Up(walk.end - down.x, walk.direction), client

    def aggregate(self, server: Server, mean: Up, cohort: fk.Cohort) -> Server:
        return self.Server(server.x + mean.delta, mean.direction)


def main(rounds: int = 30) -> None:
    federation = fk.data.load("digits").split(fk.DirichletByClass(0.1), clients=50, seed=0)
    task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
    work = fk.Work(epochs=5, batch_size=20, lr=0.1)
    for method in (fk.FedAvg(), FedNudge(0.3), fk.relaxed(FedNudge(0.3), beta=0.1)):
        result = fk.train(task, federation, method, rounds=rounds, cohort=10, work=work, seed=0)
        print(f"{method!r}: accuracy {result.history[-1]['accuracy']:.3f}")


if __name__ == "__main__":
    main()
