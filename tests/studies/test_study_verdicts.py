"""The sentence at the head of a study's page says what its numbers say, and no more."""

from __future__ import annotations

from typing import Any

from fedkeel.studies.constants_page import constants_verdict
from fedkeel.studies.interaction_page import interaction_verdict
from fedkeel.studies.robustness_page import robustness_verdict
from fedkeel.studies.stability_page import stability_verdict


def each(**found: Any) -> dict[str, list[tuple[int, Any]]]:
    """Return what was found of each method with one seed."""
    return {method: [(0, one)] for method, one in found.items()}


def stable(*ends: float, clients: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    """Return a method whose pairs of runs end so far apart."""
    return {
        "replaced": "client",
        "clients": [{"client": one} for one in clients],
        "curves": [[0.0, end] for end in ends],
        "mean": [0.0, sum(ends) / len(ends)],
        "largest": [0.0, max(ends)],
    }


def test_stability_names_the_closest_with_intervals_over_the_same_clients() -> None:
    verdict = stability_verdict(each(FedAvg=stable(2.0, 3.0, 4.0), FedSAGD=stable(1.0, 2.1, 2.9)))
    assert verdict.text == (
        "Runs that differ in one client, after 1 round, 3 pairs: FedSAGD ends closest, 2 (at most 2.9) "
        "apart; FedAvg 1 farther (+0.75 to +1.2)."
    )
    assert verdict.tone == "good"


def test_stability_does_not_claim_what_pairs_do_not_settle() -> None:
    verdict = stability_verdict(each(FedAvg=stable(2.0, 3.0, 4.0), FedSAGD=stable(3.0, 2.0, 3.5)))
    assert "not settled" in verdict.text
    assert verdict.tone == "unclear"
    others = stable(1.0, 1.1, 1.2, clients=(4, 5, 6))  # other clients: no pairs, no interval
    verdict = stability_verdict(each(FedAvg=stable(2.0, 3.0, 4.0), FedSAGD=others))
    assert " to " not in verdict.text
    assert verdict.tone == "unclear"


def test_interaction_is_called_no_test() -> None:
    snapshot = {"round": 20, "features": 31, "local_current": 8.25}
    verdict = interaction_verdict(
        each(FedAvg=[snapshot], FedDyn=[{**snapshot, "local_current": 9.5, "features": 40}])
    )
    assert verdict is not None
    assert "After round 20" in verdict.text
    assert verdict.text.index("FedDyn 9.5 of 40") < verdict.text.index("FedAvg 8.2 of 31")
    assert verdict.tone == "unclear"


def test_robustness_asks_for_every_attack() -> None:
    found = {
        "margin": 0.05,
        "seeds": [0, 1, 2],
        "clean": {"FedAvg": 0.9, "FedDyn": 0.9},
        "lines": [{"reducer": name} for name in ("Mean", "Median", "Krum")],
        "held_by": {
            "SignFlip": {"FedAvg": ["Median", "Krum"], "FedDyn": ["Krum"]},
            "LabelFlip": {"FedAvg": ["Median", "Mean"], "FedDyn": ["Mean"]},
        },
    }
    verdict = robustness_verdict(found)
    assert verdict.text == (
        "What holds out against all 2 attacks, within 5 points over 3 seeds: "
        "FedAvg with Median; FedDyn with none."
    )
    assert verdict.tone == "unclear"


def test_constants_are_given_with_the_range_that_was_seen() -> None:
    one = {"value": 2.5, "low": 1.0, "high": 2.5}
    names = ("L", "sigma_l2", "sigma_g2", "tau1")
    found = {"pilot_rounds": 30, "constants": {**dict.fromkeys(names, one), "tau1": {**one, "value": None}}}
    text = constants_verdict(found).text
    assert "pilot of 30 rounds: smoothness L = 2.5 (1 to 2.5)" in text
    assert "τ1 = ∞" in text
