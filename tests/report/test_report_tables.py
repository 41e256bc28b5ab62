"""Tables: means, deviations, rounds and bytes to a target."""

from __future__ import annotations

import pytest

from fedkeel.report import Trial, parse_measure, reachable_target, summarise
from fedkeel.report.tables import UNFINISHED, cells, cost_to, final, headings, shown_bytes


def rows(*accuracies: float | None, **more: list[float]) -> list[dict]:
    return [
        {
            "round": i,
            "accuracy": accuracy,
            "bytes_down": 100,
            "bytes_up": 50,
            "seconds": 0.5,
            **{f"accuracy/{name}": values[i] for name, values in more.items()},
        }
        for i, accuracy in enumerate(accuracies)
    ]


def test_a_line_has_mean_deviation_and_cost_to_the_target():
    line, other = summarise(
        [
            Trial("A", 0, rows(0.1, 0.6, 0.80)),
            Trial("A", 1, rows(0.1, 0.4, 0.90)),
            Trial("B", 0, rows(0.1, 0.2, 0.3)),
        ],
        target=0.5,
    )
    assert line.accuracy == pytest.approx(0.85)
    assert line.spread == pytest.approx(0.0707107, abs=1e-6)
    assert (line.reached, line.rounds, line.bytes, line.seconds) == (2, 2.5, 375.0, 1.5)
    assert cells(line) == ("A", "85.0 ± 7.1 %", "2", "375 B", "1.5")
    assert other.spread is None
    assert cells(other) == ("B", "30.0 %", "—", "—", "1.5")


def test_rounds_without_evaluation_are_passed_over_but_their_bytes_count():
    assert cost_to(rows(None, 0.3, None, 0.7), 0.5) == (4, 600, 2.0)
    assert cost_to(rows(None, 0.3), 0.5) is None
    assert cost_to(rows(0.9), None) is None


def test_a_target_that_some_seeds_reach_says_how_many():
    (line,) = summarise([Trial("A", 0, rows(0.6)), Trial("A", 1, rows(0.4))], target=0.5)
    assert cells(line)[2] == "1 (1 of 2)"


def test_every_model_of_a_method_has_its_line():
    lines = summarise([Trial("FedDyn", 0, rows(0.5, 0.6, gamma=[0.7, 0.8]))], target=None)
    assert [(line.label, line.accuracy) for line in lines] == [("FedDyn", 0.6), ("FedDyn (gamma)", 0.8)]


def test_diverged_runs_are_counted_and_left_out_of_the_mean():
    (line,) = summarise([Trial("A", 0, rows(0.6)), Trial("A", 1, rows(0.1), "diverged")], target=None)
    assert cells(line)[1] == "60.0 %, 1 of 2 diverged"
    (line,) = summarise([Trial("A", 0, [], "diverged")], target=None)
    assert cells(line)[1] == "1 of 1 diverged"


def test_a_run_that_exploded_counts_as_diverged_whatever_its_accuracy():
    exploded = [{**row, "loss": 1e12, "norm": 1e14} for row in rows(0.8, 0.885)]
    (line,) = summarise([Trial("A", 0, rows(0.5, 0.6)), Trial("A", 1, exploded)], target=0.55)
    assert cells(line)[1] == "60.0 %, 1 of 2 diverged"
    assert line.failed == line.reached == 1
    assert final(Trial("A", 1, exploded)) is None
    assert reachable_target([Trial("A", 0, rows(0.5)), Trial("A", 1, exploded)]) == 0.5


def test_columns_are_chosen_and_further_measures_stand_beside_the_first():
    columns = ("accuracy", "final", "smoothed:50:1", "seconds_to_target")
    measure = parse_measure("top")
    trials = [Trial("A", 0, rows(0.2, 0.8, 0.6)), Trial("A", 1, rows(0.2, 0.6, 0.4))]
    (line,) = summarise(trials, 0.7, measure, columns)
    assert headings(0.7, measure, columns) == [
        "method",
        "top accuracy",
        "final accuracy",
        "smoothed top accuracy of the last 50 rounds",
        "seconds to 70 %",
    ]
    assert cells(line, columns) == ("A", "70.0 ± 14.1 %", "50.0 ± 14.1 %", "70.0 ± 14.1 %", "1.0 (1 of 2)")
    assert headings(None) == ["method", "final accuracy", "rounds to target", "sent to target", "seconds"]


def test_unfinished_runs_are_not_called_diverged():
    group = [Trial("A", 0, rows(0.6)), Trial("A", 1, rows(0.1), UNFINISHED), Trial("A", 2, [], UNFINISHED)]
    (line,) = summarise(group, target=None)
    assert cells(line)[1] == "60.0 %, 2 of 3 unfinished"
    exploded = [{**row, "loss": 1e12} for row in rows(0.8)]
    (line,) = summarise([Trial("A", 0, rows(0.6)), Trial("A", 1, exploded, UNFINISHED)], target=None)
    assert cells(line)[1] == "60.0 %, 1 of 2 diverged"


def test_the_reachable_target_is_one_that_every_run_has_at_its_end():
    assert reachable_target([Trial("A", 0, rows(0.999, 0.876)), Trial("B", 0, rows(0.9))]) == 0.87
    assert reachable_target([Trial("A", 0, rows(0.58))]) == 0.58
    assert reachable_target([]) is None


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 B"), (1500, "1.5 kB"), (24_900_000, "24.9 MB"), (3.2e12, "3.2 TB")]
)
def test_bytes_have_units(count, text):
    assert shown_bytes(count) == text
