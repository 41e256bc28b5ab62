"""Robust reducers: each equals a direct computation, and has the properties that it is chosen for."""

from __future__ import annotations

from typing import Any, NamedTuple

import flat
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import settings_of, tiny_net
from reference import robust
from torch import Tensor

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import RoundRequest, Upload
from fedkeel.reducers import REDUCERS
from fedkeel.reducers.base import Reducer
from fedkeel.running.population import Population
from fedkeel.tensors.records import ClientMemory, leaves


class Inner(NamedTuple):
    delta: Tensor
    length: Tensor


class Up(NamedTuple):
    inner: Inner
    delta_c: Tensor


CLIENTS, D = 9, 3
EQUAL, UNEQUAL = [1] * CLIENTS, [3, 1, 4, 1, 5, 2, 2, 3, 1]
ROBUST = [
    fk.Median(),
    fk.TrimmedMean(0.2),
    fk.NormClip(),
    fk.Krum(2),
    fk.MultiKrum(0.2),
    fk.GeometricMedian(),
]
SAFE = [rule for rule in ROBUST if not isinstance(rule, fk.NormClip)]  # an outlier does not move them at all
each = pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: type(rule).__name__)


def uploads(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(CLIENTS, D), (CLIENTS, 1), (CLIENTS, D), (CLIENTS, 2)]
    return tuple(rng.normal(size=shape) for shape in shapes)  # type: ignore[return-value]


def reduced(rule: Reducer, parts: Any, weights: list[int] = EQUAL) -> Any:
    """Reduce in chunks of eight, as engines do."""
    delta, length, delta_c, buffers = (torch.from_numpy(np.asarray(part)) for part in parts)
    chunks = []
    for start in range(0, len(weights), 8):
        part = None
        for i in range(start, min(start + 8, len(weights))):
            upload = Upload(Up(Inner(delta[i], length[i]), delta_c[i]), buffers[i])
            part = rule.add(part, float(weights[i]), upload)
        chunks.append(part)
    found = rule.merge(chunks)
    return [
        part.numpy()
        for part in (found.up.inner.delta, found.up.inner.length, found.up.delta_c, found.buffers)
    ]


@pytest.mark.parametrize("weights", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.45])
def test_rules_on_coordinates_reduce_every_number(weights: list[int], share: float) -> None:
    parts = uploads()
    for found, part in zip(reduced(fk.Median(), parts, weights), parts, strict=True):
        np.testing.assert_allclose(found, robust.median(part, weights), rtol=1e-12)
    for found, part in zip(reduced(fk.TrimmedMean(share), parts, weights), parts, strict=True):
        np.testing.assert_allclose(found, robust.trimmed_mean(part, weights, share), rtol=1e-10)


DIRECT = {
    fk.NormClip(): lambda v, w: robust.norm_clip(v, w, None),
    fk.NormClip(1.1): lambda v, w: robust.norm_clip(v, w, 1.1),
    fk.Krum(2): lambda v, w: robust.krum(v, 2),
    fk.Krum(0.3): lambda v, w: robust.krum(v, 3),
    fk.MultiKrum(2): lambda v, w: robust.multi_krum(v, w, 2, 7),
    fk.MultiKrum(1, keep=4): lambda v, w: robust.multi_krum(v, w, 1, 4),
}


@pytest.mark.parametrize("weights", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("rule", DIRECT, ids=repr)
def test_rules_on_norms_take_the_record_as_one_vector_or_each_part(rule: Any, weights: list[int]) -> None:
    """Lengths and buffers are no moves: they go by their median, whatever the rule."""
    for seed in range(5):
        delta, length, delta_c, buffers = parts = uploads(seed)
        together = DIRECT[rule](np.concatenate([delta, delta_c], axis=1), weights)
        expected = [
            together[:D],
            robust.median(length, weights),
            together[D:],
            robust.median(buffers, weights),
        ]
        for found, wanted in zip(reduced(rule, parts, weights), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-10)
        apart = type(rule)(**{**vars_of(rule), "per": "part"})
        found = reduced(apart, parts, weights)
        np.testing.assert_allclose(found[0], DIRECT[rule](delta, weights), rtol=1e-10)
        np.testing.assert_allclose(found[2], DIRECT[rule](delta_c, weights), rtol=1e-10)


def vars_of(rule: Any) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}


