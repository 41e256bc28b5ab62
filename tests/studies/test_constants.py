"""The constants study on losses whose constants are known, and what it says where they are not."""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import settings_of
from torch import nn

import fedkeel as fk
from fedkeel.common.errors import ConfigError
from fedkeel.studies.constants import Effort, frontier
from fedkeel.studies.constants import study as constants_study
from fedkeel.studies.constants.landscape import ClientLoss, LossLandscape, gaussian, power_iteration
from fedkeel.studies.constants.measurements import measure_gradients, measure_noise, measure_samples
from fedkeel.studies.constants.programs import lowest, tightest
from fedkeel.tensors.streams import Stream


def study(task, federation, algorithm, *, effort, **options):
    """Measure the constants of a run with the keywords of `train`."""
    return constants_study(settings_of(task, federation, algorithm, rounds=1, **options), effort=effort)


SMALL = Effort(rounds=6, points=3, close=2, draws=4)


def half_square(output, target):
    return 0.5 * ((output[..., 0] - target) ** 2).mean()


def linear(clients, start=None):
    """A task and a federation: f_i(w) = ½·mean (x·w − y)² in float64, from w = 0 or a given start."""
    size = clients[0][0].shape[1]
    model = nn.Linear(size, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.zeros(1, size) if start is None else torch.from_numpy(start)[None])
    return fk.Task(model, half_square, {}), fk.Federation.from_arrays(clients)


def shared_optimum(clients=4, size=4, seed=0):
    """Clients with Hessians of eigenvalues 0.4 to 1 in different bases and one common minimiser."""
    rng = np.random.default_rng(seed)
    goal = rng.normal(size=size)
    data = []
    for _ in range(clients):
        basis, _ = np.linalg.qr(rng.normal(size=(size, size)))
        x = math.sqrt(size) * np.diag(np.sqrt(np.linspace(0.4, 1.0, size))) @ basis.T
        data.append((x, x @ goal))
    return data


def hessians(data):
    return [x.T @ x / len(x) for x, _ in data]


def scattered(seed=1, clients=3, samples=6, size=3):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(samples, size)), rng.normal(size=samples) + 2 * i) for i in range(clients)]


def landscape(data, work, samples=100, seed=0):
    task, federation = linear(data)
    run = settings_of(task, federation, fk.FedAvg(), rounds=1, cohort=1, work=work, seed=seed)
    return LossLandscape(run, torch.device("cpu"), range(len(data)), samples, Stream(seed))


@pytest.fixture(scope="module")
def quadratic():
    data = shared_optimum()
    task, federation = linear(data)
    work = fk.Work(steps=2, lr=0.25)
    found = study(task, federation, fk.FedAvg(), cohort=4, work=work, effort=Effort(rounds=60, close=4))
    return data, found


@pytest.mark.slow
def test_a_quadratic_gives_its_constants_to_one_per_cent(quadratic):
    data, found = quadratic
    bottom = np.linalg.eigvalsh(np.mean(hessians(data), axis=0))[0]
    close = {
        "L": 1.0,
        "L_power": 1.0,
        "L_pairs": 1.0,
        "tau1": math.sqrt(2 * bottom),
        "tau2": math.sqrt(2),
        "b": 0.5,
        "beta": 1.0,
    }
    for name, value in close.items():
        assert found[name] == pytest.approx(value, rel=0.01), name
    assert found["a"] == pytest.approx(0, abs=0.01)
    assert found["alpha"] == pytest.approx(0, abs=0.01)
    assert found["sigma_l2"] == 0
    assert found.estimates["D"].value == pytest.approx(found.start_loss, rel=0.01)
    assert found.fit.promising


def test_every_estimate_has_samples_a_spread_and_a_reason(quadratic):
    _, found = quadratic
    for name, one in found.estimates.items():
        assert one.low <= one.value * (1 + 1e-9), name
        assert one.value <= one.high * (1 + 1e-9), name
        assert one.how, name
        assert one.samples > 0 or name == "sigma_l2", name


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers():
    task, federation = linear(scattered())
    work = fk.Work(steps=2, lr=0.05, batch_size=2)
    first, again, other = (
        study(task, federation, fk.FedAvg(), cohort=2, work=work, seed=seed, effort=SMALL)
        for seed in (0, 0, 1)
    )
    assert first.as_dict() == again.as_dict()
    assert first.as_dict() != other.as_dict()


@pytest.mark.slow
def test_where_the_loss_stays_above_zero_tau1_goes_to_zero_and_the_study_says_so():
    task, federation = linear(scattered())
    work = fk.Work(steps=1, lr=0.2)
    found = study(
        task, federation, fk.FedAvg(), cohort=3, work=work, effort=Effort(rounds=40, points=5, close=2)
    )
    assert found["tau1"] < 0.05
    assert any("does not go to zero here, and there τ1 → 0" in note for note in found.notes)


