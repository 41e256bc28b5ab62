"""Splits: every property holds for any labels, any number of clients, any concentration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkeel.data.allocation import (
    dirichlet_logits,
    draw_classes,
    normalise,
    raise_to_minimum,
    redraw_exhausted,
)
from fedkeel.data.partition import IID, DirichletByClass, DirichletByClient, Natural, Pathological

alphas = st.sampled_from([5e-324, 1e-300, 1e-12, 1e-3, 0.1, 1.0, 7.5, 1e4, 1e300])
few = settings(max_examples=40, deadline=None)


@st.composite
def labelled(draw):
    """Labels of a few, possibly very unequal classes, and a number of clients that fits."""
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    labels = np.repeat(np.arange(len(counts)) * 3, counts)
    np.random.default_rng(draw(st.integers(0, 9))).shuffle(labels)
    return labels, draw(st.integers(1, len(labels)))


def run(splitter, labels, clients, seed=0, groups=None):
    shares = splitter(labels, clients, np.random.default_rng(seed), groups)
    assert len(shares) == clients
    assert all(share.dtype == np.int64 and len(share) > 0 for share in shares)
    assert all((np.diff(share) >= 0).all() for share in shares)
    return shares


def table(labels, shares):
    """Clients × classes counts."""
    classes = np.unique(labels)
    return np.array([[(labels[share] == c).sum() for c in classes] for share in shares])


def is_partition(shares, samples):
    return np.array_equal(np.sort(np.concatenate(shares)), np.arange(samples))


@few
@given(data=labelled(), balanced=st.booleans(), seed=st.integers(0, 5))
def test_iid_is_a_partition_into_equal_sizes(data, balanced, seed):
    labels, clients = data
    shares = run(IID(balanced=balanced), labels, clients, seed)
    sizes = [len(share) for share in shares]
    assert is_partition(shares, len(labels))
    assert max(sizes) - min(sizes) <= 1
    if balanced:
        counts = table(labels, shares)
        assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


@few
@given(data=labelled(), sigma=st.sampled_from([0.1, 1.0, 30.0]), balanced=st.booleans())
def test_lognormal_sizes_leave_nobody_empty(data, sigma, balanced):
    labels, clients = data
    assert is_partition(run(IID(balanced, lognormal=sigma), labels, clients), len(labels))
    assert is_partition(run(DirichletByClient(0.5, lognormal=sigma), labels, clients), len(labels))


def test_lognormal_sizes_have_the_spread_that_was_asked_for():
    shares = run(IID(lognormal=0.5), np.zeros(200_000, dtype=int), 400)
    logs = np.log([len(share) for share in shares])
    assert logs.std() == pytest.approx(0.5, rel=0.1)


def test_balanced_lognormal_clients_have_the_classes_in_proportion():
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(5), 2000))
    counts = table(labels, run(IID(balanced=True, lognormal=0.6), labels, 40))
    assert (np.abs(counts - counts.sum(axis=1, keepdims=True) / 5) <= 3).all()


@few
@given(data=labelled(), alpha=alphas, seed=st.integers(0, 5))
def test_dirichlet_by_class_is_a_partition(data, alpha, seed):
    labels, clients = data
    assert is_partition(run(DirichletByClass(alpha), labels, clients, seed), len(labels))


@few
@given(data=labelled(), alpha=alphas, minimum=st.integers(1, 5))
def test_dirichlet_by_class_keeps_its_minimum(data, alpha, minimum):
    labels, clients = data
    clients = max(1, clients // minimum)
    if clients * minimum > len(labels):
        minimum = len(labels) // clients
    shares = run(DirichletByClass(alpha, min_samples=minimum), labels, clients)
    assert is_partition(shares, len(labels))
    assert min(len(share) for share in shares) >= minimum


@few
@given(data=labelled(), alpha=alphas, seed=st.integers(0, 5))
def test_dirichlet_by_client_is_a_partition_into_equal_sizes(data, alpha, seed):
    labels, clients = data
    shares = run(DirichletByClient(alpha), labels, clients, seed)
    sizes = [len(share) for share in shares]
    assert is_partition(shares, len(labels))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow
@few
@given(data=labelled(), alpha=alphas, factor=st.integers(1, 4))
def test_refilled_pools_repeat_a_sample_within_a_client_only_if_they_must(data, alpha, factor):
    labels, clients = data
    shares = run(DirichletByClient(alpha, replacement=True), labels, clients * factor)
    assert sum(map(len, shares)) == max(len(labels), clients * factor)
    for share in shares:
        for c in np.unique(labels[share]):
            times = np.unique(share[labels[share] == c], return_counts=True)[1]
            wanted, there = (labels[share] == c).sum(), (labels == c).sum()
            assert times.max() <= -(-wanted // there)


@pytest.mark.parametrize(
    ("make", "purity"),
    [
        (DirichletByClass, 0.95),
        (lambda alpha: DirichletByClient(alpha, replacement=True), 0.95),
        (DirichletByClient, 0.5),  # favourite classes run out, so clients must take others too
    ],
)
def test_a_small_alpha_gives_one_class_clients_and_a_large_one_mixtures(make, purity):
    labels = np.arange(10_000) % 10
    pure = table(labels, run(make(1e-3), labels, 20))
    mixed = table(labels, run(make(1e4), labels, 20))
    assert np.median(pure.max(axis=1) / pure.sum(axis=1)) > purity
    assert (mixed.min(axis=1) > 20).all()


@pytest.mark.parametrize("alpha", [0.05, 0.5, 5.0])
def test_shares_have_the_moments_of_the_dirichlet(alpha):
    shares = normalise(dirichlet_logits(alpha, (20_000, 4), np.random.default_rng(0)), alpha)
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares.mean(axis=0), 0.25, atol=0.01)
    assert np.allclose(shares.var(axis=0), 0.25 * 0.75 / (4 * alpha + 1), rtol=0.05)


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-5])
def test_a_tiny_alpha_still_has_shares_that_sum_to_one(alpha):
    shares = normalise(dirichlet_logits(alpha, (1000, 7), np.random.default_rng(0)), alpha)
    assert np.isfinite(shares).all()
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares.mean(axis=0), 1 / 7, atol=0.06)


def test_a_client_draws_from_its_own_prior_until_a_class_runs_out():
    """One class is rare: with a large alpha all clients want it equally and it must run out fairly."""
    labels = np.repeat([0, 1], [9_000, 1_000])
    counts = table(labels, run(DirichletByClient(1e6), labels, 10))
    assert (np.abs(counts[:, 1] - 100) < 50).all()


def test_even_shares_below_one_sample_do_not_pile_up_on_the_same_clients():
    labels = np.arange(1000) % 10
    sizes = [len(share) for share in run(DirichletByClass(1e8), labels, 200)]
    assert np.std(sizes) < 3


@few
@given(classes=st.integers(1, 9), each=st.integers(1, 9), clients=st.integers(1, 40), seed=st.integers(0, 5))
def test_pathological_clients_hold_exactly_so_many_classes(classes, each, clients, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), 40))
    if each > classes or clients * each < classes:
        with pytest.raises(ValueError, match="Pathological"):
            run(Pathological(each), labels, clients, seed)
        return
    shares = run(Pathological(each), labels, clients, seed)
    counts = table(labels, shares)
    assert is_partition(shares, len(labels))
    assert ((counts > 0).sum(axis=1) == each).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1


def test_pathological_says_which_class_is_too_small():
    labels = np.repeat([5, 6], [2, 100])
    with pytest.raises(ValueError, match="class 5 to 10 clients, but it has 2 samples"):
        run(Pathological(2), labels, 10)


@few
@given(data=labelled(), most=st.one_of(st.none(), st.integers(1, 5)), seed=st.integers(0, 5))
def test_natural_clients_are_the_groups(data, most, seed):
    groups, _ = data
    names = np.unique(groups)
    splitter = Natural(max_samples=most)
    assert splitter.clients(groups, groups) == len(names)
    shares = run(splitter, np.zeros(len(groups)), len(names), seed, groups)
    for name, share in zip(names, shares, strict=True):
        members = np.flatnonzero(groups == name)
        place = np.searchsorted(members, share[0])
        assert np.array_equal(share, members[place : place + len(share)])
        assert len(share) == min(len(members), most or len(members))


def test_natural_takes_some_groups_and_leaves_small_ones_out():
    groups = np.repeat([0, 1, 2, 3], [10, 2, 10, 10])
    shares = run(Natural(min_samples=5), groups, 2, groups=groups)
    assert all(len(np.unique(groups[share])) == 1 and groups[share][0] != 1 for share in shares)
    with pytest.raises(ValueError, match="use at most 3 clients"):
        run(Natural(min_samples=5), groups, 4, groups=groups)
    with pytest.raises(ValueError, match="this data has none"):
        run(Natural(), groups, 2)
    by_class = run(Natural(by="class"), groups, 4)
    assert [len(share) for share in by_class] == [10, 2, 10, 10]


@pytest.mark.parametrize(
    "splitter",
    [
        IID(),
        IID(balanced=True, lognormal=0.5),
        DirichletByClass(0.1),
        DirichletByClient(0.1),
        DirichletByClient(0.1, replacement=True),
        Pathological(2),
        Natural(by="class", max_samples=3),
    ],
    ids=repr,
)
def test_the_seed_alone_decides(splitter):
    labels = np.arange(300) % 6
    a, b, other = (run(splitter, labels, 6, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(a, other, strict=True))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 6))
def test_lifting_takes_from_the_largest_only(sizes, minimum):
    before = np.array(sizes)
    if before.sum() < minimum * len(before):
        return
    after = raise_to_minimum(before, minimum)
    assert after.sum() == before.sum()
    assert after.min() >= minimum
    cut = after < before
    if cut.any():
        assert after[cut].max() - after[cut].min() <= 1
        assert after[~cut].max(initial=0) <= max(after[cut].max() + 1, minimum)


@pytest.mark.parametrize(
    "splitter", [IID(), DirichletByClass(0.1), DirichletByClient(0.1), Pathological(1)], ids=repr
)
def test_more_clients_than_samples_is_refused_with_the_limit(splitter):
    with pytest.raises(ValueError, match="the data has 5; use at most 5 clients"):
        splitter(np.zeros(5, dtype=int), 6, np.random.default_rng(0), None)
    with pytest.raises(ValueError, match="clients is 0"):
        splitter(np.zeros(5, dtype=int), 0, np.random.default_rng(0), None)


@pytest.mark.parametrize(
    "splitter",
    [IID(balanced=True), DirichletByClass(1.0), DirichletByClient(1.0), Pathological(1), Natural(by="class")],
    ids=repr,
)
def test_splits_by_class_refuse_real_valued_targets(splitter):
    with pytest.raises(ValueError, match=r"needs one class number per sample.*use IID"):
        splitter(np.linspace(0, 1, 10), 2, np.random.default_rng(0), None)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DirichletByClass(0.0),
        lambda: DirichletByClass(float("nan")),
        lambda: DirichletByClass(0.1, min_samples=0),
        lambda: DirichletByClient(float("inf")),
        lambda: DirichletByClient(-1.0),
        lambda: IID(lognormal=-0.1),
        lambda: Pathological(0),
        lambda: Natural(max_samples=0),
        lambda: Natural(by="colour"),
    ],
)
def test_wrong_parameters_are_refused_when_written(make):
    with pytest.raises(ValueError, match=r"is |neither"):
        make()


def one_by_one(prior, count, owner, rng):
    """The same draw without any cleverness: a queue, one sample after the other."""
    left, got = count.copy(), np.zeros_like(prior)
    for client in rng.permutation(owner):
        weights = prior[client] * (left > 0)
        c = rng.choice(len(count), p=weights / weights.sum())
        left[c] -= 1
        got[client, c] += 1
    return got


@pytest.mark.slow
def test_redrawing_late_draws_of_exhausted_classes_equals_drawing_one_by_one():
    rng = np.random.default_rng(0)
    prior = np.array([[0.7, 0.2, 0.1], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8]])
    count, owner = np.array([3, 6, 3]), np.repeat([0, 1, 2], 4)
    runs = 1500
    slow = sum(one_by_one(prior, count, owner, rng) for _ in range(runs)) / runs
    fast = np.zeros_like(prior)
    for _ in range(runs):
        drawn = draw_classes(prior, owner, rng)
        clients, classes = redraw_exhausted(owner, drawn, np.log(prior), alpha=1.0, count=count, rng=rng)
        assert np.array_equal(np.bincount(classes), count)
        np.add.at(fast, (clients, classes), 1 / runs)
    assert np.abs(slow - fast).max() < 0.1
