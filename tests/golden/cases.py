"""What the golden traces hold: each function returns one file's entries, made through the public interface.

Data and first weights are fractions written down here: only fedkeel's own draws and arithmetic decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import flat
import torch
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.tensors.streams import Stream

Entries = dict[str, Any]

ROUNDS = 20
SIZES = (7, 12, 5, 9, 16, 8, 11, 6, 10, 13, 4, 14)
COHORT = 4


def fractions(*shape: int, shift: int = 0) -> Tensor:
    """Return numbers in [-0.5, 0.5) that look mixed and are exact in every floating-point format."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(shift, shift + count) * 7919 + 104_729) % 1024
    return (numbers.double() / 1024 - 0.5).reshape(shape)


def labels(count: int, classes: int, shift: int = 0) -> Tensor:
    return (torch.arange(shift, shift + count) * 31 + (torch.arange(count) // 7)) % classes


def federation(*shape: int, classes: int = 3, **options: Any) -> fk.Federation:
    """Return twelve clients of unequal size; the first labels of each are more frequent with it."""
    clients, seen = [], 0
    for client, size in enumerate(SIZES):
        y = torch.where(torch.arange(size) % 3 > 0, client % classes, labels(size, classes, seen))
        x = 2 * fractions(size, *shape, shift=seen * 97) + 0.3 * y.reshape(-1, *[1] * len(shape))
        clients.append((x, y))
        seen += size
    test = (2 * fractions(30, *shape, shift=5000), labels(30, classes))
    return fk.Federation.from_arrays(clients, test, classes=classes, **options)


def with_fixed_weights(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(fractions(*parameter.shape, shift=911 * (number + 1)))
    return model.to(dtype)


def network(dtype: torch.dtype, *middle: nn.Module) -> nn.Module:
    return with_fixed_weights(nn.Sequential(nn.Linear(4, 6), *middle, nn.Tanh(), nn.Linear(6, 3)), dtype)


class SampleNumbers(nn.Module):
    """A model that notes which samples it is trained on; each sample is its own number."""

    seen: ClassVar[list[list[int]]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen.append([int(number) for number in x[:, 0]])
        return self.layer(x * 0)


def splits() -> Entries:
    """Whose samples are whose, under every splitter; the noise; the synthetic data."""
    y = labels(90, 5)
    groups = ((torch.arange(90) * 7) // 40).numpy()
    data = fk.Dataset.from_arrays(fractions(90, 2), y, groups=groups)
    found: Entries = {}
    for splitter in (
        fk.IID(),
        fk.DirichletByClass(0.1),
        fk.DirichletByClass(0.6),
        fk.DirichletByClient(0.3),
        fk.Pathological(2),
        fk.Natural(),
    ):
        for seed in (0, 1):
            clients = None if isinstance(splitter, fk.Natural) else 6
            made = data.split(splitter, clients=clients, seed=seed)
            found[f"{splitter!r} seed {seed}"] = [made.rows(client).tolist() for client in range(len(made))]
    pictures = federation(3, 2, 2)
    for noise in (fk.data.ChannelGains(), fk.data.ClassBrightness()):
        noisy = fk.data.add_noise(pictures, noise, seed=3)
        found[f"{noise!r} seed 3"] = noisy.x[::23].flatten().tolist()
    made_up = fk.data.load("synthetic")
    found["synthetic data"] = [len(made_up), *made_up.x.flatten()[:12].tolist(), float(made_up.x.sum())]
    return found


def streams() -> Entries:
    """Numbers of keyed streams."""
    branches = {
        "seed 0": Stream(0),
        "seed 3, client 2 of round 1": Stream(3).branch("client", 1, 2),
        "seed 3, its order": Stream(3).branch("client", 1, 2).branch("order"),
    }
    return {
        name: [stream.integer(), *stream.numpy().integers(0, 2**40, 4).tolist()]
        for name, stream in branches.items()
    }


def cohorts() -> Entries:
    """Which clients are drawn, in drawn order."""
    found: Entries = {}
    options: tuple[tuple[str, int | float, int], ...] = (
        ("fixed", 4, 0),
        ("fixed", 0.25, 1),
        ("bernoulli", 4, 0),
        ("bernoulli", 0.1, 2),
    )
    for sampling, cohort, seed in options:
        rows = train(
            fk.FedAvg(),
            fk.Task(network(torch.float32)),
            cohort=cohort,
            sampling=sampling,
            seed=seed,
            work=fk.Work(steps=1, lr=0.01),
        )
        found[f"{sampling}, cohort {cohort}, seed {seed}"] = [row["cohort"] for row in rows]
    return found


def minibatches() -> Entries:
    """Which samples each step of the walks takes, client after client and round after round."""
    found: Entries = {}
    clients, start = [], 0
    for size in SIZES:
        numbers = torch.arange(start, start + size).double().reshape(-1, 1)
        clients.append((numbers, torch.zeros(size).long()))
        start += size
    data = fk.Federation.from_arrays(clients, clients[0])
    for work, seed in (
        (fk.Work(epochs=2, batch_size=5, lr=0.1), 0),
        (fk.Work(steps=3, batch_size=4, lr=0.1), 1),
        (fk.Work(steps=2, lr=0.1), 0),
    ):
        SampleNumbers.seen.clear()
        task = fk.Task(SampleNumbers().double())
        train(fk.FedAvg(), task, data=data, rounds=2, work=work, seed=seed)
        found[f"epochs {work.epochs}, steps {work.steps}, batches of {work.batch_size}, seed {seed}"] = [
            *SampleNumbers.seen
        ]
    return found


def models() -> Entries:
    """The first weights of every model, drawn in float32: of each tensor its size, Σ|w| and two entries."""
    shapes = {"char_lstm": (20,), "logistic": (12,), "mlp": (12,)}
    found: Entries = {}
    for name in fk.models.names():
        model = fk.models.build(name, shape=shapes.get(name, (3, 32, 32)), classes=10, seed=2)
        tensors = [parameter.detach().double() for parameter in model.parameters()]
        found[name] = [
            [t.numel(), float(t.abs().sum()), float(t.flatten()[0]), float(t.flatten()[-1])] for t in tensors
        ]
    return found


def train(
    method: Any,
    task: fk.Task,
    *,
    data: fk.Federation | None = None,
    rounds: int = ROUNDS,
    cohort: int | float = COHORT,
    work: fk.Work | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train serially on one thread and return the history; the model's fingerprint is in its last row."""
    result = flat.train(
        task,
        federation(4) if data is None else data,
        method,
        rounds=rounds,
        cohort=cohort,
        work=work or fk.Work(epochs=2, batch_size=4, lr=0.1, lr_decay=0.98, weight_decay=1e-3),
        engine="serial",
        threads=1,
        **options,
    )
    weights = nn.utils.parameters_to_vector(result.model.parameters()).detach().double()
    result.history[-1]["model"] = float((weights.abs() * (1 + fractions(len(weights), shift=17))).sum())
    return result.history


def methods() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield every method, plug-in and schedule that has a trace."""
    for make in fk.METHODS:
        yield make.__name__, make
    variants = (
        fk.SCAFFOLD(option="I"),
        fk.FedDyn(regularize=False),
        fk.FedDyn(compensate=False),
        fk.FedLNAG(carry=False),
        fk.FedSpeed(blend=0.5),
        fk.relaxed(fk.SCAFFOLD(), 0.1),
        fk.relaxed(fk.FedDyn(0.1), 0.1, aggregate="walk", gamma="end"),
        fk.relaxed(fk.FedACG(), 0.1, first="none"),
        fk.FedInit(fk.Decayed(0.1, 0.9)),
        fk.FedInit(fk.Adaptive()),
        fk.sharp(fk.FedAvgM(0.5), 0.05),
        fk.stages((fk.FedDyn(0.1), 0.5), fk.FedAvg()),
        fk.stages((fk.FedDyn(0.1), 8), fk.FedDyn(0.1, compensate=False)),
        fk.stages((fk.FedDyn(0.1), fk.SwitchingRule(zeta=0.02)), fk.FedAvg()),
    )
    for variant in variants:
        yield repr(variant), lambda variant=variant: variant


def traces(dtype: torch.dtype) -> Entries:
    """Twenty rounds of every method: the mean training loss, the test loss and the norm after each."""
    found: Entries = {}
    for name, make in methods():
        found[name] = _columns(train(make(), fk.Task(network(dtype))))
    return found


def settings(dtype: torch.dtype) -> Entries:
    """Twenty rounds under other settings: weights, sampling, clipping, schedules, layers, probes."""
    task = fk.Task(network(dtype))
    steps = fk.Work(steps=3, batch_size=4, lr=0.1)
    pictures = federation(2, 4, 4, augment=fk.data.Augment(pad=1))
    picture_net = with_fixed_weights(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 3)), dtype
    )
    probes = [
        fk.probes.Divergence(),
        fk.probes.Drift(),
        fk.probes.Diversity(every=4),
        fk.probes.Cosine(),
        fk.probes.Losses(every=5),
    ]
    dropout = fk.Task(network(dtype, nn.Dropout(0.3)))
    histories = {
        "samples, bernoulli": train(fk.SCAFFOLD(), task, weighting="samples", sampling="bernoulli"),
        "seed 5": train(fk.FedDyn(), task, seed=5),
        "median": train(fk.FedAvg(), task, reducer=fk.Median(), cohort=7),
        "ten clients": train(fk.FedCM(), task, cohort=10, weighting="samples"),
        "clip the gradient": train(fk.FedAvg(), task, work=fk.Work(steps=3, lr=0.1, clip=0.2)),
        "clip the direction": train(
            fk.FedDyn(), task, work=fk.Work(steps=3, lr=0.1, clip=0.2, clip_on="direction")
        ),
        "dropped rate": train(fk.FedAvg(), task, work=fk.Work(steps=3, lr=0.1, schedule=fk.Drop(10))),
        "inverse root": train(fk.FedAvg(), task, work=fk.Work(steps=3, lr=0.5, schedule=fk.InverseRoot())),
        "dropout": train(fk.FedSAM(), dropout, work=steps),
        "batch norm, augmented pictures": train(fk.FedAvg(), fk.Task(picture_net), data=pictures, work=steps),
    }
    found = {name: _columns(history) for name, history in histories.items()}
    watched = train(
        fk.relaxed(fk.FedDyn(), 0.1), dropout, data=federation(4).hold_out(2), probes=probes, work=steps
    )
    for name in sorted(watched[-1]):
        if "/" in name or name in ("divergence", "drift", "diversity", "cosine"):
            found[f"probe {name}"] = [row[name] for row in watched]
    return found


def _columns(history: list[dict[str, Any]]) -> Entries:
    columns: Entries = {name: [row[name] for row in history] for name in ("train_loss", "loss", "norm")}
    return {
        **columns,
        "model": history[-1]["model"],
        "bytes": [history[-1]["bytes_down"], history[-1]["bytes_up"]],
    }


FILES: dict[str, Callable[[], Entries]] = {
    "streams": streams,
    "splits": splits,
    "cohorts": cohorts,
    "minibatches": minibatches,
    "models-float32": models,
    "methods-float64": lambda: traces(torch.float64),
    "methods-float32": lambda: traces(torch.float32),
    "settings-float64": lambda: settings(torch.float64),
    "settings-float32": lambda: settings(torch.float32),
}
