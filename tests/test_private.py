"""Private updates: the bound and the noise are what is promised, and ε is the accountant's."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import dp_accounting as dp
import flat
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import play, settings_of, tiny_net
from selecting import one_in
from torch import nn

import fedkeel as fk
from fedkeel.core.algorithm import Cohort, Walk
from fedkeel.core.oracle import Oracle
from fedkeel.core.privacy import ORDERS, Mechanism, divergences, epsilon, epsilon_of
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import RoundRequest
from fedkeel.running.population import Population
from fedkeel.tensors.records import ClientMemory, leaves
from fedkeel.tensors.streams import Stream

SIZES = [5, 12, 9, 3, 7, 3, 8, 4, 11, 6]
PROBLEM = tiny_net(SIZES)
WORK = fk.Work(steps=3, batch_size=3, lr=0.1)
OPTIONS: dict[str, Any] = {"rounds": 3, "cohort": 5, "work": WORK, "seed": 2}
CLIP, NOISE, DELTA = 0.05, 0.8, 1e-3


def private(method: Any = None, **changed: float) -> Any:
    return fk.private(method or fk.FedAvg(), **{"clip": CLIP, "noise": NOISE, "delta": DELTA, **changed})


def whole_norm(up: Any) -> float:
    return math.sqrt(
        sum(float((part.double() ** 2).sum()) for name, part in leaves(up) if "length" not in name)
    )


METHODS = [
    fk.FedAvg(),
    fk.SCAFFOLD(),
    fk.FedNova(),
    fk.MimeLite(),
    fk.FedSMOO(),
    fk.relaxed(fk.FedDyn(0.1), 0.1),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_client_sends_its_whole_record_shortened_to_the_clip(method: Any) -> None:
    """One factor for all parts; lengths are no part of the norm, and stay; memories are not touched."""
    settings_ = settings_of(PROBLEM.task, PROBLEM.federation, method, **OPTIONS)
    oracle = Oracle(settings_.task, torch.device("cpu"))
    x0 = oracle.point.clone()

    def result(algorithm: Any) -> Any:
        down, memory = algorithm.broadcast(algorithm.init(x0)), algorithm.init_client(x0)
        request = RoundRequest(algorithm, 0, WORK.lr, down, oracle.buffers.clone(), [1], [1.0])
        return ClientRunner(settings_, oracle).run(request, 1, ClientMemory(memory))

    plain, clipped = result(method), result(private(method))
    norm = whole_norm(plain.upload.up)
    assert norm > CLIP
    assert whole_norm(clipped.upload.up) <= CLIP * (1 + 1e-12)
    for (name, ours), (_, theirs) in zip(leaves(clipped.upload.up), leaves(plain.upload.up), strict=True):
        factor = 1.0 if name.endswith("length") else CLIP / norm
        np.testing.assert_allclose(ours, factor * theirs, rtol=1e-12, atol=1e-15)
    for (_, ours), (_, theirs) in zip(leaves(clipped.memory), leaves(plain.memory), strict=True):
        assert torch.equal(ours, theirs)
    unbounded = result(private(method, clip=1e9)).upload.up
    for (_, ours), (_, theirs) in zip(leaves(unbounded), leaves(plain.upload.up), strict=True):
        assert torch.equal(ours, theirs)


@settings(max_examples=50)
@given(
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e3, 1e18]), clip=st.floats(1e-3, 1e3), seed=st.integers(0, 99)
)
def test_no_upload_is_longer_than_the_accountant_assumes_in_float32(
    scale: float, clip: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(1000)
    walk = Walk(x, scale * torch.randn(1000, generator=generator), torch.ones(1), torch.ones(1))
    method = private(fk.SCAFFOLD(), clip=clip)
    up, _ = method.finish(walk, method.init(x), method.init_client(x), fk.Facts.of(5, 5.0, x))
    assert whole_norm(up) <= clip * (1 + 1e-6)


def test_a_round_is_the_noised_mean_of_clipped_moves() -> None:
    method = private(noise=1e-9)
    settings_ = settings_of(PROBLEM.task, PROBLEM.federation, fk.FedAvg(), **OPTIONS)
    oracle, drawn = Oracle(settings_.task, torch.device("cpu")), Population.of(settings_).draw(0)
    x0 = oracle.point.clone()
    request = RoundRequest(
        fk.FedAvg(), 0, WORK.lr, fk.FedAvg().init(x0), oracle.buffers.clone(), drawn, [1.0] * 5
    )
    moves = [
        ClientRunner(settings_, oracle)
        .run(request, i, ClientMemory(fk.FedAvg().init_client(x0)))
        .upload.up.delta.numpy()
        for i in drawn
    ]
    clipped = [move * min(1.0, CLIP / np.linalg.norm(move)) for move in moves]
    (first, *_) = play(PROBLEM, method, **OPTIONS)
    np.testing.assert_allclose(first.models["x"], x0.numpy() + np.mean(clipped, axis=0), atol=1e-9)


def cohort(round: int = 0, size: int = 5, planned: int = 5) -> Cohort:
    return Cohort(round, 10, size, size / 20, Stream(0).branch("server", round), planned)


def test_the_servers_noise_has_the_promised_deviation_and_is_new_in_every_round_and_part() -> None:
    method, x = private(fk.SCAFFOLD(), clip=2.0, noise=3.0), torch.zeros(20_000)
    server, zero = method.init(x), fk.SCAFFOLD.Up(x, x)
    first, again, second = (method.aggregate(server, zero, cohort(round)) for round in (0, 0, 1))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, second.x)
    assert float(first.x.std()) == pytest.approx(2.0 * 3.0 / 5, rel=0.03)
    assert float((first.c / 0.25).std()) == pytest.approx(2.0 * 3.0 / 5, rel=0.03)
    assert abs(float(torch.corrcoef(torch.stack([first.x, first.c]))[0, 1])) < 0.05
    assert abs(float(torch.corrcoef(torch.stack([first.x, second.x]))[0, 1])) < 0.05


def test_where_cohorts_vary_the_sum_is_divided_by_the_planned_size() -> None:
    """A cohort of 7 where 5 were planned: each client counts a fifth, and so does the share."""
    method, x = private(fk.SCAFFOLD(), noise=1e-12), torch.zeros(4)
    mean = fk.SCAFFOLD.Up(torch.ones(4), torch.ones(4))
    after = method.aggregate(method.init(x), mean, cohort(size=7))
    np.testing.assert_allclose(after.x, 7 / 5 * np.ones(4), rtol=1e-6)
    np.testing.assert_allclose(after.c, 7 / 5 * 5 / 20 * np.ones(4), rtol=1e-6)


def library(noise: float, clients: int, cohort: int, rounds: int, delta: float, sampling: str) -> float:
    """Return ε by the library's accountant with its own orders, event by event."""
    relation = dp.NeighboringRelation
    if sampling == "fixed":
        event = dp.SampledWithoutReplacementDpEvent(clients, cohort, dp.GaussianDpEvent(noise / 2))
        accountant = dp.rdp.RdpAccountant(neighboring_relation=relation.REPLACE_ONE)
    else:
        event = dp.PoissonSampledDpEvent(cohort / clients, dp.GaussianDpEvent(noise))
        accountant = dp.rdp.RdpAccountant(ORDERS, relation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.SelfComposedDpEvent(event, rounds))
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
@pytest.mark.parametrize(
    ("noise", "clients", "cohort", "rounds"), [(4.0, 1000, 20, 100), (6.0, 500, 50, 200)]
)
@pytest.mark.slow
def test_epsilon_is_the_librarys(noise: float, clients: int, cohort: int, rounds: int, sampling: Any) -> None:
    given: dict[str, Any] = {"noise": noise, "clients": clients, "cohort": cohort, "rounds": rounds}
    ours = epsilon(**given, delta=1e-5, sampling=sampling)
    assert ours == pytest.approx(library(**given, delta=1e-5, sampling=sampling), rel=2e-3)
    assert ours >= library(**given, delta=1e-5, sampling=sampling) * (1 - 2e-3)


