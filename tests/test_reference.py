"""Every method equals the independent NumPy reference, round by round, in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from problems import Problem, expect, play, quadratic, tiny_net
from selecting import one_in

import fedkeel as fk

ROUNDS = 4
SIZES = {"equal": [6] * 5, "ragged": [3, 8, 5, 11, 4]}
HARDEST = ("tiny net", 2, 0.8, "ragged")  # of the grid's settings; the others are slow, being many
PROBLEMS = {"least squares": quadratic, "tiny net": tiny_net}

# fedkeel's method, the reference's name and knobs, and what must agree beside the model:
# the server's field → the reference's key, and the client's field → the reference's key.
CASES: dict[str, tuple[Any, str, dict[str, Any], dict[str, str], dict[str, str]]] = {
    "FedAvg": (fk.FedAvg(0.7), "FedAvg", {"server_lr": 0.7}, {}, {}),
    "FedProx": (fk.FedProx(0.3), "FedProx", {"mu": 0.3}, {}, {}),
    "FedAvgM": (fk.FedAvgM(0.6, 0.8), "FedAvgM", {"beta": 0.6, "server_lr": 0.8}, {"v": "v"}, {}),
    "FedAdam": (fk.FedAdam(), "FedAdam", {}, {"m": "m", "v": "v"}, {}),
    "FedYogi": (fk.FedYogi(), "FedYogi", {}, {"m": "m", "v": "v"}, {}),
    "FedAdagrad": (fk.FedAdagrad(beta1=0.2), "FedAdagrad", {"beta1": 0.2}, {"m": "m", "v": "v"}, {}),
    "FedAdam corrected": (
        fk.FedAdam(0.05, v0=0.0, bias_correction=True),
        "FedAdam",
        {"server_lr": 0.05, "v0": 0.0, "bias_correction": True},
        {"m": "m", "v": "v"},
        {},
    ),
    "FedYogi corrected": (
        fk.FedYogi(0.05, v0=0.3, bias_correction=True),
        "FedYogi",
        {"server_lr": 0.05, "v0": 0.3, "bias_correction": True},
        {"m": "m", "v": "v"},
        {},
    ),
    "FedAdagrad corrected": (
        fk.FedAdagrad(0.05, beta1=0.2, v0=0.0, bias_correction=True),
        "FedAdagrad",
        {"server_lr": 0.05, "beta1": 0.2, "v0": 0.0, "bias_correction": True},
        {"m": "m", "v": "v"},
        {},
    ),
    "SCAFFOLD": (fk.SCAFFOLD(0.9), "SCAFFOLD", {"server_lr": 0.9}, {"c": "c"}, {"c_i": "c_i"}),
    "SCAFFOLD I": (fk.SCAFFOLD(option="I"), "SCAFFOLD", {"option": "I"}, {"c": "c"}, {"c_i": "c_i"}),
    "FedDyn": (fk.FedDyn(0.4), "FedDyn", {"alpha": 0.4}, {"h": "h", "gamma": "gamma"}, {"h_i": "h_i"}),
    "FedDyn w/o Reg": (
        fk.FedDyn(0.4, regularize=False),
        "FedDyn",
        {"alpha": 0.4, "regularize": False},
        {"h": "h"},
        {"h_i": "h_i"},
    ),
    "FedDyn w/o h": (
        fk.FedDyn(0.4, compensate=False),
        "FedDyn",
        {"alpha": 0.4, "compensate": False},
        {"h": "h"},
        {"h_i": "h_i"},
    ),
    "SCAFFOLD by size": (
        fk.SCAFFOLD(0.9, by_size=True),
        "SCAFFOLD",
        {"server_lr": 0.9, "by_size": True},
        {"c": "c"},
        {"c_i": "c_i"},
    ),
    "FedDyn by size": (
        fk.FedDyn(0.4, by_size=True),
        "FedDyn",
        {"alpha": 0.4, "by_size": True},
        {"h": "h", "gamma": "gamma"},
        {"h_i": "h_i"},
    ),
    "FedDyn with last models": (
        fk.FedDyn(0.4, last_models=True),
        "FedDyn",
        {"alpha": 0.4},
        {"h": "h", "gamma": "gamma"},
        {"h_i": "h_i", "last": "last"},
    ),
    "FedCM": (fk.FedCM(0.3, 0.9), "FedCM", {"alpha": 0.3, "server_lr": 0.9}, {"M": "M"}, {}),
    "FedSAM": (fk.FedSAM(0.2), "FedSAM", {"rho": 0.2}, {}, {}),
    "MimeLite": (fk.MimeLite(0.4, 0.9), "MimeLite", {"beta": 0.4, "server_lr": 0.9}, {"m": "m"}, {}),
    "FedLNAG": (fk.FedLNAG(0.5), "FedLNAG", {"beta": 0.5}, {"m": "m"}, {}),
    "FedLNAG reset": (fk.FedLNAG(0.5, carry=False), "FedLNAG", {"beta": 0.5, "carry": False}, {}, {}),
    "FedLNAG damped": (
        fk.FedLNAG(0.5, damped=True),
        "FedLNAG",
        {"beta": 0.5, "damped": True},
        {"m": "m"},
        {},
    ),
    "FedANAG": (fk.FedANAG(0.5, 0.9), "FedANAG", {"beta": 0.5, "server_lr": 0.9}, {"m": "m"}, {}),
    "FedACG": (fk.FedACG(0.6, 0.05), "FedACG", {"lam": 0.6, "beta": 0.05}, {"m": "m"}, {}),
    "FedSAGD": (
        fk.FedSAGD(0.6, 0.2, 0.03, 0.9),
        "FedSAGD",
        {"beta": 0.6, "lam": 0.2, "mu": 0.03, "server_lr": 0.9},
        {"v": "v"},
        {},
    ),
    "FedNova": (fk.FedNova(), "FedNova", {}, {}, {}),
    "FedNova prox": (fk.FedNova(0.3), "FedNova", {"mu": 0.3}, {}, {}),
    "FedNTD": (fk.FedNTD(0.8, 1.5), "FedNTD", {"beta": 0.8, "tau": 1.5}, {}, {}),
    "MOON": (fk.MOON(0.7, 0.6), "MOON", {"mu": 0.7, "tau": 0.6}, {}, {"last": "last_i"}),
    "FedSpeed": (
        fk.FedSpeed(0.8, 0.1, 0.7),
        "FedSpeed",
        {"alpha": 0.8, "rho": 0.1, "blend": 0.7},
        {},
        {"g_i": "g_i"},
    ),
    "FedSpeed all": (
        fk.FedSpeed(0.8, 0.1, 0.7, correction="all"),
        "FedSpeed",
        {"alpha": 0.8, "rho": 0.1, "blend": 0.7, "correction": "all"},
        {"h": "h"},
        {"g_i": "g_i"},
    ),
    "FedSMOO": (
        fk.FedSMOO(0.8, 0.1),
        "FedSMOO",
        {"alpha": 0.8, "rho": 0.1},
        {"h": "h", "s": "s"},
        {"h_i": "h_i", "mu_i": "mu_i"},
    ),
    "FedInit": (fk.FedInit(0.15), "FedInit", {"beta": 0.15}, {}, {"last": "last"}),
    "MoFedSAM": (fk.MoFedSAM(0.3, rho=0.1), "MoFedSAM", {"alpha": 0.3, "rho": 0.1}, {"M": "M"}, {}),
    "FedGamma": (fk.FedGamma(rho=0.1), "FedGamma", {"rho": 0.1}, {"c": "c"}, {"c_i": "c_i"}),
}
CLASSIFIERS = {"FedNTD", "MOON"}  # their losses need logits and features
RELAXED = [name for name in CASES if name != "FedInit"]


def agree(
    played: list[Any], expected: list[dict[str, Any]], server: dict[str, str], client: dict[str, str]
) -> None:
    """Compare models, server and client memories after every round."""
    for after, truth in zip(played, expected, strict=True):
        close(after.models["x"], truth["x"])
        inner = getattr(after.server, "inner", after.server)
        for ours, theirs in server.items():
            close(getattr(inner, ours).numpy(), truth[theirs])
        for i, memory in after.memories.items():
            kept = memory if hasattr(memory, next(iter(client), "last")) else memory.inner
            for ours, theirs in client.items():
                close(getattr(kept, ours).numpy(), truth[theirs][i])


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def problems_of(name: str) -> list[str]:
    return ["tiny net"] if name.split("(", maxsplit=1)[0] in CLASSIFIERS else list(PROBLEMS)


PAIRWISE = (  # problem, cohort, decay of the rate, sizes: every two settings meet
    HARDEST,
    ("tiny net", 5, 1.0, "ragged"),
    ("tiny net", 5, 0.8, "equal"),
    ("tiny net", 2, 1.0, "equal"),
    ("least squares", 2, 1.0, "ragged"),
    ("least squares", 5, 0.8, "equal"),
)


def test_every_two_settings_meet() -> None:
    """Also where least squares is left out, for methods that need a classifier."""
    axes = (list(PROBLEMS), [2, 5], [1.0, 0.8], list(SIZES))
    for one, other in itertools.combinations(range(4), 2):
        pairs = {(row[one], row[other]) for row in PAIRWISE}
        assert pairs == set(itertools.product(axes[one], axes[other]))
    for one, other in itertools.combinations(range(1, 4), 2):
        pairs = {(row[one], row[other]) for row in PAIRWISE if row[0] == "tiny net"}
        assert pairs == set(itertools.product(axes[one], axes[other]))


def grid(names: list[str], every: int = 1) -> list[Any]:
    """Return every method in the settings of the table; the hardest of every n-th is not slow."""
    rows = []
    for number, name in enumerate(names):
        for row in PAIRWISE:
            if row[0] in problems_of(name):
                label = f"{name}-{'-'.join(map(str, row))}"
                marks = [] if row == HARDEST and number % every == 0 else [pytest.mark.slow]
                rows.append(pytest.param(name, *row, id=label, marks=marks))
    return rows


def make(problem: str, sizes: str) -> Problem:
    return PROBLEMS[problem](SIZES[sizes])


@pytest.mark.parametrize(("name", "problem", "cohort", "decay", "sizes"), grid(list(CASES)))
def test_plain(name: str, problem: str, cohort: int, decay: float, sizes: str) -> None:
    algorithm, reference, knobs, server, client = CASES[name]
    work = fk.Work(epochs=2, batch_size=3, lr=0.08, lr_decay=decay, weight_decay=0.01)
    given = make(problem, sizes)
    played = play(given, algorithm, rounds=ROUNDS, cohort=cohort, work=work)
    agree(played, expect(given, reference, rounds=ROUNDS, cohort=cohort, work=work, **knobs), server, client)


@pytest.mark.parametrize(("name", "problem", "cohort", "decay", "sizes"), grid(RELAXED, every=8))
def test_relaxed(name: str, problem: str, cohort: int, decay: float, sizes: str) -> None:
    algorithm, reference, knobs, server, client = CASES[name]
    work = fk.Work(epochs=2, batch_size=3, lr=0.08, lr_decay=decay)
    given = make(problem, sizes)
    played = play(given, fk.relaxed(algorithm, beta=0.2), rounds=ROUNDS, cohort=cohort, work=work)
    expected = expect(
        given, reference, rounds=ROUNDS, cohort=cohort, work=work, relaxed={"beta": 0.2}, **knobs
    )
    agree(played, expected, server, client if name != "MOON" else {})


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "first none": ({"beta": 0.2, "first": "none"}, {"beta": 0.2, "first": "none"}),
    "walk": ({"beta": 0.2, "aggregate": "walk"}, {"beta": 0.2, "aggregate": "walk"}),
    "negative": ({"beta": -0.2}, {"beta": -0.2}),
    "decayed": ({"beta": fk.Decayed(0.3, 0.5)}, {"beta": 0.3, "decay": 0.5}),
    "adaptive": ({"beta": fk.Adaptive(0.9)}, {"adaptive": 0.9}),
    "adaptive walk": (
        {"beta": fk.Adaptive(), "aggregate": "walk"},
        {"adaptive": 1.0, "aggregate": "walk"},
    ),
    "walk, none": (
        {"beta": 0.2, "aggregate": "walk", "first": "none"},
        {"beta": 0.2, "aggregate": "walk", "first": "none"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", RELAXED)
def test_variants_of_relaxed(name: str, variant: str) -> None:
    algorithm, reference, knobs, server, _ = CASES[name]
    ours, theirs = VARIANTS[variant]
    work = fk.Work(steps=3, batch_size=3, lr=0.08)
    given = make("tiny net", "ragged")
    played = play(given, fk.relaxed(algorithm, **ours), rounds=6, cohort=3, work=work)
    expected = expect(given, reference, rounds=6, cohort=3, work=work, relaxed=theirs, **knobs)
    agree(played, expected, server, {})


@pytest.mark.parametrize("name", ["FedDyn", "FedSpeed", "FedSpeed all", "FedSMOO"])
def test_the_simulators_gamma(name: str) -> None:
    algorithm, reference, knobs, server, _ = CASES[name]
    options = {"beta": 0.2, "aggregate": "walk", "gamma": "end"}
    work = fk.Work(steps=3, batch_size=3, lr=0.08)
    given = make("tiny net", "ragged")
    played = play(given, fk.relaxed(algorithm, **options), rounds=5, cohort=3, work=work)
    expected = expect(given, reference, rounds=5, cohort=3, work=work, relaxed=options, **knobs)
    agree(played, expected, server, {})


@pytest.mark.filterwarnings("ignore:clip_on = 'direction'")
@pytest.mark.parametrize("clip_on", ["gradient", "direction", "corrected"])
@pytest.mark.parametrize("name", one_in(8, CASES))
def test_clipping(name: str, clip_on: Any) -> None:
    algorithm, reference, knobs, server, client = CASES[name]
    work = fk.Work(epochs=1, batch_size=3, lr=0.1, weight_decay=0.02, clip=0.3, clip_on=clip_on)
    given = make("tiny net", "ragged")
    played = play(given, algorithm, rounds=3, cohort=3, work=work)
    agree(played, expect(given, reference, rounds=3, cohort=3, work=work, **knobs), server, client)


def stretched(round: int, rounds: int, step: int, steps: int) -> float:
    """A schedule of a user's own: another factor in every step."""
    return (1 + step) / steps + 0.5 * round / rounds


