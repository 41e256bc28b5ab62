"""Options of methods that are other algorithms: each is tested as a method of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fedkeel as fk


def _named(method: Any) -> Callable[[], Any]:
    """Return what makes a method, with a name as the classes have one."""

    def make() -> Any:
        return method

    name = type(method).__name__
    given = {key: value for key, value in vars(method).items() if value != getattr(type(method), key, value)}
    make.__name__ = f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
    return make


VARIANTS = [
    *map(
        _named,
        (
            fk.SCAFFOLD(by_size=True),
            fk.FedDyn(1.0, by_size=True),
            fk.FedDyn(1.0, last_models=True),
            fk.FedSpeed(1.0, rho=0.01, correction="all"),
            fk.FedAdam(0.02, v0=0.0, bias_correction=True),
            fk.FedLNAG(damped=True),
            fk.FedNova(mu=0.3),
        ),
    )
]
# Local work with all that shapes a walk: momentum, rates within a round, a clip of the whole direction.
SHAPED_WORK = fk.Work(
    epochs=2,
    batch_size=4,
    lr=0.05,
    momentum=0.6,
    nesterov=True,
    schedule=fk.DecayPerEpoch(0.9, 2),
    clip=0.5,
    clip_on="corrected",
)