def converted(divergence: Any, delta: float) -> float:
    """From Rényi to (ε, δ) by the formula of Canonne, Kamath and Steinke 2020, over whole orders."""
    return min(
        divergence(a) + math.log1p(-1 / a) - math.log(delta * a) / (a - 1)
        for a in ORDERS
        if divergence(a) >= 0
    )


def test_epsilon_of_hand_computed_cases() -> None:
    """All clients in every round: Gaussian noise alone, α·Δ²/(2σ²) per round with Δ = 2·clip or clip.

    And Poisson samples at order 2: log(1 + q²·(exp(1/σ²) − 1)).
    """
    fixed = epsilon(noise=4.0, clients=10, cohort=10, rounds=7, delta=1e-4)
    assert fixed == pytest.approx(converted(lambda a: 7 * a * 4 / (2 * 16), 1e-4), rel=1e-5)
    bernoulli = epsilon(noise=4.0, clients=10, cohort=10, rounds=7, delta=1e-4, sampling="bernoulli")
    assert bernoulli == pytest.approx(converted(lambda a: 7 * a / (2 * 16), 1e-4), rel=1e-5)
    at_two = divergences(Mechanism(2.0, 10_000, 100, "bernoulli"))[ORDERS.index(2)]
    assert at_two == pytest.approx(math.log1p(0.01**2 * math.expm1(1 / 4)), rel=1e-4)


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_epsilon_of_fixed_cohorts_by_hand(noise: float) -> None:
    """Order 2 of Wang, Balle and Kasiviswanathan 2019, with the sensitivity 2·clip: ρ = α·(2/noise)²/2.

    It is log(1 + q²·min(4·(exp(ρ) − 1), 2·exp(ρ))), and log(1 − q + q·exp(ρ)) where the cohorts are known.
    """
    rho, q = 4 / noise**2, 0.01
    secret = divergences(Mechanism(noise, 10_000, 100))[ORDERS.index(2)]
    assert secret == pytest.approx(math.log1p(q**2 * min(4 * math.expm1(rho), 2 * math.exp(rho))), rel=1e-4)
    known = divergences(Mechanism(noise, 10_000, 100, client_states=True))[ORDERS.index(2)]
    assert known == pytest.approx(math.log(1 - q + q * math.exp(rho)), rel=1e-4)


