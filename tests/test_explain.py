"""`explain`: equations that come from the code, and costs that come from real records."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from selecting import one_in

from fedkeel.core.algorithm import Algorithm, Plan, method
from fedkeel.experiments.expression import parse_method
from fedkeel.explain import explain
from fedkeel.methods import METHODS
from fedkeel.tensors.vector import Vector, zeros_like

# Down, up, client state in units of d, as algorithms.md prints them.
TABLE = {
    "FedAvg": (1, 1, 0),
    "FedProx": (1, 1, 0),
    "FedAvgM": (1, 1, 0),
    "FedAdam": (1, 1, 0),
    "FedYogi": (1, 1, 0),
    "FedAdagrad": (1, 1, 0),
    "SCAFFOLD": (2, 2, 1),
    "FedDyn": (1, 1, 1),
    "FedCM": (2, 1, 0),
    "FedSAM": (1, 1, 0),
    "MimeLite": (2, 2, 0),
    "FedLNAG": (2, 2, 0),
    "FedANAG": (2, 1, 0),
    "FedACG": (1, 1, 0),
    "FedSAGD": (2, 1, 0),
    "FedNova": (1, 1, 0),
    "FedNTD": (1, 1, 0),
    "MOON": (1, 1, 1),
    "FedSpeed": (1, 1, 1),
    "FedSMOO": (2, 2, 2),
    "FedInit": (1, 1, 1),
}


def lines(text: str) -> list[str]:
    return [line for part in explain(parse_method(text)).equations.values() for line in part]


@pytest.mark.parametrize("name", TABLE)
def test_traffic_and_memory_are_those_of_the_table(name):
    found = explain(parse_method(name))
    assert (found.down.vectors, found.up.vectors, found.client_state.vectors) == TABLE[name]
    assert found.down.bytes(1000) == 4 * (1000 * found.down.vectors + found.down.scalars)


@pytest.mark.parametrize("make", one_in(3, METHODS), ids=lambda make: make.__name__)
@pytest.mark.parametrize("wrap", ["{}", "relaxed({}, beta=Adaptive(0.1))", "stages(({}, 0.5), fedavg)"])
def test_every_method_is_traced_with_its_settings_and_is_json(make, wrap):
    if make.__name__ == "FedInit":  # relaxed once already
        wrap = wrap.replace("relaxed({}, beta=Adaptive(0.1))", "{}(beta=Adaptive(0.1))")
    found = explain(parse_method(wrap.format(make.__name__)))
    json.dumps(found.as_dict(), allow_nan=False)
    parts = found.stages if hasattr(found, "stages") else [("", found)]
    for _, one in parts:
        assert any(line.startswith("y ← y − η·(") for line in one.equations["step"])
        assert any(line.startswith("x ← ") for line in one.equations["server"])
        assert one.method in str(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fedavg", ["y ← y − η·(g + wd·y)", "x ← x + lr·mean(end − x)"]),
        ("fedprox", ["y ← y − η·(g + mu·(y − x) + wd·y)"]),
        (
            "scaffold",
            [
                "y ← y − η·(g + c − c_i + wd·y)",
                "c_i ← c_i − c + (x − end)/length",
                "c ← c + share·mean((x − end)/length − c)",
            ],
        ),
        (
            "feddyn",
            [
                "y ← y − η·(g − h_i + alpha·(y − x) + wd·y)",
                "h_i ← h_i − alpha·(end − x)",
                "h ← h − alpha·share·mean(end − x)",
                "x ← gamma⁺ − h⁺/alpha",
            ],
        ),
        ("fedcm", ["y ← y − η·(alpha·g + (1 − alpha)·M + wd·y)", "M ← −mean(end − x)/mean(length)"]),
        ("fedadam", ["v = tau²", "x ← x + lr·m⁺/(√v⁺ + tau)"]),
        ("fedanag", ["y ← y − η·((1 + beta)·g + beta²·m + wd·y)"]),
        ("fedacg", ["z = x + lam·m", "y = z", "x ← x + m⁺"]),
        ("fedlnag", ["b ← beta·b + g + wd·y", "y ← y − η·(g + wd·y + beta·b)"]),
        ("fedsmoo", ["q = g − mu_i − s", "e = rho·q/(‖q‖ + 1e-7)", "mu_i ← mu_i + e − s"]),
        ("fedsagd", ["y ← y − η·(g + beta·v + lam·(y − x) + mu·y + wd·y)"]),
        ("fedinit", ["y = start = x + beta·(x − last)", "last ← end"]),
        (
            "relaxed(fedanag, beta=0.1)",
            ["y = start = x + relaxed.beta·(x − last)", "y ← y − η·((1 + beta)·g + beta²·m + wd·y)"],
        ),
        ("sharp(scaffold)", ["g_e = g(y + e)", "y ← y − η·(g_e + c − c_i + wd·y)"]),
        (
            "relaxed(feddyn, beta=0.1, aggregate='walk')",
            ["y ← y − η·(g − h_i + alpha·(y − start) + wd·y)"],
        ),
    ],
)
def test_equations(text, expected):
    found = lines(text)
    for line in expected:
        assert line in found, found


def test_the_equation_is_that_of_the_code_and_of_no_table():
    @method
    class Mine(Algorithm):
        """Ours: an example."""

        kappa: float = 0.25

        class Server(NamedTuple):
            x: Vector
            w: Vector

        def init(self, x):
            return self.Server(x, zeros_like(x))

        def plan(self, down, client, facts):
            return Plan(start=down.x, push=down.w if self.kappa > 0.5 else self.kappa * down.w)

        def aggregate(self, server, mean, cohort):
            return self.Server(server.x + mean.delta, self.kappa * mean.delta)

    found = explain(Mine())
    assert found.equations["step"] == ["y ← y − η·(g + kappa·w + wd·y)"]
    assert found.equations["server"] == ["x ← x + mean(end − x)", "w ← kappa·mean(end − x)"]
    assert explain(Mine(kappa=0.75)).equations["step"] == ["y ← y − η·(g + w + wd·y)"]


def test_a_method_that_cannot_be_followed_is_still_explained():
    @method
    class Odd(Algorithm):
        """Ours: takes a median, which symbols do not know."""

        def aggregate(self, server, mean, cohort):
            return self.Server(server.x + mean.delta.median())

    found = explain(Odd())
    assert found.equations == {}
    assert "takes a median" in str(found)


def test_effective_l2_gradients_and_passes():
    assert explain(parse_method("fedcm")).effective_l2 == "wd/alpha = 10·wd"
    assert explain(parse_method("fedanag(beta=1e-9)")).effective_l2.startswith("wd/(1 + beta)")
    assert explain(parse_method("fedavg")).effective_l2 is None
    assert explain(parse_method("fedsam")).gradients_per_step == 2
    assert explain(parse_method("fedsam(rho=0)")).gradients_per_step == 1
    assert explain(parse_method("moon")).other_models == 2
    assert explain(parse_method("mimelite")).full_gradient


def test_settings_have_value_default_and_range():
    found = explain(parse_method("relaxed(fedcm(alpha=0.5), beta=0.2)"))
    settings = {(setting.owner, setting.name): setting for setting in found.settings}
    assert settings["FedCM", "alpha"][2:] == ("0.5", "0.1", "a number above 0 up to 1")
    assert settings["Relaxed", "beta"].default == "0.1"
    assert settings["Relaxed", "aggregate"].allowed == "'model' or 'walk'"


def test_stages_say_when_each_ends():
    text = str(explain(parse_method("stages((feddyn, 0.5), (fedprox, 70), fedavg)")))
    for part in ("for the first 50 % of the rounds", "to round 70", "to the end"):
        assert part in text
