"""Attacks: each equals a direct computation, and changes only what hostile clients train on or send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import play, runner_of, settings_of, tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.attacks import ATTACKS, AttackView
from fedkeel.core.oracle import Oracle
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import RoundRequest, Upload
from fedkeel.running.population import Population
from fedkeel.tensors.records import ClientMemory, leaves
from fedkeel.tensors.streams import Stream

SIZES = [3, 8, 5, 11, 4, 9, 6, 7, 2, 10]
PROBLEM = tiny_net(SIZES)
WORK = fk.Work(epochs=1, batch_size=3, lr=0.05)
OPTIONS: dict[str, Any] = {"rounds": 3, "cohort": 8, "work": WORK, "seed": 3}
ON_UPLOADS = [fk.SignFlip(0.3, 2.0), fk.Scaling(0.3, 5.0), fk.RandomNoise(0.3, 0.5), fk.Collusion(0.3, 0.7)]
ON_DATA = [fk.LabelFlip(0.3), fk.Backdoor(0.3, target=2, size=2)]
each = pytest.mark.parametrize("attack", ON_UPLOADS + ON_DATA, ids=lambda attack: type(attack).__name__)


def view(client: int = 1, round: int = 4) -> AttackView:
    return AttackView(round, client, torch.tensor([3.0, 0.0, 4.0]), Stream(7).branch("attack"))


UP = Upload(
    fk.FedNova.Up(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.3])), torch.tensor([9.0, 9.0, 9.0, 9.0])
)


def sent(attack: fk.Attack, **where: int) -> Upload:
    """Return what is sent; lengths and buffers are never touched."""
    found: Upload = attack.send(UP, view(**where))
    assert torch.equal(found.up.length, UP.up.length)
    assert torch.equal(found.buffers, UP.buffers)
    return found


def test_sign_flip_and_scaling_multiply_the_upload() -> None:
    assert sent(fk.SignFlip(0.2, scale=2.0)).up.rate.tolist() == [-2.0, 4.0, -1.0]
    assert sent(fk.Scaling(0.2, factor=3.0)).up.rate.tolist() == [3.0, -6.0, 1.5]
    assert sent(fk.Backdoor(0.2, boost=3.0)).up.rate.tolist() == [3.0, -6.0, 1.5]


def test_noise_is_gaussian_and_of_its_own_for_every_round_and_client() -> None:
    attack = fk.RandomNoise(0.2, sigma=2.0)
    noise = [
        (sent(attack, client=i, round=j).up.rate - UP.up.rate).numpy() for i in range(40) for j in range(40)
    ]
    assert len({tuple(one) for one in noise}) == len(noise)
    assert np.array_equal(noise[0], (sent(attack, client=0, round=0).up.rate - UP.up.rate).numpy())
    everything = np.concatenate(noise)
    assert abs(everything.mean()) < 0.1
    assert abs(everything.std() - 2.0) < 0.1


def test_colluding_clients_send_copies_of_a_direction_as_long_as_the_model_times_their_strength() -> None:
    attack = fk.Collusion(0.2, strength=2.0)
    first, other = sent(attack).up.rate, sent(attack, client=5, round=9).up.rate
    assert torch.equal(first, other)
    assert float(first.norm()) == pytest.approx(2.0 * 5.0, rel=1e-6)


def test_the_hostile_clients_are_a_share_drawn_once_by_seed() -> None:
    attack = fk.SignFlip(0.3)
    hostile = attack.hostile(1000, seed=0)
    assert len(hostile) == 300
    assert hostile == attack.hostile(1000, seed=0) == fk.Scaling(0.3).hostile(1000, seed=0)
    assert hostile != attack.hostile(1000, seed=1)
    assert fk.SignFlip(0.3, seed=5).hostile(1000, 0) == fk.SignFlip(0.3, seed=5).hostile(1000, 1)
    assert not fk.SignFlip(0.0).hostile(1000, 0)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("method", [fk.FedAvg(), fk.SCAFFOLD()], ids=["FedAvg", "SCAFFOLD"])
def test_a_round_under_attack_is_the_mean_of_honest_and_of_changed_uploads(
    method: Any, weighting: Any
) -> None:
    """Ragged clients, weighted by samples too: the server's step from each client's own upload."""
    attack = fk.SignFlip(0.3, scale=2.0)
    settings = settings_of(
        PROBLEM.task, PROBLEM.federation, method, attack=attack, weighting=weighting, **OPTIONS
    )
    population, oracle = Population.of(settings), Oracle(settings.task, torch.device("cpu"))
    drawn = population.draw(0)
    x0 = oracle.point.clone()
    down, memory = method.init(x0), method.init_client(x0)
    request = RoundRequest(method, 0, WORK.lr, down, oracle.buffers.clone(), drawn, population.weigh(drawn))
    clean = settings.changed(attack=None)
    moves = [
        ClientRunner(clean, oracle).run(request, client, ClientMemory(memory)).upload.up.delta.numpy()
        * (-2.0 if client in settings.hostile else 1.0)
        for client in drawn
    ]
    assert 0 < len(settings.hostile & set(drawn)) < len(drawn)
    sizes = [SIZES[client] if weighting == "samples" else 1 for client in drawn]
    expected = x0.numpy() + np.average(moves, axis=0, weights=sizes)
    (after, *_) = play(PROBLEM, method, attack=attack, weighting=weighting, **OPTIONS)
    np.testing.assert_allclose(after.models["x"], expected, rtol=1e-12)
    assert after.row["hostile"] == len(settings.hostile & set(drawn))


def test_label_flip_trains_hostile_clients_on_the_classes_counted_from_the_other_end() -> None:
    settings = settings_of(PROBLEM.task, PROBLEM.federation, fk.FedAvg(), attack=fk.LabelFlip(0.3), **OPTIONS)
    classes = int(PROBLEM.federation.y.max()) + 1
    for client, (x, y) in enumerate(PROBLEM.clients):
        seen_x, seen_y = settings.training_data.samples(client)
        assert np.array_equal(seen_x, x)
        assert np.array_equal(seen_y, classes - 1 - y if client in settings.hostile else y)
        assert torch.equal(settings.federation.samples(client)[1], torch.from_numpy(y))
    flipped = [
        (x, classes - 1 - y) if i in settings.hostile else (x, y) for i, (x, y) in enumerate(PROBLEM.clients)
    ]
    by_hand = PROBLEM._replace(federation=fk.Federation.from_arrays(flipped, test=PROBLEM.clients[0]))
    ours = play(PROBLEM, fk.SCAFFOLD(), attack=fk.LabelFlip(0.3), **OPTIONS)
    for one, other in zip(ours, play(by_hand, fk.SCAFFOLD(), **OPTIONS), strict=True):
        assert np.array_equal(one.models["x"], other.models["x"])


def pictures() -> fk.Federation:
    rng = np.random.default_rng(0)
    clients = [
        (rng.integers(0, 200, (12, 1, 6, 6), dtype=np.uint8), rng.integers(0, 3, 12)) for _ in range(5)
    ]
    test = (rng.integers(0, 200, (30, 1, 6, 6), dtype=np.uint8), rng.integers(0, 3, 30))
    return fk.Federation.from_arrays(clients, test=test, transform=lambda x: x.float() / 255, classes=3)


def test_a_backdoor_puts_a_corner_and_a_label_on_a_part_of_hostile_clients_samples() -> None:
    federation, attack = pictures(), fk.Backdoor(0.4, target=1, size=2, poisoned=0.5, value=255)
    task = fk.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))
    settings = settings_of(task, federation, fk.FedAvg(), attack=attack, rounds=1, cohort=2, work=WORK)
    changed = 0
    for client in range(5):
        (x, y), (seen_x, seen_y) = federation.samples(client), settings.training_data.samples(client)
        triggered = (seen_x[:, 0, -2:, -2:] == 255).flatten(1).all(1)
        assert bool(triggered.any()) == (client in settings.hostile)
        assert torch.equal(seen_y, torch.where(triggered, 1, y))
        assert torch.equal(seen_x[:, :, :-2], x[:, :, :-2])
        assert torch.equal(seen_x[~triggered], x[~triggered])
        changed += int(triggered.sum())
    assert 0 < changed < 24


def test_the_success_of_a_backdoor_is_counted_on_test_samples_of_other_classes() -> None:
    federation, attack = pictures(), fk.Backdoor(0.4, target=1, size=2)
    task = fk.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 3)))
    work = fk.Work(steps=3, batch_size=4, lr=0.5)
    result = fk.train(
        task,
        federation,
        fk.FedAvg(),
        rounds=4,
        cohort=5,
        work=work,
        attack=attack,
        evaluation=fk.Evaluation(2),
    )
    assert federation.test is not None
    x, y = federation.test.part(0, 30)
    x = x[y != 1].clone()
    x[..., -2:, -2:] = int(federation.x.max())
    taken = (result.model(x.float() / 255).argmax(1) == 1).double().mean()
    assert result.history[-1]["attack_success"] == pytest.approx(float(taken), abs=1e-12)
    assert result.history[0]["attack_success"] is None
    assert result.manifest == {} or "hostile" in result.manifest


@each
def test_an_attack_changes_no_other_randomness(attack: fk.Attack) -> None:
    """Cohorts and minibatches are those of the clean run, and so is the first round of honest clients."""
    clean, under = play(PROBLEM, fk.FedAvg(), **OPTIONS), play(PROBLEM, fk.FedAvg(), attack=attack, **OPTIONS)
    assert [one.row["cohort"] for one in clean] == [one.row["cohort"] for one in under]
    both = [
        settings_of(PROBLEM.task, PROBLEM.federation, fk.FedAvg(), attack=a, **OPTIONS)
        for a in (None, attack)
    ]
    for client in range(len(SIZES)):
        ours, theirs = (runner_of(settings).minibatches(1, client) for settings in both)
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not np.array_equal(clean[-1].models["x"], under[-1].models["x"])
    nobody = play(PROBLEM, fk.FedAvg(), attack=type(attack)(0.0), **OPTIONS)
    assert np.array_equal(clean[-1].models["x"], nobody[-1].models["x"])


@each
def test_a_run_under_attack_resumes_to_the_bit(attack: fk.Attack, tmp_path: Path) -> None:
    options = {**OPTIONS, "attack": attack, "reducer": fk.TrimmedMean(0.2)}
    task, federation = PROBLEM.task, PROBLEM.federation
    whole = flat.train(task, federation, fk.FedAvg(), **options)
    for rounds in (1, 3):
        resumed = flat.train(
            task, federation, fk.FedAvg(), **{**options, "rounds": rounds}, run_dir=tmp_path, resume=True
        )
    for (_, ours), (_, theirs) in zip(leaves(resumed.server), leaves(whole.server), strict=True):
        assert torch.equal(ours, theirs)
    assert resumed.manifest["identity"]["attack"] == repr(attack)
    assert resumed.manifest["identity"]["reducer"] == "TrimmedMean(share=0.2)"
    assert len(resumed.manifest["hostile"]) == 3
    with pytest.raises(fk.StorageError, match=r"its attack is .* not None"):
        flat.train(
            task, federation, fk.FedAvg(), **{**options, "attack": None}, run_dir=tmp_path, resume=True
        )
    with pytest.raises(fk.StorageError, match="its reducer is 'TrimmedMean"):
        flat.train(
            task, federation, fk.FedAvg(), **{**options, "reducer": fk.Mean()}, run_dir=tmp_path, resume=True
        )


@pytest.mark.parametrize("kind", ATTACKS, ids=lambda kind: kind.__name__)
def test_an_attack_is_a_value_that_its_text_reads_back(kind: Any) -> None:
    from fedkeel.experiments.expression import parse_attack

    assert parse_attack(repr(kind(0.1, seed=3))) == kind(share=0.1, seed=3)


def refused(attack: Any, task: fk.Task = PROBLEM.task, federation: fk.Federation = PROBLEM.federation) -> str:
    with pytest.raises(fk.ConfigError) as caught:
        fk.train(task, federation, fk.FedAvg(), attack=attack, **OPTIONS)
    return str(caught.value)


def test_what_cannot_be_attacked_is_refused_with_the_reason() -> None:
    with pytest.raises(
        fk.ConfigError, match=r"SignFlip: share = 1.5: input should be less than or equal to 1"
    ):
        fk.SignFlip(1.5)
    assert "a share of 0.01 of 10 clients is no client: give at least 0.1" in refused(fk.SignFlip(0.01))
    assert "attack = 'SignFlip' is not an attack: give one, as in fk.SignFlip(share=0.2)" in refused(
        "SignFlip"
    )
    assert "target = 9, but the classes are 0 to 3" in refused(fk.Backdoor(0.2, target=9))
    assert "has no room for a trigger of size 30: give a smaller size" in refused(fk.Backdoor(0.2, size=30))
    task = fk.Task(PROBLEM.task.model, metrics={})
    assert "measured by the metric 'accuracy', which the task does not have" in refused(
        fk.Backdoor(0.2), task
    )
    x = [np.random.default_rng(0).normal(size=(4, 3)) for _ in range(10)]
    numbers = fk.Federation.from_arrays([(one, one[:, :1]) for one in x])
    line = fk.Task.regression(nn.Linear(3, 1).double())
    assert "is for one array of inputs with a class each" in refused(fk.LabelFlip(0.2), line, numbers)
