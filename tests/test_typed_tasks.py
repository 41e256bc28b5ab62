"""Typed tasks: each has the right loss, mask and metrics, whatever the shapes, against scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from problems import session_of
from sklearn import metrics as sk
from torch import Tensor, nn
from torch.nn import functional

import fedkeel as fk
from fedkeel.engines.client import weighs_targets

CLASSES, TOKENS, SAMPLES = 4, 5, 2300
WORK = fk.Work(epochs=1, batch_size=8, lr=1e-300)


class TransformerLike(nn.Module):
    """Gives its logits in a dict, with the classes last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Linear(3, TOKENS * CLASSES)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.inner(x).unflatten(1, (TOKENS, CLASSES))}


def linear(outputs: int, *more: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, outputs), *more).double()


def draw(kind: str) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(7)
    x = torch.from_numpy(rng.normal(size=(SAMPLES, 3)))
    if kind == "binary":
        return x, torch.from_numpy(rng.random(SAMPLES) < 0.3)
    if kind == "multilabel":
        return x, torch.from_numpy((rng.random((SAMPLES, 3)) < 0.4).astype(int))
    if kind == "multiclass":
        return x, torch.from_numpy(rng.choice([-100, 0, 1, 2, 3], SAMPLES))
    y = rng.integers(0, CLASSES, (SAMPLES, TOKENS))
    y[np.arange(TOKENS) >= np.sort(rng.integers(0, TOKENS + 1, SAMPLES))[:, None]] = -100
    return x, torch.from_numpy(y)


def token_scores(o: Tensor, y: Tensor) -> dict[str, float]:
    real = (y != -100).numpy()
    found, truth = o.argmax(1).numpy()[real], y.numpy()[real]
    loss = functional.cross_entropy(o.movedim(1, -1)[y != -100], y[y != -100])
    return {
        "loss": float(loss),
        "accuracy": sk.accuracy_score(truth, found),
        "f1": sk.f1_score(truth, found, average="macro"),
        "perplexity": float(loss.exp()),
    }


def label_scores(o: Tensor, y: Tensor) -> dict[str, float]:
    found, truth = (o > 0).numpy(), y.numpy().astype(int)
    several = {} if y.ndim == 1 else {"average": "macro"}
    return {
        "loss": float(functional.binary_cross_entropy_with_logits(o, y.double())),
        "accuracy": float((found == truth).mean()),
        "auroc": sk.roc_auc_score(truth, o.numpy(), **several),
        "f1": sk.f1_score(truth, found, **several),
        "exact": float((found == truth).reshape(len(y), -1).all(1).mean()),
    }


class Case(NamedTuple):
    task: Callable[[], fk.Task]
    kind: str
    logits: Callable[[Any], Tensor]
    scores: Callable[[Tensor, Tensor], dict[str, float]]


CASES = {
    "binary (n, 1)": Case(lambda: fk.Task.binary(linear(1)), "binary", lambda o: o[:, 0], label_scores),
    "binary (n,)": Case(
        lambda: fk.Task.binary(linear(1, nn.Flatten(0))), "binary", lambda o: o, label_scores
    ),
    "multilabel": Case(lambda: fk.Task.multilabel(linear(3)), "multilabel", lambda o: o, label_scores),
    "multiclass": Case(lambda: fk.Task.multiclass(linear(CLASSES)), "multiclass", lambda o: o, token_scores),
    "tagging, classes first": Case(
        lambda: fk.Task.tagging(linear(CLASSES * TOKENS, nn.Unflatten(1, (CLASSES, TOKENS)))),
        "tagging",
        lambda o: o,
        token_scores,
    ),
    "tagging, classes last": Case(
        lambda: fk.Task.tagging(linear(CLASSES * TOKENS, nn.Unflatten(1, (TOKENS, CLASSES)))),
        "tagging",
        lambda o: o.movedim(-1, 1),
        token_scores,
    ),
    "language model in a dict": Case(
        lambda: fk.Task.language_model(TransformerLike().double()),
        "tagging",
        lambda o: o["logits"].movedim(-1, 1),
        token_scores,
    ),
}


