"""Inputs, targets and outputs may be tuples and dicts of tensors, in every engine."""

from __future__ import annotations

from typing import Any

import flat
import numpy as np
import pytest
import torch
from selecting import slow
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import fedkeel as fk

ENGINES = ("serial", *slow("stacked-uncompiled", "processes"))
SIZES = {"equal": (12, 12, 12, 12), "unequal": (7, 12, 9, 20)}


class TwoInputs(nn.Module):
    """Numbers and words in, class scores out: what a single tensor cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.words = nn.Linear(4, 6), nn.Embedding(9, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, numbers: Tensor, words: Tensor) -> Tensor:
        return self.head(torch.tanh(self.numbers(numbers) + self.words(words).mean(1)))


class OneInput(TwoInputs):
    """The same with both in one tensor, words as numbers: the result to compare with."""

    def forward(self, both: Tensor) -> Tensor:
        return super().forward(both[:, :4], both[:, 4:].long())


class TwoOutputs(nn.Module):
    """A class and a number, in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.kind, self.size = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.body(x))
        return {"kind": self.kind(hidden), "size": self.size(hidden)}


def two_losses(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
    return cross_entropy(output["kind"], target["kind"]) + mse_loss(output["size"], target["size"])


def columns(samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(samples, 4, generator=generator, dtype=torch.float64)
    words = torch.randint(0, 9, (samples, 5), generator=generator)
    kind = torch.randint(0, 3, (samples,), generator=generator)
    return numbers, words, kind, torch.randn(samples, 1, generator=generator, dtype=torch.float64)


def as_dict(samples: int, seed: int) -> Any:
    numbers, words, kind, _ = columns(samples, seed)
    return {"numbers": numbers, "words": words}, kind


def as_tuple(samples: int, seed: int) -> Any:
    numbers, words, kind, _ = columns(samples, seed)
    return (numbers.numpy(), words.numpy()), kind.numpy()


def in_one(samples: int, seed: int) -> Any:
    numbers, words, kind, _ = columns(samples, seed)
    return torch.cat([numbers, words.double()], 1), kind


def several_targets(samples: int, seed: int) -> Any:
    numbers, _, kind, size = columns(samples, seed)
    return numbers, {"kind": kind, "size": size}


def federation(make: Any, sizes: tuple[int, ...] = SIZES["unequal"], **options: Any) -> fk.Federation:
    clients = [make(size, seed) for seed, size in enumerate(sizes)]
    return fk.Federation.from_arrays(clients, make(30, 99), **options)


def last(task: fk.Task, data: fk.Federation, method: Any = None, **options: Any) -> dict[str, Any]:
    work = fk.Work(epochs=2, batch_size=5, lr=0.1)
    options = {"rounds": 2, "cohort": 3, "work": work, "engine": "serial", "progress": False, **options}
    return flat.train(task, data, method or fk.FedAvg(), **options).history[-1]


def double(model: type[nn.Module]) -> fk.Task:
    return fk.Task(lambda: model().double())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("make", [as_dict, as_tuple])
def test_several_inputs_train_as_one_that_holds_them_all(make: Any, sizes: str, engine: str) -> None:
    expected = last(double(OneInput), federation(in_one, SIZES[sizes]))
    found = last(double(TwoInputs), federation(make, SIZES[sizes]), engine=engine)
    for column in ("loss", "accuracy", "train_loss", "norm"):
        assert found[column] == pytest.approx(expected[column], rel=1e-10), column


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [fk.SCAFFOLD(), fk.FedSAM(), fk.MOON(), fk.FedNTD(), fk.MimeLite()], ids=repr
)
def test_several_inputs_in_methods_that_ask_for_more_passes(method: Any) -> None:
    expected = last(double(OneInput), federation(in_one), method)
    for engine in ("serial", "stacked-uncompiled"):
        found = last(double(TwoInputs), federation(as_dict), method, engine=engine)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sizes", SIZES)
def test_several_targets_and_outputs(sizes: str, engine: str) -> None:
    metrics = {"off": lambda output, target: (output["size"] - target["size"]).abs().mean()}
    task = fk.Task(lambda: TwoOutputs().double(), two_losses, metrics)
    data = federation(several_targets, SIZES[sizes])
    expected = fk.train(
        task,
        data,
        fk.FedAvg(),
        rounds=2,
        cohort=3,
        work=fk.Work(steps=3, batch_size=5),
        execution=fk.Execution("serial"),
    )
    x, y = data.test
    with torch.no_grad():
        output = expected.model(x)
    assert expected.history[-1]["loss"] == pytest.approx(float(two_losses(output, y)), rel=1e-9)
    assert expected.history[-1]["off"] == pytest.approx(float(metrics["off"](output, y)), rel=1e-9)
    found = fk.train(
        task,
        data,
        fk.FedAvg(),
        rounds=2,
        cohort=3,
        work=fk.Work(steps=3, batch_size=5),
        execution=fk.Execution(engine),
    )
    assert found.history[-1]["loss"] == pytest.approx(expected.history[-1]["loss"], rel=1e-10)


@pytest.mark.slow
def test_a_transform_may_make_several_inputs_of_one() -> None:
    def taken_apart(both: Tensor) -> dict[str, Tensor]:
        return {"numbers": both[:, :4], "words": both[:, 4:].long()}

    expected = last(double(OneInput), federation(in_one))
    for engine in ("serial", "stacked-uncompiled"):
        found = last(double(TwoInputs), federation(in_one, transform=taken_apart), engine=engine)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-10)