def test_a_piece_of_the_clients_is_named():
    task, federation = linear(shared_optimum(clients=6))
    effort = Effort(rounds=3, points=2, clients=3, close=2)
    found = study(
        task,
        federation,
        fk.FedAvg(),
        cohort=2,
        work=fk.Work(steps=1, lr=0.1, weight_decay=0.1),
        effort=effort,
    )
    assert any("3 of 6 clients" in note for note in found.notes)
    assert any("weight decay" in note for note in found.notes)


def test_a_pilot_that_diverges_is_cut_and_told():
    task, federation = linear(shared_optimum())
    work = fk.Work(steps=2, lr=30.0)
    effort = Effort(rounds=9, points=4, close=1)
    with pytest.raises(ConfigError, match="moved nowhere"):
        study(task, federation, fk.FedAvg(), cohort=4, work=fk.Work(steps=90, lr=1e4), effort=effort)
    found = study(task, federation, fk.FedAvg(), cohort=4, work=work, effort=effort)
    assert found.notes[0].startswith("The pilot diverged and was cut: round 2: the model has grown")
    assert not any(math.isnan(one.value) for one in found.estimates.values())


def test_a_loss_below_zero_is_refused():
    model = nn.Linear(2, 1, bias=False).double()
    rng = np.random.default_rng(0)
    task = fk.Task(model, lambda output, target: output.mean() * 0.1 - 5.0 + (output**2).mean(), {})
    federation = fk.Federation.from_arrays([(rng.normal(size=(3, 2)), np.zeros(3))] * 2)
    with pytest.raises(ConfigError, match="the theories take a loss of 0 or more"):
        study(task, federation, fk.FedAvg(), cohort=2, work=fk.Work(steps=1, lr=0.01), effort=SMALL)


def test_without_scipy_the_install_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ConfigError, match=r'pip install "fedkeel\[theory\]"'):
        frontier(np.ones(2), np.ones(2))


def test_curvature_is_that_of_the_hessian():
    data = shared_optimum()
    point = (land := landscape(data, fk.Work(steps=1))).point(torch.zeros(4), torch.zeros(0))
    direction = gaussian(Stream(1), point.x)
    product = land.hessian_product(2, point, direction)
    np.testing.assert_allclose(product.numpy(), hessians(data)[2] @ direction.numpy(), rtol=1e-12)
    found = power_iteration(ClientLoss(land, 2, point), direction, 200)
    assert found.size == pytest.approx(1.0, rel=1e-4)


@pytest.mark.slow
def test_minibatch_noise_is_the_variance_of_drawing_without_replacement():
    data = scattered(samples=6)
    work = fk.Work(steps=1, batch_size=2)
    land = landscape(data, work)
    point = land.point(torch.zeros(3), torch.zeros(0))
    x, y = data[1]
    each = -y[:, None] * x
    exact = ((each - each.mean(0)) ** 2).sum() / 5 / 2 * (1 - 2 / 6)
    found = measure_noise(ClientLoss(land, 1, point), work, 3000, Stream(0))
    assert found.variance == pytest.approx(exact, rel=0.05)
    assert found.square == pytest.approx(exact + (each.mean(0) ** 2).sum(), rel=0.05)
    assert (
        measure_noise(ClientLoss(land, 1, point), fk.Work(steps=1, batch_size=6), 5, Stream(0)).variance == 0
    )


def test_interpolation_a_is_of_every_sample_and_not_of_their_mean_square():
    """Assumption 4 bounds ‖g_z‖ for every sample z; E‖g‖² is smaller."""
    data = scattered(samples=6)
    land = landscape(data, fk.Work(steps=1, batch_size=1))
    w = np.array([0.3, -0.2, 0.5])
    loss = ClientLoss(land, 1, land.point(torch.from_numpy(w), torch.zeros(0)))
    x, y = data[1]
    each = (x @ w - y)[:, None] * x
    lengths, apart = (each**2).sum(1), ((each - each.mean(0)) ** 2).sum(1)
    found = measure_samples(loss, 6, Stream(0))
    assert found == pytest.approx((lengths.max(), apart.max(), (each.mean(0) ** 2).sum(), 6))
    assert lengths.max() > 1.5 * lengths.mean()
    few = measure_samples(loss, 2, Stream(0))  # the one with the largest loss, and one more
    assert few.taken == 2
    assert few.longest2 >= lengths[np.argmax((x @ w - y) ** 2)] * (1 - 1e-12)


