"""The one contract of every method: seven small pure functions over records.

State is passed in and out and never kept on `self`. The defaults are FedAvg with a server rate of one. A
method's arithmetic broadcasts over leading axes and reduces only the last, so the same code runs on one
client (d,) and on a stacked cohort (n, d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from inspect import isfunction, signature
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import frozen as method
from fedkeel.common.older import refuse_old_functions
from fedkeel.tensors.records import Nothing, Record
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import Vector

__all__ = [
    "Algorithm",
    "Cohort",
    "Facts",
    "Momentum",
    "Objective",
    "Plan",
    "Sharp",
    "Walk",
    "Wrapper",
    "method",
    "model_of",
]


class Sharp(NamedTuple):
    """A second gradient at a shifted point: e = ρ·q/(‖q‖+1e-7) with q = g − dual − tilt."""

    rho: float
    blend: float = 1.0
    tilt: Vector | None = None
    dual: Vector | None = None


class Momentum(NamedTuple):
    """Local momentum on the whole direction: b ← βb + dir; y ← y − lr·b, with `nesterov` y − lr·(dir + βb).

    `damped` puts (1−β)·dir in the place of dir: b is then a running mean of directions.
    """

    beta: float
    nesterov: bool = False
    buffer: Vector | None = None
    damped: bool = False


class Objective(NamedTuple):
    """An extra loss: `function(forward, y, batch, context)` from extra forward passes.

    `forward(vector, inputs)` gives outputs, `forward.features(vector, inputs)` penultimate features. All
    vectors the function needs come in through the record `context`, so that a stacked engine can map them.
    `features` says that the function asks for features.
    """

    function: Callable[[Any, Vector, tuple[Tensor, Tensor], Record], Tensor]
    context: Record = Nothing()
    features: bool = False


class Plan(NamedTuple):
    """What a client does in its local walk, as a value.

    step: dir = gain·clip(g) + push + pull·(y − anchor) + decay·y + weight_decay·y; y ← y − lr·dir. `Work` may
    clip more than g (`clip_on`), and adds its momentum where the plan has none.
    `anchor` is `start` where it is not given; `pull` is a number, or a tensor (…, 1) where it differs between
    clients; `full_gradient` asks for the gradient at the anchor over
    all of the client's samples.
    """

    start: Vector
    gain: float = 1.0
    push: Vector | None = None
    pull: float | Tensor = 0.0
    anchor: Vector | None = None
    decay: float = 0.0
    sharp: Sharp | float | None = None
    momentum: Momentum | None = None
    objective: Objective | None = None
    full_gradient: bool = False


class Walk(NamedTuple):
    """A finished local walk; `length` and the other scalars have shape (…, 1).

    `length` is the sum of the weights with which the directions of the steps entered the move: the sum of
    the rates, and with the momentum of `Work` also what the buffer repeats of each direction. So `direction`
    is an exact weighted mean of the directions. A momentum of the plan's own does not count there.
    `unit_move` is None where it is the length: see `reach`. `clipped` is the number of steps that `Work`'s
    `clip` shortened, None where nothing is clipped.
    """

    start: Vector
    end: Vector
    length: Tensor
    steps: Tensor
    buffer: Vector | None = None
    dual: Vector | None = None
    full_gradient: Vector | None = None
    unit_move: Tensor | None = None
    clipped: Tensor | None = None

    @property
    def direction(self) -> Vector:
        """Return the client's mean direction, seen from its own start."""
        return (self.start - self.end) / self.length

    @property
    def reach(self) -> Tensor:
        """Return how far a constant gradient of one would have carried this walk: FedNova's lr·‖a_i‖₁.

        That is the walk in one dimension with gain 1, its pull and its momentum. Without pull and momentum it
        is the length.
        """
        return self.length if self.unit_move is None else self.unit_move


class Facts(NamedTuple):
    """What a method may know of a client besides its state: shape (1,) each, (n, 1) for a stacked cohort.

    `samples` is the number of the client's training samples; `weight` is that number over the mean of all
    clients that can be drawn, so it is one where all have equally many.
    """

    samples: Tensor
    weight: Tensor

    @classmethod
    def of(cls, samples: int | Sequence[int], mean: float, like: Vector) -> Facts:
        """Return the facts of one client, or of several, with tensors of the vector's dtype and device."""
        counts = torch.tensor(samples, dtype=torch.float64)[..., None]
        return cls(counts.to(like), (counts / mean).to(like))


class Cohort(NamedTuple):
    """The clients whose answers are aggregated: round (from 0) of `rounds`, their number, their share.

    `share` is the weight of the accepted clients over the weight of the population; `stream` is the
    server's own randomness of this round; `planned` is how many clients a round has on average; `redrawn`
    says that nobody was drawn at first, and the cohort was drawn again.
    """

    round: int
    rounds: int
    size: int
    share: float
    stream: Stream
    planned: int | None = None
    redrawn: bool = False