@pytest.mark.parametrize("noise", one_in(4, [0.5, 1.0, 4.0, 30.0], pytest.mark.slow(6)))
@pytest.mark.parametrize(("clients", "cohort"), [(2, 1), (50, 20), (1000, 20), (1000, 1000)])
@pytest.mark.slow
def test_a_secret_draw_more_noise_and_fewer_rounds_cost_no_privacy(
    noise: float, clients: int, cohort: int
) -> None:
    given: dict[str, Any] = {"clients": clients, "cohort": cohort, "delta": 1e-5, "rounds": 30}
    secret, known = (epsilon(noise=noise, client_states=memories, **given) for memories in (False, True))
    everybody = epsilon(noise=noise, **{**given, "cohort": clients})
    assert secret <= known <= everybody * (1 + 1e-12)
    assert epsilon(noise=2 * noise, **given) < secret
    assert epsilon(noise=noise, **{**given, "rounds": 60}) > secret


def test_epsilon_counts_known_cohorts_where_clients_of_fixed_cohorts_keep_client_states() -> None:
    """What SCAFFOLD's clients send tells when they took part, so the draw is no secret."""
    for method, memories in [(fk.FedAvg(), False), (fk.SCAFFOLD(), True), (fk.FedInit(0.1), True)]:
        rows = [one.row for one in play(PROBLEM, private(method, noise=4.0), **OPTIONS)]
        given: dict[str, Any] = {"clients": 10, "cohort": 5, "rounds": 3, "delta": DELTA}
        expected = epsilon(noise=4.0, client_states=memories, **given)
        assert rows[-1]["epsilon"] == pytest.approx(expected, rel=1e-12)


def test_where_nobody_is_drawn_clients_remember_nothing_of_the_round() -> None:
    two = tiny_net([4, 5])
    given: dict[str, Any] = {**OPTIONS, "cohort": 1, "sampling": "bernoulli", "rounds": 1}
    empty = next(
        seed
        for seed in range(20)
        if Population.of(
            settings_of(two.task, two.federation, fk.FedAvg(), **{**given, "seed": seed})
        ).redrawn(0)
    )
    for method, kept in [(private(fk.SCAFFOLD()), False), (fk.SCAFFOLD(), True)]:
        result = flat.train(
            two.task, two.federation, method, **{**given, "seed": empty, "keep_client_states": True}
        )
        assert bool(result.client_states) == kept


def test_where_nobody_is_drawn_the_round_is_noise_alone() -> None:
    """Engines need somebody to run, so a cohort is drawn again: who is in it must not count."""
    two = tiny_net([4, 5])
    given: dict[str, Any] = {**OPTIONS, "cohort": 1, "sampling": "bernoulli", "rounds": 12}
    population = Population.of(settings_of(two.task, two.federation, fk.FedAvg(), **given))
    empty = [population.cohort(r, 12, population.draw(r)).redrawn for r in range(12)]
    assert 0 < sum(empty) < 12
    played = play(two, private(clip=1.0, noise=1e-9), **given)
    x = [two.x0, *(one.models["x"] for one in played)]
    assert [float(np.abs(after - before).max()) < 1e-7 for before, after in pairwise(x)] == empty