@pytest.mark.slow
def test_augmentation_gets_the_whole_tree_and_is_the_same_in_every_engine() -> None:
    def noisy(x: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        shift = torch.randn(x["numbers"].shape, generator=generator, dtype=torch.float64)
        return {**x, "numbers": x["numbers"] + 0.1 * shift}

    losses = {
        engine: last(double(TwoInputs), federation(as_dict, augment=noisy), engine=engine)["loss"]
        for engine in ("serial", "stacked-uncompiled")
    }
    assert losses["stacked-uncompiled"] == pytest.approx(losses["serial"], rel=1e-10)
    assert losses["serial"] != last(double(TwoInputs), federation(as_dict))["loss"]


class Rows(torch.utils.data.Dataset[Any]):
    """A map-style dataset with samples as a library would give them."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def test_datasets_of_tuples_dicts_and_named_columns_are_taken() -> None:
    ids, mask, label = [1, 2, 3], [1, 1, 0], 2
    nested = fk.Federation.from_datasets(
        [Rows([({"ids": np.array(ids), "mask": np.array(mask)}, label)] * 4)]
    )
    assert nested.x["ids"].tolist() == [ids] * 4
    assert nested.y.tolist() == [label] * 4
    text = Rows([{"input_ids": ids, "attention_mask": mask, "labels": label, "text": "…"}] * 4)
    tokens = fk.Federation.from_datasets([text])
    assert {name: part.shape for name, part in tokens.x.items()} == {
        "input_ids": (4, 3),
        "attention_mask": (4, 3),
    }
    chosen = fk.Federation.from_datasets([text], x=["input_ids"], y="labels")
    assert list(chosen.x) == ["input_ids"]
    with pytest.raises(fk.DataError, match="no column 'idz' in input_ids"):
        fk.Federation.from_datasets([text], x=["idz"])


def test_the_federation_says_what_a_sample_is() -> None:
    assert "numbers: float64 of shape (4,), words: int64 of shape (5,)" in repr(federation(as_dict))


@pytest.mark.parametrize(
    ("clients", "told"),
    [
        (
            [({"a": np.zeros((3, 2)), "b": np.zeros((2, 2))}, [0, 1, 0])],
            r"client 0: x\['b'\] has shape \(2, 2\)",
        ),
        (
            [({"a": np.zeros((2, 2))}, [0, 1]), ({"b": np.zeros((2, 2))}, [0, 1])],
            "client 1: x is a dict of b, but client 0 has a dict of a",
        ),
        ([({"a": np.zeros((2, 2))}, [0, 1]), (np.zeros((2, 2)), [0, 1])], "client 1: x is one array"),
        (
            [({"a": np.zeros((2, 2))}, [0, 1]), ({"a": np.zeros((2, 3))}, [0, 1])],
            r"client 1: a row of x\['a'\] is torch.float64 of shape \(3,\)",
        ),
        ([({"a": np.array([[1.0], [np.nan]])}, [0, 1])], r"client 0: x\['a'\]\[1\] holds NaN"),
        ([({}, [0, 1])], "client 0: a dict without arrays"),
    ],
    ids=range(6),
)
def test_trees_that_do_not_fit_are_refused(clients: Any, told: str) -> None:
    with pytest.raises(fk.DataError, match=told):
        fk.Federation.from_arrays(clients)


@pytest.mark.parametrize(
    ("task", "make", "told"),
    [
        (fk.Task(TwoOutputs), in_one, "TwoOutputs does not take a batch of shape"),
        (fk.Task(lambda: TwoOutputs().double()), several_targets, r"cross_entropy\(output\['kind'\], y\)"),
        (
            fk.Task(lambda: TwoOutputs().double(), two_losses),
            several_targets,
            r"accuracy takes one tensor: say which",
        ),
        (
            fk.Task(lambda: nn.Linear(4, 3).double(), metrics={}),
            several_targets,
            r"cross_entropy takes one tensor of targets, but there are y\['kind'\], y\['size'\]",
        ),
        (double(TwoInputs), in_one, "TwoInputs does not take a batch of shape"),
        (double(OneInput), as_dict, "OneInput does not take a batch of numbers: shape"),
    ],
    ids=range(6),
)
def test_models_and_losses_that_do_not_take_them_are_refused(task: fk.Task, make: Any, told: str) -> None:
    with pytest.raises(fk.DataError, match=told):
        last(task, federation(make))


def test_a_method_that_needs_one_tensor_of_outputs_says_so() -> None:
    task = fk.Task(lambda: TwoOutputs().double(), two_losses, {})
    with pytest.raises(
        fk.ConfigError, match=r"FedNTD.* takes one tensor of outputs, and TwoOutputs returns dict"
    ):
        last(task, federation(several_targets), fk.FedNTD())


def test_pictures_only_options_refuse_trees() -> None:
    with pytest.raises(fk.DataError, match="noise is for pictures"):
        fk.data.add_noise(federation(as_dict), fk.data.ChannelGains(0.1))