class Algorithm:
    """A federated method. Override what differs from FedAvg; every function is pure.

    A method annotates what it overrides with its own records, and with `Algorithm.Server`,
    `Algorithm.Client` (nothing) or `Algorithm.Up` where it inherits them, so that a mistyped field fails the
    type check. `down` is its `Down`, or its `Server` where it does not override `broadcast`. Here they are
    `Record`, any record, because every method has its own.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_old_functions(cls)
        _check_names(cls)
        _check_arguments(cls)

    class Server(NamedTuple):
        """What the server keeps: the model."""

        x: Vector

    Client: TypeAlias = Nothing

    class Up(NamedTuple):
        """What a client sends: how far it moved, seen from the broadcast model."""

        delta: Vector

    def init(self, x: Vector) -> Record:
        """Return the server's state before the first round."""
        return self.Server(x)

    def init_client(self, x0: Vector) -> Record:
        """Return the state of a client that never took part; x0 is the model before the first round."""
        return self.Client()

    def broadcast(self, server: Record) -> Record:
        """Return what every client receives; its field `x` is the broadcast model."""
        return server

    def plan(self, down: Record, client: Record, facts: Facts) -> Plan:
        """Return the client's local walk; `facts` tells what is known of the client."""
        return Plan(start=down.x)

    def finish(self, walk: Walk, down: Record, client: Record, facts: Facts) -> tuple[Record, Record]:
        """Return what the client sends and what it keeps."""
        return self.Up(walk.end - down.x), client

    def aggregate(self, server: Record, mean: Record, cohort: Cohort) -> Record:
        """Return the server's next state from the cohort's weighted mean of the uploads."""
        return self.Server(server.x + mean.delta)

    def models(self, server: Record) -> dict[str, Vector]:
        """Return what is evaluated, the model that is trained first."""
        return {"x": server.x}


_FUNCTIONS = {
    name: list(signature(function).parameters)
    for name, function in vars(Algorithm).items()
    if isfunction(function) and not name.startswith("_")
}
_RECORDS = ("Server", "Client", "Down", "Up")


def _check_names(cls: type[Algorithm]) -> None:
    """Refuse a function or a record that is meant for the contract but has another name.

    Nobody would call it, and the method would silently be the one it inherits from. What the class itself
    uses, what a base declares, properties and private names are its own affair.
    """
    inherited = {name for base in cls.__mro__[1:] for name in vars(base)}
    used = {name for part in vars(cls).values() for name in _names_in(part)}
    for name, part in vars(cls).items():
        if name.startswith("_") or name in inherited or name in used:
            continue
        if isfunction(part):
            meant = _similar(name, _FUNCTIONS) or _alike(list(signature(part).parameters))
        else:
            meant = _similar(name, _RECORDS) if isinstance(part, type) and name not in _RECORDS else None
        if meant is not None:
            known = ", ".join(_FUNCTIONS if isfunction(part) else _RECORDS)
            raise ConfigError(
                f"{cls.__name__}.{name} is none of what a method is made of ({known}), and nothing uses it: "
                f"did you mean {meant!r}? The name of a helper begins with an underscore"
            )


def _check_arguments(cls: type[Algorithm]) -> None:
    """Refuse a function that cannot be called with the contract's arguments."""
    for name, part in vars(cls).items():
        if name not in _FUNCTIONS or not isfunction(part):
            continue
        try:
            signature(part).bind(*_FUNCTIONS[name])
        except TypeError:
            given, wanted = ", ".join(signature(part).parameters), ", ".join(_FUNCTIONS[name])
            raise ConfigError(
                f"{cls.__name__}.{name}({given}): fedkeel calls it with {name}({wanted}): give it these "
                "arguments"
            ) from None


def _similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name is a slip or an extension of."""
    lower = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    near += [one for one in lower if len(one) > 2 and name.lower().startswith(one)]
    return lower[near[0]] if near else None


def _alike(parameters: list[str]) -> str | None:
    """Return the function of the contract that takes the same arguments, where they are several."""
    return next((name for name, own in _FUNCTIONS.items() if len(own) > 2 and own == parameters), None)


def _names_in(part: object) -> Iterator[str]:
    """Yield the names that the code of a function, a property or a static method mentions."""
    part = getattr(part, "fget", None) or getattr(part, "__func__", part)
    codes = [part.__code__] if isfunction(part) else []
    for code in codes:
        yield from code.co_names
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def model_of(algorithm: Algorithm, server: Record) -> Vector:
    """Return the model that a method trains: the first that it lets evaluate."""
    return next(iter(algorithm.models(server).values()))


@method
class Wrapper(Algorithm):
    """A method that changes another one by wrapping it; all it does not change goes to `inner`."""

    inner: Algorithm

    def init(self, x: Vector) -> Record:
        """Delegate to the inner method."""
        return self.inner.init(x)

    def init_client(self, x0: Vector) -> Record:
        """Delegate to the inner method."""
        return self.inner.init_client(x0)

    def broadcast(self, server: Record) -> Record:
        """Delegate to the inner method."""
        return self.inner.broadcast(server)

    def plan(self, down: Record, client: Record, facts: Facts) -> Plan:
        """Delegate to the inner method."""
        return self.inner.plan(down, client, facts)

    def finish(self, walk: Walk, down: Record, client: Record, facts: Facts) -> tuple[Record, Record]:
        """Delegate to the inner method."""
        return self.inner.finish(walk, down, client, facts)

    def aggregate(self, server: Record, mean: Record, cohort: Cohort) -> Record:
        """Delegate to the inner method."""
        return self.inner.aggregate(server, mean, cohort)

    def models(self, server: Record) -> dict[str, Vector]:
        """Delegate to the inner method."""
        return self.inner.models(server)