def test_the_study_takes_a_from_single_samples_and_one_without_noise():
    task, federation = linear(scattered(samples=6))
    noisy, quiet = (
        study(
            task,
            federation,
            fk.FedAvg(),
            cohort=3,
            work=fk.Work(steps=1, lr=0.01, batch_size=batch),
            effort=Effort(rounds=2, points=2, close=3, draws=30, single=6),
        )
        for batch in (3, None)
    )
    data = scattered(samples=6)
    start = max(
        float(np.linalg.norm(y[:, None] * x, axis=1).max() / np.linalg.norm((y[:, None] * x).mean(0)))
        for x, y in data
    )
    assert noisy["interpolation_a"] >= start * (1 - 1e-6)
    assert noisy.estimates["interpolation_a"].samples == 2 * 3 * 6
    assert quiet["interpolation_a"] == 1
    assert quiet["sample_gradient"] == pytest.approx(noisy["sample_gradient"], rel=0.2)


def test_mu_is_the_polyak_lojasiewicz_constant_of_the_pilot(quadratic):
    """On quadratics with f* = 0, ‖∇f‖² ≥ 2λ_min·f, and late models come close to equality."""
    data, found = quadratic
    bottom = np.linalg.eigvalsh(np.mean(hessians(data), axis=0))[0]
    assert found["mu"] == pytest.approx(2 * bottom, rel=0.02)
    assert found["mu"] >= 2 * bottom * (1 - 1e-9)
    assert found["mu"] == pytest.approx(found["tau1"] ** 2)
    assert found.estimates["mu"].high >= found["mu"]


def test_a_measurement_is_the_mean_and_spread_of_the_clients_gradients():
    data = scattered()
    land = landscape(data, fk.Work(steps=1))
    w = np.array([0.3, -0.2, 0.5])
    weights = [0.5, 0.25, 0.25]
    found = measure_gradients(
        land, land.point(torch.from_numpy(w), torch.zeros(0)), weights, 3, torch.ones(3)
    )
    slopes = np.array([x.T @ (x @ w - y) / len(y) for x, y in data])
    mean = np.average(slopes, axis=0, weights=weights)
    assert found.loss == pytest.approx(
        sum(p * 0.5 * ((x @ w - y) ** 2).mean() for p, (x, y) in zip(weights, data, strict=True))
    )
    assert found.gradient2 == pytest.approx(mean @ mean)
    assert found.spread == pytest.approx(np.average(((slopes - mean) ** 2).sum(1), weights=weights))
    assert found.along == pytest.approx(mean.sum())


@pytest.mark.slow
def test_relaxed_methods_tell_the_product_their_proof_drops():
    task, federation = linear(scattered())
    work = fk.Work(steps=2, lr=0.05)
    everyone, some = (
        study(task, federation, fk.FedInit(0.1), cohort=cohort, work=work, effort=SMALL).along
        for cohort in (3, 1)
    )
    assert everyone == pytest.approx(0, abs=1e-9)
    assert abs(some) > 1e-3
    assert study(task, federation, fk.FedAvg(), cohort=3, work=work, effort=SMALL).along is None


@pytest.mark.slow
def test_classes_and_buffers_are_measured_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 3)).astype(np.float32), rng.integers(0, 2, 8)) for _ in range(3)]
    federation = fk.Federation.from_arrays(clients)
    work = fk.Work(steps=2, lr=0.1, batch_size=4)
    found = study(fk.Task(model), federation, fk.FedAvg(), cohort=3, work=work, effort=SMALL)
    assert found["sigma_l2"] > 0
    assert found["U"] >= found.start_loss
    assert found["interpolation_a"] > 1


numbers = st.floats(0, 10, allow_subnormal=False)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12))
def test_the_frontier_holds_on_all_samples_and_no_pair_beats_it(samples):
    c, r = (np.array(column) for column in zip(*samples, strict=True))
    found = frontier(c, r)
    for p, q in found.corners:
        assert q == pytest.approx(lowest(c, r, p), abs=1e-9)
    assert all(one.p < other.p and one.q > other.q for one, other in pairwise(found.corners))
    for share in (0.1, 0.5, 0.9):  # every other pair on the edge weighs as much as some corner or more
        p = found.corners[-1].p * share
        for weight in (0.01, 1.0, 100.0):
            best = min(weight * one.p + one.q for one in found.corners)
            assert weight * p + lowest(c, r, p) >= best - 1e-4 * (1 + best)


def test_the_tightest_pair_holds_and_respects_the_least_value():
    own, mean = np.array([1.0, 2.0, 4.0]), np.array([3.0, 4.5, 8.0])
    pair = tightest(own, mean, least_p=1.0)
    assert pair.p >= 1
    assert np.all(pair.q + pair.p * own >= mean - 1e-12)
    assert sum(pair.q + pair.p * own - mean) <= sum(4.0 + own - mean) + 1e-9