WAYS = {
    "momentum": {"momentum": 0.6, "weight_decay": 0.02},
    "Nesterov": {"momentum": 0.6, "nesterov": True},
    "schedule": {"schedule": stretched},
    "epochs": {"schedule": fk.DecayPerEpoch(0.7, 2), "momentum": 0.5},
    "clipped": {"momentum": 0.5, "clip": 0.3, "clip_on": "corrected", "weight_decay": 0.02},
}
WALKS = [
    (name, way) for way in WAYS for name in CASES if not ("FedLNAG" in name and "momentum" in WAYS[way])
]  # FedLNAG has a momentum of its own


@pytest.mark.parametrize(("name", "way"), one_in(8, WALKS))
def test_local_momentum_and_schedules_within_a_round(name: str, way: str) -> None:
    algorithm, reference, knobs, server, client = CASES[name]
    given, work = make("tiny net", "ragged"), fk.Work(epochs=2, batch_size=3, lr=0.08, **WAYS[way])
    played = play(given, algorithm, rounds=3, cohort=3, work=work)
    agree(played, expect(given, reference, rounds=3, cohort=3, work=work, **knobs), server, client)


@pytest.mark.parametrize(
    "name",
    one_in(
        8,
        [
            n
            for n in CASES
            if n not in {"FedSAM", "FedSpeed", "FedSpeed all", "FedSMOO", "MoFedSAM", "FedGamma"}
        ],
    ),
)
def test_sharp(name: str) -> None:
    algorithm, reference, knobs, server, client = CASES[name]
    work = fk.Work(epochs=1, batch_size=3, lr=0.1, weight_decay=0.02)
    given = make("tiny net", "ragged")
    played = play(given, fk.sharp(algorithm, 0.1), rounds=3, cohort=3, work=work)
    agree(played, expect(given, reference, rounds=3, cohort=3, work=work, sharp=0.1, **knobs), server, client)