@pytest.mark.parametrize("engine", ["serial", "processes"])
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_all_samples(name: str, engine: str) -> None:
    case = CASES[name]
    task, (x, y) = case.task(), draw(case.kind)
    clients = [(x[part], y[part]) for part in torch.arange(60).split([17, 23, 20])]
    federation = fk.Federation.from_arrays(clients, test=(x, y), classes=CLASSES)
    execution = fk.Execution(engine, threads=1, workers=2 if engine == "processes" else None)
    row = fk.train(task, federation, fk.FedAvg(), rounds=1, cohort=3, work=WORK, execution=execution).history[
        -1
    ]
    with torch.no_grad():
        wanted = case.scores(case.logits(task.module(x)), y)
    assert {key: row[key] for key in task.scores} == pytest.approx(
        {key: wanted[key] for key in task.scores}, rel=1e-9
    )


@pytest.mark.parametrize("name", CASES)
def test_typed_tasks_are_stacked_as_they_run_one_by_one(name: str) -> None:
    """Clients of unequal sizes, so that minibatches are filled up and padding must not count."""
    case = CASES[name]
    x, y = draw(case.kind)
    clients = [(x[part], y[part]) for part in torch.arange(SAMPLES - 60, SAMPLES).split([17, 23, 20])]
    federation = fk.Federation.from_arrays(clients, classes=CLASSES)
    ends = [
        fk.train(
            case.task(),
            federation,
            fk.SCAFFOLD(),
            rounds=3,
            cohort=3,
            work=fk.Work(epochs=2, batch_size=6, lr=0.3),
            evaluation=fk.Evaluation(on="clients"),
            execution=fk.Execution(engine, threads=1),
        ).history[-1]
        for engine in ("serial", "stacked-uncompiled")
    ]
    for column in ("loss", "accuracy", "train_loss"):
        assert ends[0][column] == pytest.approx(ends[1][column], rel=1e-8), column


def run(task: fk.Task, y: Any) -> None:
    y = torch.as_tensor(y)
    data = torch.zeros(len(y), 3, dtype=torch.float64), y
    federation = fk.Federation.from_arrays([data], test=data, classes=CLASSES)
    fk.train(task, federation, fk.FedAvg(), rounds=1, cohort=1, work=WORK)


SQUARE = (nn.Unflatten(1, (CLASSES, CLASSES)),)


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        (lambda: fk.Task.binary(linear(1)), [0, 2], r"client 0: y\[1\] is 2: labels must be 0 or 1"),
        (lambda: fk.Task.binary(linear(2)), [0, 1], r"give a label, 0 or 1, for each logit; .*multiclass"),
        (lambda: fk.Task.multiclass(linear(3)), [0, 3], r"is 3: a token's class must have an output"),
        (lambda: fk.Task.multiclass(linear(3)), [0.0, 1.0], r"class numbers must be whole .*y.long\(\)"),
        (
            lambda: fk.Task.tagging(linear(16, *SQUARE)),
            torch.zeros(2, 4).long(),
            r"say where the classes are",
        ),
        (lambda: fk.Task.tagging(linear(20)), torch.zeros(2, 4).long(), r"a class number for each token"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_round(task: Any, y: Any, message: str) -> None:
    with pytest.raises(fk.DataError, match=message):
        run(task(), y)


def test_where_classes_are_can_be_said() -> None:
    for last in (True, False):
        run(fk.Task.tagging(linear(16, *SQUARE), classes_last=last), torch.zeros(2, 4).long())


def test_scores_of_nothing_are_no_numbers() -> None:
    task = fk.Task.multiclass(linear(3))
    metric = task.metrics["f1"]
    metric.update(torch.zeros(2, 3), torch.tensor([-100, -100]))
    assert np.isnan(metric.compute())
    assert np.isnan(float(fk.Task.binary(linear(1)).metrics["auroc"](torch.zeros(3), torch.ones(3))))


def test_targets_are_weighed_only_where_some_are_padding() -> None:
    """Else a sample is as good as any other, and linear models walk in the span of their samples."""
    x = torch.zeros(6, 3, dtype=torch.float64)
    for y, weighed in ((torch.arange(6) % 3, False), (torch.tensor([0, 1, -100, 2, 0, 1]), True)):
        federation = fk.Federation.from_arrays([(x, y)], classes=CLASSES)
        options = {"rounds": 1, "cohort": 1, "work": WORK}
        session = session_of(fk.Task.multiclass(linear(3)), federation, fk.FedAvg(), **options)
        context = session.context
        assert weighs_targets(context.settings, context.oracle) is weighed
        session.close()
