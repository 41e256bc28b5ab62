"""One table, methods × properties. A method without a row fails."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import flat
import pytest
import torch
from problems import play, quadratic, tiny_net
from selecting import one_in, slow
from variants import VARIANTS

import fedkeel as fk
from fedkeel.tensors.records import leaves


class Traits(NamedTuple):
    """What a method sends down and up and what a client keeps, in units of d; gradients per step."""

    down: int
    up: int
    memory: int
    gradients: int = 1
    classifier_only: bool = False
    adamw: bool = True  # AdamW's steps make sense for it
    momentum: bool = True  # it takes the local momentum of Work: it has none of its own


TABLE = {
    "FedAvg": Traits(1, 1, 0),
    "FedProx": Traits(1, 1, 0),
    "FedAvgM": Traits(1, 1, 0),
    "FedAdam": Traits(1, 1, 0),
    "FedYogi": Traits(1, 1, 0),
    "FedAdagrad": Traits(1, 1, 0),
    "SCAFFOLD": Traits(2, 2, 1, adamw=False),
    "FedDyn": Traits(1, 1, 1),
    "FedCM": Traits(2, 1, 0, adamw=False),
    "FedSAM": Traits(1, 1, 0, gradients=2),
    "MimeLite": Traits(2, 2, 0),
    "FedLNAG": Traits(2, 2, 0, adamw=False, momentum=False),
    "FedANAG": Traits(2, 1, 0, adamw=False),
    "FedACG": Traits(1, 1, 0),
    "FedSAGD": Traits(2, 1, 0, adamw=False),
    "FedNova": Traits(1, 1, 0, adamw=False),
    "FedNTD": Traits(1, 1, 0, classifier_only=True),
    "MOON": Traits(1, 1, 1, classifier_only=True),
    "FedSpeed": Traits(1, 1, 1, gradients=2),
    "FedSMOO": Traits(2, 2, 2, gradients=2),
    "FedInit": Traits(1, 1, 1),
    "MoFedSAM": Traits(2, 1, 0, gradients=2, adamw=False),
    "FedGamma": Traits(2, 2, 1, gradients=2, adamw=False),
    "SCAFFOLD(by_size=True)": Traits(2, 2, 1, adamw=False),
    "FedDyn(alpha=1.0, by_size=True)": Traits(1, 1, 1),
    "FedDyn(alpha=1.0, last_models=True)": Traits(1, 2, 2),
    "FedSpeed(alpha=1.0, rho=0.01, correction='all')": Traits(1, 1, 1, gradients=2),
    "FedAdam(lr=0.02, v0=0.0, bias_correction=True)": Traits(1, 1, 0),
    "FedLNAG(damped=True)": Traits(2, 2, 0, adamw=False, momentum=False),
    "FedNova(mu=0.3)": Traits(1, 1, 0, adamw=False),
}
MAKERS = [*fk.METHODS, *VARIANTS]
ALL = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
WORK = fk.Work(epochs=1, batch_size=3, lr=0.05, weight_decay=0.01)
SIZES = [3, 8, 5, 11, 4]


def test_every_method_has_a_row() -> None:
    assert set(TABLE) == {make.__name__ for make in MAKERS}


def vectors(record: Any, d: int) -> int:
    """Count the tensors of model size; scalars ride along."""
    return sum(tensor.numel() == d for _, tensor in leaves(record))


@ALL
def test_adamw_is_taken_or_refused_as_the_table_says(make: Any) -> None:
    problem, work = tiny_net(SIZES), fk.Work(steps=2, batch_size=3, lr=0.01, optimizer=fk.AdamW())
    if TABLE[make.__name__].adamw:
        (after,) = play(problem, make(), rounds=1, cohort=2, work=work)
        assert after.row["train_loss"] > 0
        return
    with pytest.raises(
        fk.ConfigError, match=r"optimizer = AdamW: .* asks for .* which AdamW's steps do not have"
    ):
        fk.train(
            problem.task,
            problem.federation,
            make(),
            rounds=1,
            cohort=2,
            work=work,
            execution=fk.Execution("serial"),
        )


@ALL
def test_local_momentum_is_taken_or_refused_as_the_table_says(make: Any) -> None:
    problem, work = tiny_net(SIZES), fk.Work(steps=2, batch_size=3, lr=0.05)
    moved = dataclasses.replace(work, momentum=0.8)
    if TABLE[make.__name__].momentum:
        plain, faster = (
            play(problem, make(), rounds=1, cohort=2, work=one)[0].models["x"] for one in (work, moved)
        )
        assert abs(plain - faster).max() > 1e-6
        return
    with pytest.raises(fk.ConfigError, match=r"momentum = 0.8: .* of its own, whose buffer it keeps"):
        fk.train(
            problem.task,
            problem.federation,
            make(),
            rounds=1,
            cohort=2,
            work=moved,
            execution=fk.Execution("serial"),
        )


@ALL
def test_costs_are_those_of_the_table(make: Any) -> None:
    traits, problem = TABLE[make.__name__], tiny_net(SIZES)
    d, width = len(problem.x0), 8
    (after,) = play(problem, make(), rounds=1, cohort=2, work=WORK)
    assert 0 <= after.row["bytes_down"] - 2 * traits.down * d * width <= 2 * 2 * width
    assert 0 <= after.row["bytes_up"] - 2 * traits.up * d * width <= 2 * 2 * width
    kept = [vectors(memory, d) for memory in after.memories.values()]
    assert kept == ([traits.memory] * 2 if traits.memory else [])
    steps = sum(WORK.count(SIZES[i]) for i in after.row["cohort"])
    assert after.row["gradients"] == traits.gradients * steps


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, *slow(torch.float64)])
def test_dtype_is_kept(make: Any, dtype: torch.dtype) -> None:
    problem = tiny_net(SIZES)
    problem = problem._replace(task=fk.Task(problem.task.model.to(dtype)))
    for after in play(problem, make(), rounds=2, cohort=3, work=WORK):
        for record in (after.server, *after.memories.values()):
            assert {tensor.dtype for _, tensor in leaves(record)} == {dtype}


@ALL
def test_shapes_of_records_are_stable(make: Any) -> None:
    played = play(tiny_net(SIZES), make(), rounds=3, cohort=5, work=WORK)
    shapes = [
        [
            (name, tuple(tensor.shape))
            for record in (a.server, *a.memories.values())
            for name, tensor in leaves(record)
        ]
        for a in played
    ]
    assert shapes[0] == shapes[1] == shapes[2]


@ALL
def test_the_given_model_and_global_randomness_are_untouched(make: Any) -> None:
    problem = tiny_net(SIZES)
    before = [p.detach().clone() for p in problem.task.model.parameters()]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    fk.train(problem.task, problem.federation, make(), rounds=2, cohort=3, work=WORK)
    assert torch.equal(state, torch.get_rng_state())
    for now, then in zip(problem.task.model.parameters(), before, strict=True):
        assert torch.equal(now, then)
        assert now.grad is None


@pytest.mark.parametrize("make", one_in(4, MAKERS), ids=lambda make: make.__name__)
@pytest.mark.parametrize("wrap", [lambda m: m, *slow(lambda m: fk.relaxed(m, 0.1))], ids=["plain", "relaxed"])
def test_survives_a_checkpoint(make: Any, wrap: Any, tmp_path: Path) -> None:
    algorithm = make()
    if make is not fk.FedInit:
        algorithm = wrap(algorithm)
    problem = tiny_net(SIZES)
    given: dict[str, Any] = {"cohort": 3, "work": WORK, "checkpoint_every": 1, "keep_client_states": True}
    whole = fk.train(problem.task, problem.federation, algorithm, rounds=5, cohort=3, work=WORK)
    flat.train(problem.task, problem.federation, algorithm, rounds=2, run_dir=tmp_path, **given)
    resumed = flat.train(
        problem.task, problem.federation, algorithm, rounds=5, run_dir=tmp_path, resume=True, **given
    )
    for (name, ours), (_, theirs) in zip(leaves(resumed.server), leaves(whole.server), strict=True):
        assert torch.equal(ours, theirs), name
    assert set(resumed.client_states) == set(whole.client_states)
    for client, memory in resumed.client_states.items():
        for (name, ours), (_, theirs) in zip(
            leaves(memory), leaves(whole.client_states[client]), strict=True
        ):
            assert torch.equal(ours, theirs), (client, name)
    timeless = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in r.history] for r in (resumed, whole)
    ]
    assert timeless[0] == timeless[1]


GENTLE = {  # knobs for a small problem walked in short steps; the defaults suit networks
    "FedAdam": fk.FedAdam(0.02),
    "FedYogi": fk.FedYogi(0.02),
    "FedDyn": fk.FedDyn(1.0),
    "FedSpeed": fk.FedSpeed(1.0, rho=0.01),
    "FedSMOO": fk.FedSMOO(1.0, rho=0.01),
}


@cache
def convex(classifier: bool) -> tuple[fk.Task, fk.Federation, float, float]:
    """A convex problem, its loss at the start and at a far better model (a long run of SCAFFOLD)."""
    problem = quadratic([20] * 4)
    if classifier:  # softmax regression; MOON's features are then its inputs
        torch.manual_seed(0)
        problem = tiny_net([20] * 4)._replace(task=fk.Task(torch.nn.Linear(3, 4).double()))
    pooled = fk.Federation.from_arrays(problem.clients)
    options: dict[str, Any] = {"cohort": 4, "evaluate_on": "clients"}
    still = flat.train(
        problem.task, pooled, fk.FedAvg(), rounds=1, work=fk.Work(steps=1, lr=1e-12), **options
    )
    best = flat.train(
        problem.task, pooled, fk.SCAFFOLD(), rounds=150, work=fk.Work(steps=3, lr=0.2), **options
    )
    return problem.task, pooled, still.history[-1]["loss"], best.history[-1]["loss"]


@pytest.mark.slow(10)
@ALL
def test_converges_on_a_convex_problem(make: Any) -> None:
    """The loss over all clients' data falls by 90 % of what the best known model gains."""
    classifier = TABLE[make.__name__].classifier_only
    task, pooled, first, floor = convex(classifier)
    work = fk.Work(steps=3, lr=0.4 if classifier else 0.1)
    algorithm = GENTLE.get(make.__name__) or make()
    options: dict[str, Any] = {"rounds": 40, "cohort": 4, "eval_every": 40, "evaluate_on": "clients"}
    result = flat.train(task, pooled, algorithm, work=work, **options)
    assert result.history[-1]["loss"] - floor < 0.1 * (first - floor)