@pytest.mark.parametrize("weights", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_the_geometric_median_is_the_minimiser_that_a_general_optimiser_finds(weights: list[int]) -> None:
    delta, _, delta_c, _ = parts = uploads(1)
    record = robust.geometric_median(np.concatenate([delta, delta_c], axis=1), weights)
    rule = fk.GeometricMedian(tolerance=1e-12, iterations=5000)
    found = reduced(rule, parts, weights)
    np.testing.assert_allclose(np.concatenate([found[0], found[2]]), record, atol=1e-5)
    found = reduced(fk.GeometricMedian(1e-12, 5000, per="part"), parts, weights)
    np.testing.assert_allclose(found[0], robust.geometric_median(delta, weights), atol=1e-5)


def test_the_geometric_median_leaves_an_upload_that_the_median_of_coordinates_happens_to_be() -> None:
    """From (0, 0), the median of each coordinate, Weiszfeld's plain iteration would never move."""
    values = np.array([[0.0, 0], [2, -1], [2, -1], [-1, 2], [-1, 2]])
    parts = [torch.from_numpy(values)]
    (found,) = fk.GeometricMedian(1e-13, 10_000).reduce_parts(parts, torch.ones(5, dtype=torch.float64))
    np.testing.assert_allclose(found, robust.geometric_median(values, [1] * 5), atol=1e-5)


@each
def test_equal_uploads_are_returned_to_the_bit(rule: Any) -> None:
    parts = [np.repeat(part[:1], CLIENTS, axis=0) for part in uploads()]
    tolerance = 1e-15 if isinstance(rule, fk.NormClip | fk.TrimmedMean | fk.MultiKrum) else 0.0  # they divide
    for found, part in zip(reduced(rule, parts), parts, strict=True):
        np.testing.assert_allclose(found, part[0], rtol=tolerance, atol=0)


@each
@settings(max_examples=25)
@given(order=st.permutations(range(CLIENTS)), seed=st.integers(0, 20))
def test_the_order_of_clients_does_not_matter(rule: Any, order: list[int], seed: int) -> None:
    parts = uploads(seed)
    shuffled = reduced(rule, [part[order] for part in parts], [UNEQUAL[i] for i in order])
    for found, wanted in zip(shuffled, reduced(rule, parts, UNEQUAL), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: type(rule).__name__)
@settings(max_examples=25)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 20))
def test_longer_uploads_give_a_longer_result(rule: Any, scale: float, seed: int) -> None:
    parts = uploads(seed)
    longer = reduced(rule, [scale * part for part in parts], UNEQUAL)
    for found, wanted in zip(longer, reduced(rule, parts, UNEQUAL), strict=True):
        np.testing.assert_allclose(found, scale * wanted, rtol=1e-4, atol=1e-6 * scale)


@pytest.mark.parametrize("rule", SAFE, ids=lambda rule: type(rule).__name__)
@settings(max_examples=40)
@given(
    client=st.integers(0, CLIENTS - 1),
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=D, max_size=D),
    far=st.sampled_from([1e6, 1e12, 1e30, 1e200, float("inf"), float("nan")]),
)
def test_one_outlier_at_infinity_stays_within_the_others(
    rule: Any, client: int, signs: list[float], far: float
) -> None:
    parts = [part.copy() for part in uploads()]
    for part in parts:
        part[client] = far * np.resize(signs, part.shape[1])
    others = [np.delete(part, client, axis=0) for part in parts]
    for found, honest in zip(reduced(rule, parts), others, strict=True):
        assert (found >= honest.min(axis=0) - 1e-9).all()
        assert (found <= honest.max(axis=0) + 1e-9).all()


@given(
    far=st.sampled_from([1e6, 1e30, 1e200, float("inf"), float("nan")]), client=st.integers(0, CLIENTS - 1)
)
def test_a_clipped_outlier_moves_the_mean_by_one_bound_at_most(far: float, client: int) -> None:
    parts = [part.copy() for part in uploads()]
    honest = robust.norm_clip(np.delete(np.hstack(parts[::2]), client, axis=0), [1] * (CLIENTS - 1), 0.5)
    for part in parts:
        part[client] = far
    found = reduced(fk.NormClip(0.5), parts)
    moved = np.concatenate([found[0], found[2]]) - honest * (CLIENTS - 1) / CLIENTS
    assert np.linalg.norm(moved) <= 0.5 / CLIENTS + 1e-12


@pytest.mark.parametrize("kind", REDUCERS, ids=lambda kind: kind.__name__)
def test_a_reducer_is_a_value_that_its_text_reads_back(kind: Any) -> None:
    from fedkeel.experiments.expression import parse_reducer

    made = kind()
    assert parse_reducer(repr(made)) == made == kind()
    assert parse_reducer(kind.__name__.lower()) == made


