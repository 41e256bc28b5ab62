"""Losses and metrics are those of all samples at once, in every engine: a table against direct formulas."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from problems import session_of
from scipy.stats import spearmanr
from selecting import one_in
from sklearn import metrics as sk
from torch import Tensor, nn
from torch.nn import functional

import fedkeel as fk
from fedkeel.engines.jobs import engine as job_engine

SAMPLES = 2600  # three batches, the last one short
CLASSES = 5
STEPS = 6  # of a sequence, some of them padding
PADDING = 0
WEIGHT = torch.tensor([0.05, 0.3, 1.0, 2.0, 4.0], dtype=torch.float64)
ENGINES = ("serial", "stacked-uncompiled", "processes")


class Kind(NamedTuple):
    """A model and samples, sorted by class or by target, so that every batch is unlike the whole."""

    model: Callable[[], nn.Module]
    x: Tensor
    y: Tensor


def _kinds() -> dict[str, Kind]:
    draw = np.random.default_rng(5)
    labels = np.sort(draw.choice(CLASSES, SAMPLES, p=[0.4, 0.3, 0.15, 0.1, 0.05]))
    x = torch.from_numpy(draw.normal(size=(SAMPLES, 4)) + 0.7 * labels[:, None] * [1, -1, 0.5, 0])
    target = np.sort(draw.normal(size=(SAMPLES, 1)), axis=0)
    features = torch.from_numpy(draw.normal(size=(SAMPLES, 4)) + target)
    tokens = draw.integers(1, CLASSES, size=(SAMPLES, STEPS))
    tokens[np.arange(STEPS)[None] >= np.sort(draw.integers(1, STEPS + 1, SAMPLES))[:, None]] = PADDING
    soft = torch.softmax(torch.from_numpy(draw.normal(size=(SAMPLES, CLASSES))) + x[:, :1], 1)
    y, binary = torch.from_numpy(labels), torch.from_numpy(labels >= 1).double()[:, None]

    def linear(outputs: int, *more: nn.Module) -> Callable[[], nn.Module]:
        return lambda: nn.Sequential(nn.Linear(4, outputs), *more)

    return {
        "classes": Kind(linear(CLASSES), x, y),
        "log-probabilities": Kind(linear(CLASSES, nn.LogSoftmax(1)), x, y),
        "soft": Kind(linear(CLASSES, nn.LogSoftmax(1)), x, soft),
        "binary": Kind(linear(1), x, binary),
        "real": Kind(linear(1), features, torch.from_numpy(target)),
        "counts": Kind(linear(1), features, torch.from_numpy(np.round(np.exp(target)))),
        "tokens": Kind(
            linear(CLASSES * STEPS, nn.Unflatten(1, (CLASSES, STEPS))), x, torch.from_numpy(tokens)
        ),
    }


KINDS = _kinds()


class Counted:
    """The protocol of torchmetrics: the share of right classes among those of each class, their mean."""

    def __init__(self) -> None:
        self.right, self.seen = torch.zeros(2, CLASSES, dtype=torch.float64)

    def update(self, output: Tensor, target: Tensor) -> None:
        for right, label in zip(output.argmax(1) == target, target, strict=True):
            self.right[label] += right
            self.seen[label] += 1

    def compute(self) -> Tensor:
        return (self.right / self.seen).mean()

    def reset(self) -> None:
        self.right, self.seen = torch.zeros(2, CLASSES, dtype=torch.float64)


def macro_f1(output: Tensor, target: Tensor) -> float:
    """Written without scikit-learn, which checks it."""
    found, scores = output.argmax(1), []
    for label in range(int(target.max()) + 1):
        right = float(((found == label) & (target == label)).sum())
        scores.append(2 * right / max(1.0, float((found == label).sum() + (target == label).sum())))
    return sum(scores) / len(scores)


def auroc(output: Tensor, target: Tensor) -> Tensor:
    """The share of pairs in the right order, by ranks; outputs are distinct."""
    ranks = output.flatten().argsort().argsort().double() + 1
    positive = target.flatten() > 0.5
    count = positive.sum()
    return (ranks[positive].sum() - count * (count + 1) / 2) / (count * (~positive).sum())


def spearman(output: Tensor, target: Tensor) -> Tensor:
    ranks = torch.stack([part.flatten().argsort().argsort().double() for part in (output, target)])
    return torch.corrcoef(ranks)[0, 1]


def token_accuracy(output: Tensor, target: Tensor) -> Tensor:
    kept = target != PADDING
    return (output.argmax(1) == target)[kept].double().mean()


def top_2(output: Tensor, target: Tensor) -> Tensor:
    return (output.topk(2, 1).indices == target[:, None]).any(1).double().mean()


@fk.mean_over_samples
def top_3(output: Tensor, target: Tensor) -> Tensor:
    return (output.topk(3, 1).indices == target[:, None]).any(1).double().mean()


def perplexity(output: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(output, target).exp()


def calibration(output: Tensor, target: Tensor) -> Tensor:
    """The expected calibration error in ten bins."""
    sure, found = output.softmax(1).max(1)
    bins = (sure * 10).long().clamp(max=9)
    right = (found == target).double()
    gaps = [(bins == b).double().mean() * (right - sure)[bins == b].mean().abs() for b in bins.unique()]
    return torch.stack(gaps).sum()


def argmax(output: Tensor) -> np.ndarray:
    return output.argmax(1).numpy()


def nats(output: Tensor, target: Tensor) -> Tensor:
    """The negative log-likelihood of each sample, written out."""
    return output.logsumexp(1) - output.gather(1, target[:, None])[:, 0]


def logistic(output: Tensor, target: Tensor) -> Tensor:
    return torch.log1p(torch.exp(-output * (2 * target - 1)))


def hinges(output: Tensor, target: Tensor) -> Tensor:
    gaps = (1 - output.gather(1, target[:, None]) + output).clamp(min=0)
    return (gaps.sum(1) - 1) / output.shape[1]


def smoothed(output: Tensor, target: Tensor) -> Tensor:
    everywhere = (output.logsumexp(1)[:, None] - output).mean(1)
    return (0.9 * nats(output, target) + 0.1 * everywhere).mean()


def huber(output: Tensor, target: Tensor) -> Tensor:
    gap = (output - target).abs()
    return torch.where(gap < 0.5, gap.square() / 2, 0.5 * (gap - 0.25)).mean()


Direct = Callable[[Tensor, Tensor], Any]

# metric, kind of samples, and the same in another way over all samples
METRICS: dict[str, tuple[Any, str, Direct]] = {
    "accuracy": (fk.accuracy, "classes", lambda o, y: sk.accuracy_score(y, argmax(o))),
    "macro-F1": (macro_f1, "classes", lambda o, y: sk.f1_score(y, argmax(o), average="macro")),
    "balanced accuracy, accumulated": (
        Counted(),
        "classes",
        lambda o, y: sk.balanced_accuracy_score(y, argmax(o)),
    ),
    "top-2": (top_2, "classes", lambda o, y: sk.top_k_accuracy_score(y, o, k=2)),
    "top-3, marked": (top_3, "classes", lambda o, y: sk.top_k_accuracy_score(y, o, k=3)),
    "perplexity": (perplexity, "classes", lambda o, y: nats(o, y).mean().exp()),
    "calibration": (calibration, "classes", calibration),
    "Cohen's kappa": (
        lambda o, y: sk.cohen_kappa_score(y, o.argmax(1)),
        "classes",
        lambda o, y: sk.cohen_kappa_score(y.numpy(), argmax(o)),
    ),
    "Matthews": (
        lambda o, y: sk.matthews_corrcoef(y, o.argmax(1)),
        "classes",
        lambda o, y: sk.matthews_corrcoef(y.numpy(), argmax(o)),
    ),
    "AUROC": (auroc, "binary", lambda o, y: sk.roc_auc_score(y.numpy(), o.numpy())),
    "binary accuracy": (
        fk.metrics.binary_accuracy,
        "binary",
        lambda o, y: sk.accuracy_score(y.numpy(), o.numpy() > 0),
    ),
    "average precision": (
        lambda o, y: sk.average_precision_score(y, o),
        "binary",
        lambda o, y: sk.average_precision_score(y.numpy(), o.numpy()),
    ),
    "mse": (fk.metrics.mse, "real", lambda o, y: sk.mean_squared_error(y, o)),
    "MAE": (fk.metrics.mae, "real", lambda o, y: sk.mean_absolute_error(y, o)),
    "R²": (fk.metrics.r2, "real", lambda o, y: sk.r2_score(y, o)),
    "Spearman": (spearman, "real", lambda o, y: spearmanr(o.flatten(), y.flatten()).statistic),
    "root mean square": (
        lambda o, y: functional.mse_loss(o, y).sqrt(),
        "real",
        lambda o, y: sk.root_mean_squared_error(y, o),
    ),
    "median error": (
        lambda o, y: (o - y).abs().quantile(0.5),
        "real",
        lambda o, y: sk.median_absolute_error(y, o),
    ),
    "accuracy of tokens": (fk.accuracy, "tokens", lambda o, y: np.mean(argmax(o) == y.numpy())),
    "accuracy of tokens without padding": (
        token_accuracy,
        "tokens",
        lambda o, y: sk.accuracy_score(y[y != PADDING], o.argmax(1)[y != PADDING]),
    ),
}

LOSSES: dict[str, tuple[Any, str, Direct]] = {
    "cross-entropy": (functional.cross_entropy, "classes", lambda o, y: sk.log_loss(y, o.softmax(1).numpy())),
    "of a module": (nn.CrossEntropyLoss(), "classes", lambda o, y: nats(o, y).mean()),
    "weighted cross-entropy": (
        nn.CrossEntropyLoss(weight=WEIGHT),
        "classes",
        lambda o, y: (nats(o, y) * WEIGHT[y]).sum() / WEIGHT[y].sum(),
    ),
    "weighted by a function": (
        lambda o, y: functional.cross_entropy(o, y, weight=WEIGHT.to(o)),
        "classes",
        lambda o, y: (nats(o, y) * WEIGHT[y]).sum() / WEIGHT[y].sum(),
    ),
    "sum of cross-entropies": (
        partial(functional.cross_entropy, reduction="sum"),
        "classes",
        lambda o, y: nats(o, y).sum(),
    ),
    "label smoothing": (partial(functional.cross_entropy, label_smoothing=0.1), "classes", smoothed),
    "multi-margin": (functional.multi_margin_loss, "classes", lambda o, y: hinges(o, y).mean()),
    "negative log-likelihood": (
        functional.nll_loss,
        "log-probabilities",
        lambda o, y: -o.gather(1, y[:, None]).mean(),
    ),
    "class probabilities": (functional.cross_entropy, "soft", lambda o, y: -(y * o).sum(1).mean()),
    "KL, mean over samples": (
        partial(functional.kl_div, reduction="batchmean"),
        "soft",
        lambda o, y: (y * (y.log() - o)).sum(1).mean(),
    ),
    "KL, sum": (
        nn.KLDivLoss(reduction="sum"),
        "soft",
        lambda o, y: (y * (y.log() - o)).sum(),
    ),
    "binary with logits": (
        functional.binary_cross_entropy_with_logits,
        "binary",
        lambda o, y: logistic(o, y).mean(),
    ),
    "binary with weights": (
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])),
        "binary",
        lambda o, y: (logistic(o, y) * (1 + 2 * y)).mean(),
    ),
    "mse": (functional.mse_loss, "real", lambda o, y: sk.mean_squared_error(y, o)),
    "L1": (nn.L1Loss(), "real", lambda o, y: sk.mean_absolute_error(y, o)),
    "Huber": (partial(functional.huber_loss, delta=0.5), "real", huber),
    "smooth L1": (
        functional.smooth_l1_loss,
        "real",
        lambda o, y: functional.smooth_l1_loss(o, y, reduction="none").mean(),
    ),
    "1 − correlation": (
        lambda o, y: 1 - torch.corrcoef(torch.stack([o.flatten(), y.flatten()]))[0, 1],
        "real",
        lambda o, y: 1 - np.corrcoef(o.flatten(), y.flatten())[0, 1],
    ),
    "Poisson": (functional.poisson_nll_loss, "counts", lambda o, y: (o.exp() - y * o).mean()),
    "tokens without padding": (
        partial(functional.cross_entropy, ignore_index=PADDING),
        "tokens",
        lambda o, y: functional.cross_entropy(o.transpose(1, 2)[y != PADDING], y[y != PADDING]),
    ),
}


def evaluated(task: fk.Task, kind: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return loss and metrics of a task's model on all samples of a kind."""
    monkeypatch.setattr(job_engine, "WORTH_SENDING", 0.0)
    x, y = KINDS[kind].x, KINDS[kind].y
    spread = torch.arange(0, SAMPLES, 26)
    clients = [(x[part], y[part]) for part in spread.split(20)]
    federation = fk.Federation.from_arrays(clients, (x, y))
    options = {"rounds": 1, "cohort": 2, "work": fk.Work(steps=1, batch_size=5), "threads": 1}
    workers = {"workers": 2} if engine == "processes" else {}
    with closing(session_of(task, federation, fk.FedAvg(), engine=engine, **options, **workers)) as session:
        oracle = session.context.oracle
        return session.context.engine.evaluate(
            [oracle.point.clone()], oracle.buffers.clone(), federation.test
        )[0]


