"""Tables: means, deviations, rounds and bytes to a target."""

from __future__ import annotations

import pytest

from fedkeel.common.errors import ConfigError
from fedkeel.report import Trial, parse_measure, reachable_target, summarise
from fedkeel.report.table_columns import COLUMNS, parse_columns
from fedkeel.report.tables import UNFINISHED, cells, cost_to, final, headings, models_of
from fedkeel.report.target_costs import shown_bytes


def rows(*accuracies: float | None, **more: list[float]) -> list[dict]:
    return [
        {
            "round": i,
            "accuracy": accuracy,
            "bytes_down": 100,
            "bytes_up": 50,
            "seconds": 0.5,
            "gradients": 7,
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
    assert line.score == pytest.approx(0.85)
    assert line.spread == pytest.approx(0.0707107, abs=1e-6)
    assert (line.reached, line.rounds, line.bytes, line.seconds) == (2, 2.5, 375.0, 1.5)
    assert cells(line) == ("A", "85.0 ± 7.1 %", "2.5 ± 0.7", "375 ± 106 B", "1.5 ± 0.0")
    assert other.spread is None
    assert cells(other) == ("B", "30.0 %", "3+", "450 B+", "1.5")


def test_rounds_without_evaluation_are_passed_over_but_their_bytes_count():
    assert cost_to(rows(None, 0.3, None, 0.7), 0.5) == (4, 600, 2.0, 28)
    assert cost_to(rows(None, 0.3), 0.5) is None
    assert cost_to(rows(0.9), None) is None


COSTS = ("rounds_to_target", "bytes_to_target", "gradients_to_target", "seconds_to_target")
SLOW = [0.1] * 2000


def test_a_target_that_no_seed_reaches_shows_what_the_runs_took_in_vain():
    (line,) = summarise([Trial("A", seed, rows(*SLOW)) for seed in (0, 1)], target=0.5)
    assert cells(line, COSTS) == ("A", "2000+", "300 kB+", "14,000+", "1000.0+")
    assert (line.reached, line.missed, line.seeds) == (0, 2, 2)
    assert line.limits == {"rounds": 2000, "bytes": 300_000, "seconds": 1000.0, "gradients": 14_000}
    assert (line.rounds, line.gradients, line.spreads) == (None, None, None)


def test_a_target_that_some_seeds_reach_says_how_many_and_what_the_others_took():
    trials = [
        Trial("A", 0, rows(*SLOW[:561], 0.6)),
        Trial("A", 1, rows(*SLOW[:581], 0.6)),
        Trial("A", 2, rows(*SLOW)),
    ]
    (line,) = summarise(trials, target=0.5)
    assert cells(line, COSTS[::2]) == (
        "A",
        "572 ± 14 (2 of 3; others 2000+)",
        "4004 ± 99 (2 of 3; others 14,000+)",
    )
    assert (line.reached, line.missed, line.rounds) == (2, 1, 572)
    (line,) = summarise(trials[:2], target=0.5)
    assert cells(line, ("bytes_to_target", "seconds_to_target")) == ("A", "85.8 ± 2.1 kB", "286.0 ± 7.1")


def test_diverged_and_unfinished_seeds_have_not_missed_the_target():
    broken = [Trial("A", 1, rows(0.1), "diverged"), Trial("A", 2, rows(0.1, 0.2), UNFINISHED)]
    (line,) = summarise(broken, target=0.5)
    assert cells(line, COSTS[:1]) == ("A", "—")
    (line,) = summarise([Trial("A", 0, rows(0.6)), *broken], target=0.5)
    assert cells(line, COSTS[:1]) == ("A", "1 (1 of 3)")
    (line,) = summarise([Trial("A", 0, rows(0.3, 0.4)), *broken], target=0.5)
    assert cells(line, COSTS[:1]) == ("A", "2+ (1 of 3)")
    (line,) = summarise([Trial("A", 0, rows(None, None))], target=0.5)
    assert cells(line, COSTS[:1]) == ("A", "—")
    (line,) = summarise([Trial("A", 0, rows(0.3))], target=None)
    assert cells(line, COSTS[:1]) == ("A", "—")


def test_every_model_of_a_method_has_its_line():
    lines = summarise([Trial("FedDyn", 0, rows(0.5, 0.6, gamma=[0.7, 0.8]))], target=None)
    assert [(line.title, line.score) for line in lines] == [("FedDyn", 0.6), ("FedDyn (gamma)", 0.8)]


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
    columns = ("score", "final", "smoothed:50:1", "seconds_to_target")
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
    assert cells(line, columns) == (
        "A",
        "70.0 ± 14.1 %",
        "50.0 ± 14.1 %",
        "70.0 ± 14.1 %",
        "1.0 (1 of 2; others 1.5+)",
    )
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


@pytest.mark.parametrize(
    ("count", "spread", "text"),
    [(375, 106.07, "375 ± 106 B"), (1500, 12, "1.50 ± 0.01 kB"), (24_900_000, 304_000, "24.9 ± 0.3 MB")],
)
def test_a_spread_has_the_unit_of_its_mean(count, spread, text):
    assert shown_bytes(count, spread) == text


def test_the_first_score_counts_the_runs_without_one_whichever_column_it_is():
    (line,) = summarise(
        [Trial("A", 0, rows(0.6)), Trial("A", 1, rows(0.1), "diverged")], None, columns=("top", "final")
    )
    assert cells(line, ("seconds", "top", "final"))[2:] == ("60.0 %, 1 of 2 diverged", "60.0 %")


def test_a_probe_is_no_further_model_of_a_method():
    probed = [{**row, "diversity": 2.0, "diversity/starts": 3.0} for row in rows(0.5, gamma=[0.7])]
    trials = [Trial("FedDyn", 0, probed)]
    assert models_of(trials) == ["x", "gamma"]
    assert models_of(trials, "diversity") == ["x"]
    (line,) = summarise(trials, None, parse_measure("final of diversity (min)"))
    assert cells(line)[:2] == ("FedDyn", "2")


def test_columns_are_read_from_a_text_or_a_list():
    names = ("score", "smoothed:50", "mean:0.05:1 of diversity (min)", "gradients_to_target", "seconds")
    assert parse_columns(", ".join(names)) == parse_columns(list(names)) == names
    assert parse_columns("last:020") == ("last:20",)
    assert parse_columns(COLUMNS) == COLUMNS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no column ''"),
        ("top,", "there is no column ''"),
        ("rounds_to_targt", "did you mean 'rounds_to_target'?"),
        ("bytes", "known: bytes_to_target, final"),
        ("top,top", "'top' is given twice"),
        ("last:0", "measure 'last:0'"),
        ([3], "3 is no name"),
        ([], "none is given"),
        (7, "columns = 7: give their names"),
    ],
)
def test_other_columns_are_refused(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_columns(text)
    assert message in str(caught.value)
