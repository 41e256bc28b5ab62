"""A method with a mistyped function would train as what it inherits from: it is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from problems import tiny_net
from torch import Tensor

import fedkeel as fk

WORK = fk.Work(steps=1, batch_size=4, lr=0.01)


def make(**names: Any) -> type:
    return type("Mine", (fk.Algorithm,), names)


class Servers(NamedTuple):
    x: Tensor


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        ({"plam": lambda self, down, client: None}, "plan"),
        ({"agregate": lambda self, server, mean, cohort: server}, "aggregate"),
        ({"initialise": lambda self, x: None}, "init"),
        ({"client_step": lambda self, down, client, facts: None}, "plan"),
        ({"server_step": lambda self, server, mean, cohort: server}, "aggregate"),
        ({"Servers": Servers}, "Server"),
    ],
)
def test_a_mistyped_part_of_a_method_is_refused(names: dict[str, Any], meant: str) -> None:
    with pytest.raises(
        fk.ConfigError, match=rf"^Mine\.{next(iter(names))} is none .*did you mean '{meant}'\?"
    ):
        make(**names)


def test_helpers_of_a_method_are_its_own_affair() -> None:
    @fk.method
    class Mine(fk.FedProx):
        rate: float = 0.5
        planned = 3

        @property
        def models_kept(self) -> int:
            return 1

        @staticmethod
        def from_paper() -> Mine:
            return Mine(rate=0.1)

        def plan_of(self, down: Any, client: Any, facts: fk.Facts) -> fk.Plan:
            return super().plan(down, client, facts)

        def plan(self, down: Any, client: Any, facts: fk.Facts) -> fk.Plan:
            return self.plan_of(down, client, facts)._replace(gain=self.rate)

        def scaled(self, factor: float) -> Mine:
            return Mine(rate=factor * self.rate)

        def _plam(self, down: Any, client: Any) -> None:
            return None

    problem = tiny_net([3, 8, 5])
    fk.train(problem.task, problem.federation, Mine().scaled(2.0), rounds=1, cohort=2, work=WORK)