def model(kind: str) -> nn.Module:
    torch.manual_seed(3)
    return KINDS[kind].model().double()


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_metrics_are_those_of_all_samples(kind, engine, monkeypatch):
    chosen = {name: (one, direct) for name, (one, own, direct) in METRICS.items() if own == kind}
    loss = {
        "real": functional.mse_loss,
        "counts": functional.poisson_nll_loss,
        "binary": functional.binary_cross_entropy_with_logits,
    }.get(kind, functional.cross_entropy)
    task = fk.Task(model(kind), loss, {name: one for name, (one, _) in chosen.items()})
    found = evaluated(task, kind, engine, monkeypatch)
    with torch.no_grad():
        output = task.model(KINDS[kind].x)
    for name, (_, direct) in chosen.items():
        assert found[name] == pytest.approx(float(direct(output, KINDS[kind].y)), rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", one_in(4, LOSSES))
def test_a_loss_is_that_of_all_samples(name, engine, monkeypatch):
    loss, kind, direct = LOSSES[name]
    task = fk.Task(model(kind), loss, {})
    if (name, engine) == ("multi-margin", "stacked-uncompiled"):
        with pytest.raises(fk.ConfigError, match=r"cannot be mapped over clients: .*multi_margin_loss"):
            evaluated(task, kind, engine, monkeypatch)
        return
    found = evaluated(task, kind, engine, monkeypatch)
    with torch.no_grad():
        output = task.model(KINDS[kind].x)
    assert found == {"loss": pytest.approx(float(direct(output, KINDS[kind].y)), rel=1e-6)}


def test_the_table_has_at_least_forty_entries():
    assert len(METRICS) + len(LOSSES) >= 40
    assert {kind for _, kind, _ in (*METRICS.values(), *LOSSES.values())} == set(KINDS)
