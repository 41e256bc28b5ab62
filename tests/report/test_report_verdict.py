"""Verdicts: numbers by hand, sentences, and who is not ranked."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from selecting import slow

from fedkeel.common.errors import ConfigError
from fedkeel.report import ComparisonVerdict, Trial, find_verdict, parse_measure
from fedkeel.report.significance import critical_value, pair_statistics
from fedkeel.report.tables import UNFINISHED


def trial(method: str, seed: int, *accuracies: float, problem: str | None = None, **more: float) -> Trial:
    rows = [
        {"round": i, "accuracy": a, "bytes_down": 1, "bytes_up": 1, "seconds": 1.0, **more}
        for i, a in enumerate(accuracies)
    ]
    return Trial(method, seed, rows, problem)


def trials(**methods: list[float]) -> list[Trial]:
    return [trial(name, seed, a) for name, ends in methods.items() for seed, a in enumerate(ends)]


def test_a_clear_winner_is_named_with_its_margin_and_interval():
    # differences 2, 3, 4 points: mean 3, standard deviation 1, half-width 4.3027·1/√3 = 2.4841
    found = find_verdict(trials(FedAvg=[0.80, 0.85, 0.90], SCAFFOLD=[0.82, 0.88, 0.94]))
    assert found.winner == "SCAFFOLD"
    assert found.sentence == (
        "SCAFFOLD won with 88.0 %: 3.0 points above FedAvg (95 % interval 0.5 to 5.5, 3 seeds)."
    )
    (difference,) = found.differences
    assert difference.resolved
    assert difference.mean == pytest.approx(0.03)
    assert difference.low == pytest.approx(0.03 - 0.024841, abs=1e-6)
    assert difference.p == pytest.approx(0.0351, abs=1e-4)  # t = 5.196 with 2 degrees of freedom


def test_seeds_are_paired_so_a_hard_seed_does_not_blur_the_difference():
    wild = find_verdict(trials(A=[0.50, 0.70, 0.90], B=[0.49, 0.69, 0.89]))
    assert wild.differences[0].resolved
    assert wild.differences[0].low == pytest.approx(0.01)


def test_an_interval_with_zero_resolves_nothing():
    found = find_verdict(trials(A=[0.80, 0.90], B=[0.83, 0.85]))
    assert "No difference resolved between A, first with 85.0 %, and B" in found.sentence
    assert not found.differences[0].resolved
    half = 12.7062 * math.sqrt(2) * 0.04 / math.sqrt(2)  # differences −3 and 5: mean 1, deviation 4·√2
    assert found.differences[0].low == pytest.approx(0.01 - half, abs=1e-4)


def test_what_is_not_resolved_says_how_many_seeds_would_be_needed():
    found = find_verdict(trials(A=[0.80, 0.90, 0.86], B=[0.81, 0.87, 0.84]))
    # differences −1, 3 and 2 points; a chance of 80 % needs gap / error = critical value + 0.8416
    needed = found.differences[0].seeds_needed
    variance, gap = np.var([-1, 3, 2], ddof=1), 4 / 3
    assert needed is not None
    for seeds, enough in ((needed, True), (needed - 1, False)):
        asked = critical_value(2, min(seeds, 20)) + 0.8416
        assert (gap * math.sqrt(seeds / variance) >= asked) is enough
    assert f"Seeds to tell A from them, if gaps and spreads stay as they are: about {needed} for B." in (
        found.sentence
    )
    hopeless = find_verdict(trials(A=[0.8, 0.9, 0.7001], B=[0.9, 0.7, 0.8]))
    assert hopeless.differences[0].seeds_needed is None
    assert "more than 100 for B" in hopeless.sentence


def test_one_seed_gives_no_interval_and_says_so():
    found = find_verdict(trials(A=[0.9], B=[0.8]))
    assert "with one seed no interval can be given" in found.sentence
    assert found.differences[0].low is None


def test_several_methods_are_split_into_resolved_and_not():
    found = find_verdict(trials(A=[0.90, 0.91, 0.92], B=[0.90, 0.90, 0.93], C=[0.50, 0.51, 0.52]))
    assert "No difference resolved between A" in found.sentence
    assert "A is 40.0 points above C" in found.sentence
    assert "The intervals hold for all pairs together." in found.sentence


def test_a_pair_of_three_methods_needs_more_than_the_same_pair_alone():
    pair = {"A": [0.82, 0.88, 0.94], "B": [0.80, 0.85, 0.90]}
    alone = find_verdict(trials(**pair)).differences[0]
    among = find_verdict(trials(**pair, C=[0.70, 0.72, 0.83])).differences[0]
    assert alone.resolved
    assert not among.resolved
    assert among.p > alone.p


@pytest.mark.parametrize("methods", [2, *slow(3, 6)])
def test_a_difference_is_resolved_where_the_statistic_exceeds_the_critical_value(methods: int):
    stream = np.random.default_rng(methods)
    for _ in range(20):
        scores = 0.5 + 0.01 * (stream.standard_normal((methods, 4)) + 2 * np.arange(methods)[:, None])
        found = find_verdict(trials(**{f"m{i}": list(row) for i, row in enumerate(scores)}))
        first = int(found.winner[1:])
        statistics = pair_statistics(scores)[first]
        assert {d.other for d in found.differences if d.resolved} == {
            f"m{i}" for i in range(methods) if statistics[i] > critical_value(methods, 4)
        }
        assert all(d.resolved == (d.p <= 0.05) for d in found.differences)


def test_a_method_with_a_diverged_seed_does_not_win_by_the_seeds_that_survived():
    runs = [
        *trials(A=[0.5, 0.6, 0.55]),
        trial("B", 0, 0.99),
        trial("B", 1, 0.98),
        trial("B", 2, problem="NaN"),
    ]
    found = find_verdict(runs)
    assert found.winner == "A"
    assert found.sentence.endswith("B diverged on 1 of 3 seeds and is not ranked.")
    assert [(one.label, one.rank, one.diverged) for one in found.ranking] == [("A", 1, 0), ("B", None, 1)]


def test_a_run_that_has_exploded_does_not_win_by_its_accuracy():
    runs = [*trials(A=[0.85, 0.86]), *(trial("FedInit(0.3)", s, 0.885, loss=1e12, norm=1e14) for s in (0, 1))]
    found = find_verdict(runs)
    assert found.winner == "A"
    assert "FedInit(0.3) diverged on 2 of 2 seeds and is not ranked." in found.sentence


def test_where_every_method_diverged_nobody_wins():
    found = find_verdict([trial("A", 0, 0.9), trial("A", 1, problem="NaN"), trial("B", 0, problem="NaN")])
    assert found.winner is None
    assert found.sentence == (
        "No method finished on every seed, so there is nothing to compare. "
        "A diverged on 1 of 2 seeds and is not ranked. B diverged on 1 of 1 seeds and is not ranked."
    )
    assert find_verdict([]).winner is None


def test_methods_are_compared_on_the_seeds_that_all_of_them_finished():
    runs = [
        *trials(A=[0.9, 0.8, 0.1], B=[0.7, 0.7]),
        trial("B", 2, problem=UNFINISHED),
        trial("C", 0, problem=UNFINISHED),
    ]
    found = find_verdict(runs)
    assert found.seeds == 2
    assert found.score == pytest.approx(0.85)
    assert "Compared on the 2 seeds that all of them finished. C did not finish." in found.sentence
    apart = find_verdict([trial("A", 0, 0.9), trial("B", 1, 0.8)])
    assert "no seed was finished by all of them" in apart.sentence


def test_equal_methods_are_not_resolved():
    for ends in ({"B": [0.5, 0.6]}, {"B": [0.5, 0.6], "C": [0.5, 0.6]}):
        found = find_verdict(trials(A=[0.5, 0.6], **ends))
        assert "No difference resolved" in found.sentence
        assert all(d.p == 1 and not d.resolved for d in found.differences)


def test_a_verdict_by_another_measure_ranks_by_it_and_says_so():
    runs = [trial("A", s, 0.9, 0.9, 0.5 + s / 100) for s in range(3)]
    runs += [trial("B", s, 0.6, 0.6, 0.7 + s / 100) for s in range(3)]
    assert find_verdict(runs).winner == "B"
    by_mean = find_verdict(runs, parse_measure("last:3"))
    assert by_mean.winner == "A"
    assert by_mean.measure == "last:3"
    assert "A won with 77.0 % (mean accuracy of the last 3 rounds)" in by_mean.sentence


def test_a_level_that_no_interval_can_have_is_refused():
    for level in (0.0, 0.3, 0.999, 95.0):
        with pytest.raises(ConfigError, match=r"between 0\.5 and 0\.99"):
            find_verdict(trials(A=[0.9, 0.8], B=[0.7, 0.7]), level=level)


def test_a_verdict_can_be_written_as_json():
    found = find_verdict(trials(A=[0.9, 0.8], B=[0.7, 0.7]))
    told = json.loads(json.dumps(found.as_dict()))
    assert set(told) == set(ComparisonVerdict._fields)
    assert told["ranking"][0]["label"] == "A"
    assert told["differences"][0]["resolved"] is False