RAGGED = tiny_net([3, 8, 5, 11, 4, 9, 6, 7, 2, 10])
IN_A_RUN = {
    fk.Median(): robust.median,
    fk.TrimmedMean(0.25): lambda v, w: robust.trimmed_mean(v, w, 0.25),
    **DIRECT,
    fk.GeometricMedian(1e-12, 5000): robust.geometric_median,
}


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("rule", IN_A_RUN, ids=repr)
def test_the_servers_step_takes_the_reduced_record_where_the_method_has_the_mean(
    rule: Any, weighting: Any
) -> None:
    """Ragged clients: x, SCAFFOLD's c and FedDyn's h; what clients keep is what the mean leaves them."""
    work = fk.Work(epochs=1, batch_size=3, lr=0.05)
    given: dict[str, Any] = {"rounds": 1, "cohort": 9, "work": work, "seed": 3, "weighting": weighting}
    for method in (fk.SCAFFOLD(), fk.FedDyn(0.2)):
        settings_ = settings_of(RAGGED.task, RAGGED.federation, method, **given)
        population, oracle = Population.of(settings_), Oracle(settings_.task, torch.device("cpu"))
        drawn, x0 = population.draw(0), oracle.point.clone()
        sizes = [len(RAGGED.clients[i][1]) if weighting == "samples" else 1 for i in drawn]
        share = sum(sizes) / (65 if weighting == "samples" else 10)
        down, memory = method.broadcast(method.init(x0)), ClientMemory(method.init_client(x0))
        buffers = oracle.buffers.clone()
        request = RoundRequest(method, 0, work.lr, down, buffers, drawn, population.weigh(drawn))
        results = [ClientRunner(settings_, oracle).run(request, i, memory) for i in drawn]
        long = [[part.numpy() for _, part in leaves(one.upload.up)] for one in results]
        whole = IN_A_RUN[rule](np.array([np.concatenate(parts) for parts in long]), sizes)
        delta, rest = whole[: len(x0)], whole[len(x0) :]
        found = flat.train(
            RAGGED.task,
            RAGGED.federation,
            method,
            **given,
            reducer=rule,
            keep_client_states=True,
            engine="serial",
        )
        close = 1e-5 if isinstance(rule, fk.GeometricMedian) else 1e-10
        if isinstance(method, fk.SCAFFOLD):
            np.testing.assert_allclose(found.server.x, x0.numpy() + delta, atol=close)
            np.testing.assert_allclose(found.server.c, share * rest, atol=close)
        else:
            np.testing.assert_allclose(found.server.h, -0.2 * share * delta, atol=close)
            np.testing.assert_allclose(found.server.x, x0.numpy() + (1 + share) * delta, atol=close)
        for client, one in zip(drawn, results, strict=True):
            assert torch.equal(next(iter(found.client_states[client])), next(iter(one.memory.method)))


BAD = {
    "TrimmedMean: share = 0.5: input should be less than 0.5": lambda: fk.TrimmedMean(0.5),
    "NormClip: norm = 0: input should be greater than 0": lambda: fk.NormClip(0),
    "Krum: hostile = 0.5: give how many of a cohort may be hostile": lambda: fk.Krum(0.5),
    "MultiKrum: keep = 0: input should be greater than or equal to 1": lambda: fk.MultiKrum(1, keep=0),
    "GeometricMedian: iterations = 0: input should be": lambda: fk.GeometricMedian(iterations=0),
    "6 clients, of which 2 may be hostile: it needs at least 2·2 + 3 = 7: enlarge the cohort, or lower": (
        lambda: fk.Krum(2).check(6)
    ),
    "keep = 8 of a cohort of 9, of which 2 may be hostile: give 1 to 7": lambda: fk.MultiKrum(
        2, keep=8
    ).check(9),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_arguments_are_refused_with_the_reason(message: str) -> None:
    with pytest.raises(fk.ConfigError) as caught:
        BAD[message]()
    assert message in str(caught.value)


def test_a_round_with_too_few_clients_for_krum_says_so() -> None:
    """Cohorts that vary in size may be too small in some round: exit code 5."""
    parts = [part[:4] for part in uploads()]
    with pytest.raises(fk.TooFewClients, match=r"Krum: 4 clients, of which 1 may be hostile: it needs"):
        reduced(fk.Krum(1), parts, [1] * 4)