@pytest.mark.parametrize("name", one_in(8, CASES))
def test_weights_by_samples(name: str) -> None:
    algorithm, reference, knobs, server, client = CASES[name]
    work = fk.Work(epochs=1, batch_size=3, lr=0.1)
    given = make("tiny net", "ragged")
    played = play(given, algorithm, rounds=3, cohort=3, work=work, weighting="samples")
    weights = np.array([float(n) for n in SIZES["ragged"]])
    expected = expect(given, reference, rounds=3, cohort=3, work=work, weights=weights, **knobs)
    agree(played, expected, server, client)


PAIRS = [
    ("SCAFFOLD", "FedAvg"),
    ("FedNTD", "FedAvg"),
    ("MOON", "FedAvg"),
    ("FedDyn", "FedAvg"),
    ("FedDyn", "SCAFFOLD"),
    ("FedDyn", "FedNTD"),
    ("FedDyn", "FedDyn w/o h"),
    ("FedDyn w/o Reg", "FedDyn"),
    ("FedInit", "FedCM"),
    ("SCAFFOLD", "SCAFFOLD I"),
]


@pytest.mark.parametrize("memory", ["auto", "fresh"])
@pytest.mark.parametrize(("first", "second"), one_in(8, PAIRS))
def test_stages(first: str, second: str, memory: Any) -> None:
    work = fk.Work(epochs=1, batch_size=3, lr=0.1)
    given = make("tiny net", "ragged")
    algorithm = fk.stages((CASES[first][0], 0.5), CASES[second][0], memory=memory)
    played = play(given, algorithm, rounds=6, cohort=3, work=work)
    parts = [
        {"method": CASES[first][1], "until": 0.5, **CASES[first][2]},
        {"method": CASES[second][1], "memory": memory, **CASES[second][2]},
    ]
    expected = expect(given, "stages", rounds=6, cohort=3, work=work, stages=parts)
    agree(played[3:], expected[3:], CASES[second][3], CASES[second][4])


def test_every_method_has_a_case() -> None:
    covered = {name.split(" ")[0] for name in CASES}
    assert covered == {method.__name__ for method in fk.METHODS}