@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
def test_the_history_tells_epsilon_after_every_round(sampling: Any) -> None:
    """Of stages too, whose rounds are composed: FedDyn's clients keep memories, FedAvg's do not."""
    staged = fk.private(fk.stages((fk.FedDyn(0.1), 2), fk.FedAvg()), clip=CLIP, noise=4.0, delta=DELTA)
    cohort = 8 if sampling == "bernoulli" else 5
    for method, memories in ((private(noise=4.0), [False] * 3), (staged, [True, True, False])):
        rows = [one.row for one in play(PROBLEM, method, **{**OPTIONS, "cohort": cohort}, sampling=sampling)]
        spent = np.cumsum(
            [divergences(Mechanism(4.0, 10, cohort, sampling, keeps)) for keeps in memories], axis=0
        )
        expected = [epsilon_of(one.tolist(), DELTA) for one in spent]
        assert [row["epsilon"] for row in rows] == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_a_private_run_resumes_to_the_bit_with_its_epsilon(tmp_path: Path) -> None:
    task, federation, method = PROBLEM.task, PROBLEM.federation, private(fk.SCAFFOLD())
    given = {**OPTIONS, "keep_client_states": True, "checkpoint_every": 1}
    whole = flat.train(task, federation, method, **given)
    for rounds in (1, 3):
        last = flat.train(
            task, federation, method, **{**given, "rounds": rounds}, run_dir=tmp_path, resume=True
        )
    assert torch.equal(last.server.x, whole.server.x)
    assert [row["epsilon"] for row in last.history] == [row["epsilon"] for row in whole.history]
    with pytest.raises(fk.StorageError, match="its method is"):
        flat.train(
            task, federation, private(fk.SCAFFOLD(), noise=9.0), **given, run_dir=tmp_path, resume=True
        )


def norm_net() -> fk.Task:
    return fk.Task(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).double())


BY_TWO = fk.Work(steps=3, batch_size=3, lr=0.1, last_batch="merge")


REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "weighting = 'samples' lets a client with many samples count more": (private, {"weighting": "samples"}),
    "reducer = Median(): how far one client moves it is known for the mean": (
        private,
        {"reducer": fk.Median()},
    ),
    "delta = 0.2 with 10 clients: publishing one client's data whole would": (lambda: private(delta=0.2), {}),
    "the stage FedAvg(lr=1.0) is not private: write private(stages(…), …)": (
        lambda: fk.stages((private(), 1), fk.FedAvg()),
        {},
    ),
    "the stages have delta = 0.0001 and 0.001: give one": (
        lambda: fk.stages((private(delta=1e-4), 1), private()),
        {},
    ),
    "a stage ends by a rule": (lambda: fk.stages((private(), lambda rows: len(rows) > 1), private()), {}),
    "private(…) must stand outside": (lambda: fk.relaxed(private(), 0.1), {}),
    "it sends the sum of a walk's rates, which tells how many samples": (
        lambda: private(fk.FedNova()),
        {"work": fk.Work(epochs=1, batch_size=3, lr=0.1)},
    ),
    "it reads a client's size (facts)": (lambda: private(fk.SCAFFOLD(by_size=True)), {}),
    "by_size=True), beta=0.1": (lambda: private(fk.relaxed(fk.FedDyn(by_size=True), 0.1)), {}),
    "training changes the model's buffer '1.running_mean'": (private, {"task": norm_net(), "work": BY_TWO}),
    "private(private(…)): give one clip and one noise": (lambda: private(private()), {}),
    "on_divergence = 'rollback' plays rounds again by what was measured on clients' data": (
        private,
        {"on_divergence": "rollback"},
    ),
    "private: noise = 1.0 without clip and delta: noise hides only what is bounded; give all three": (
        lambda: fk.private(fk.FedAvg(), noise=1.0),
        {},
    ),
    "private: clip = 1.0, delta = 0.1 without noise: clipped uploads alone hide nothing": (
        lambda: fk.private(fk.FedAvg(), clip=1.0, delta=0.1),
        {},
    ),
    "Private: noise = 0.0: input should be greater than 0": (lambda: private(noise=0.0), {}),
    "Private: clip = -1.0: input should be greater than 0": (lambda: private(clip=-1.0), {}),
    "'x' is not a method": (lambda: fk.private("x", 1.0, 1.0, 0.1), {}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_would_break_the_promise_is_refused(message: str) -> None:
    make, changed = REFUSED[message]
    options = {"task": PROBLEM.task, **OPTIONS, **changed}
    with pytest.raises(fk.ConfigError) as caught:
        flat.train(options.pop("task"), PROBLEM.federation, make(), **options)
    assert message in str(caught.value)


def test_constant_buffers_are_no_statistics() -> None:
    model = nn.Sequential(nn.Linear(3, 4)).double()
    model.register_buffer("mean", torch.ones(2).double())
    fk.train(fk.Task(model), PROBLEM.federation, private(), **{**OPTIONS, "rounds": 1})


def test_private_reads_back_from_its_text() -> None:
    from fedkeel.experiments.expression import parse_method

    for made in (private(), fk.private(fk.stages((fk.FedDyn(0.1), 0.5), fk.FedAvg()), 1.0, 2.0, 1e-6)):
        assert parse_method(repr(made)) == made


def test_without_the_package_the_command_to_install_it_is_printed() -> None:
    code = (
        "import sys; sys.modules['dp_accounting'] = None\n"
        "from fedkeel.core.privacy import epsilon\n"
        "epsilon(noise=1.0, clients=10, cohort=5, rounds=1, delta=1e-3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'accounts for privacy with dp-accounting: pip install "fedkeel[private]"' in done.stderr
