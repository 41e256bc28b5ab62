"""Claims: what the paper's numbers and several seeds say of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedkeel.papers.recipes import find_recipe
from fedkeel.papers.recipes.claims import BetterInPairs, Between, CellKey, Ordered, Peaks, Similar, better
from fedkeel.papers.recipes.recipe import Column, PaperTable, Recipe, RecipeScale, Setup
from fedkeel.papers.reproduce.judging import judge, judge_in_paper
from fedkeel.papers.reproduce.plan import plan
from fedkeel.papers.reproduce.reading import CellResult, Score, read_rule

ROWS = ("a", "b", "c")
COLUMNS = (Column("top", "s", "top"), Column("rounds", "s", "rounds_to:0.5"))


def recipe(claim, numbers=""):
    return Recipe(
        name="t/table1",
        title="",
        setups={"s": Setup({}, dict.fromkeys(ROWS, "FedAvg"))},
        tables=(PaperTable(COLUMNS, numbers),),
        claims=(claim,),
        assumptions=(),
        decided_by=("nothing",),
        seeds=3,
        cpu=RecipeScale(note="", seeds=3),
    )


def cells(heading, **scores):
    """Cells of a column; each row's numbers by seed, "3+" where a target was not reached, None: diverged."""
    measure = {column.heading: column.measure for column in COLUMNS}[heading]
    made = {}
    for row, values in scores.items():
        read = [
            Score(float(str(one).rstrip("+")), str(one).endswith("+")) if one is not None else Score(None)
            for one in values
        ]
        key = CellKey(row, heading)
        made[key] = CellResult(key, read_rule(measure), None, dict(enumerate(read)), 0)
    return made


def found(claim, *columns):
    there = {key: cell for column in columns for key, cell in column.items()}
    made = recipe(claim)
    return judge(claim, made, made.scale("cpu"), COLUMNS, there)


ABOVE = better("a is above b", "a", "b", "top")


def test_a_clear_lead_in_every_seed_holds():
    judged = found(ABOVE, cells("top", a=[80, 81, 82], b=[70, 71.5, 72]))
    assert judged.finding == "holds"
    assert judged.why == "a − b, top: +9.8 (+9.1 to +10.6)"


def test_a_clear_lead_of_the_other_does_not_hold():
    judged = found(ABOVE, cells("top", a=[70, 71.5, 72], b=[80, 81, 82]))
    assert judged.finding == "does not hold"


def test_a_lead_within_the_noise_is_not_resolved():
    assert found(ABOVE, cells("top", a=[80, 70, 75], b=[74, 76, 72])).finding == "not resolved"


def test_one_seed_resolves_nothing_and_says_so():
    judged = found(ABOVE, cells("top", a=[80], b=[10]))
    assert judged.finding == "not resolved"
    assert "one seed, which has no interval" in judged.why


def test_seeds_that_diverge_on_either_side_resolve_nothing():
    judged = found(ABOVE, cells("top", a=[None, 81, None], b=[70, None, None]))
    assert judged.finding == "not resolved"
    assert judged.why == "diverged: a: 2 of 3, b: 2 of 3 seeds, which is worse than any number"


def test_what_was_not_run_is_not_judged():
    assert found(ABOVE, cells("top", a=[80, 81])).finding == "not run"


def test_fewer_rounds_are_better():
    claim = better("a needs fewer rounds", "a", "b", "rounds")
    judged = found(claim, cells("rounds", a=[10, 11, 12], b=[30, 32, 31]))
    assert judged.finding == "holds"
    assert "−20" in judged.why  # the table's sign: twenty rounds fewer


def test_a_target_that_the_other_never_reached_is_a_lead():
    claim = better("a needs fewer rounds", "a", "b", "rounds")
    assert found(claim, cells("rounds", a=[10, 11, 12], b=["50+"] * 3)).finding == "holds"
    assert found(claim, cells("rounds", a=["50+"] * 3, b=[10, 11, 12])).finding == "does not hold"
    assert found(claim, cells("rounds", a=["50+"] * 3, b=["50+"] * 3)).finding == "not resolved"


def test_a_run_that_diverged_is_worse_than_any():
    assert found(ABOVE, cells("top", a=[50, 51, 52], b=[None] * 3)).finding == "holds"
    assert found(ABOVE, cells("top", a=[None] * 3, b=[50, 51, 52])).finding == "does not hold"
    assert found(ABOVE, cells("top", a=[50, 51, 52], b=[None, 20, 20])).finding == "not resolved"


def test_similar_needs_both_sides():
    claim = Similar("alike", ("a",), ("b",), 2.0, ("top",))
    assert found(claim, cells("top", a=[80, 81, 82], b=[80.2, 81.1, 82.1])).finding == "holds"
    assert found(claim, cells("top", a=[80, 81, 82], b=[70, 71, 72])).finding == "does not hold"
    assert found(claim, cells("top", a=[80, 90, 70], b=[70, 71, 72])).finding == "not resolved"


def test_between_takes_the_numbers_as_they_are_shown():
    claim = Between("some rounds", ("a",), "rounds", 5, 15)
    assert found(claim, cells("rounds", a=[9, 10, 11])).finding == "holds"
    assert found(claim, cells("rounds", a=[29, 30, 31])).finding == "does not hold"


def test_a_peak_lies_between_the_ends():
    claim = Peaks("b is best", ROWS, ("top",))
    peak = cells("top", a=[70, 71, 72], b=[80, 81, 82], c=[60, 61, 62])
    slope = cells("top", a=[70, 71, 72], b=[80, 81, 82], c=[90, 91, 92])
    assert found(claim, peak).finding == "holds"
    assert found(claim, slope).finding == "does not hold"


def test_an_order_needs_every_step():
    claim = Ordered("falls", ROWS, ("top",))
    assert found(claim, cells("top", a=[90, 91, 92], b=[80, 81, 82], c=[70, 71, 72])).finding == "holds"
    assert found(claim, cells("top", a=[90, 91, 92], b=[70, 71, 72], c=[80, 81, 82])).finding != "holds"


@pytest.mark.parametrize(
    ("numbers", "finding"),
    [
        ("a | 80 5\nb | 70 9", "holds"),
        ("a | 70 5\nb | 80 9", "does not hold"),
        ("a | 70 5\nb | 70 9", "does not hold"),
        ("a | - 5\nb | 80 9", "not printed"),
    ],
)
def test_the_paper_s_numbers_are_judged_as_they_stand(numbers, finding):
    assert judge_in_paper(ABOVE, recipe(ABOVE, numbers)) == finding


def test_two_targets_that_the_paper_never_reached_say_nothing():
    claim = better("a needs fewer rounds", "a", "b", "rounds")
    assert judge_in_paper(claim, recipe(claim, "a | 80 2000+\nb | 70 2000+")) == "not resolved"
    assert judge_in_paper(claim, recipe(claim, "a | 80 900\nb | 70 2000+")) == "holds"
    assert judge_in_paper(claim, recipe(claim, "a | 80 900\nb | 70 x")) == "holds"


def test_false_claims_are_rare():
    """Among equal methods, a claim of one contrast is declared to hold in at most about 2.5 % of studies."""
    rng = np.random.default_rng(0)
    judged = [
        found(ABOVE, cells("top", a=rng.normal(80, 1, 4), b=rng.normal(80, 1, 4))).finding for _ in range(600)
    ]
    assert judged.count("holds") / 600 < 0.05
    assert judged.count("does not hold") / 600 < 0.05
    assert math.isclose(judged.count("not resolved") / 600, 0.95, abs_tol=0.03)


def test_a_claim_about_rows_that_are_not_there_is_refused():
    with pytest.raises(ValueError, match=r"names \['z'\]"):
        recipe(better("z is above b", "z", "b", "top"))
    with pytest.raises(ValueError, match="names"):
        recipe(replace(ABOVE, columns=("bottom",)))


def test_a_claim_about_all_rows_holds_only_where_all_of_them_were_run():
    """Against one of two others it holds; the other one was not run, so the claim is open."""
    all_others = better("a is above all others", "a", (), "top")
    lead = {"a": [80, 81, 82], "b": [70, 71.5, 72]}
    assert found(all_others, cells("top", **lead, c=[60, 60, 60])).finding == "holds"
    judged = found(all_others, cells("top", **lead))
    assert judged.finding == "not resolved"
    assert judged.why.startswith("holds for 1 of 2 comparisons, the others were not run; a − b, top: +9.8")
    assert found(all_others, cells("top", a=[60, 60, 60], b=[70, 71.5, 72])).finding == "does not hold"


def test_a_claim_about_all_columns_holds_only_where_all_of_them_were_run():
    everywhere = better("a is above b in every column", "a", "b")
    top = cells("top", a=[80, 81, 82], b=[70, 71.5, 72])
    rounds = cells("rounds", a=[10, 11, 12], b=[30, 32, 31])
    assert found(everywhere, top, rounds).finding == "holds"
    made = recipe(everywhere)
    judged = judge(everywhere, made, made.scale("cpu"), COLUMNS[:1], top)  # as with --only
    assert judged.finding == "not resolved"
    told = "holds for 1 of 2 comparisons, the others were not run; 1 of 2 columns were run; a − b, top: +9.8"
    assert judged.why.startswith(told)
    lost = cells("top", a=[60, 60, 60], b=[70, 71.5, 72])  # one column is enough to refute it
    assert judge(everywhere, made, made.scale("cpu"), COLUMNS[:1], lost).finding == "does not hold"


def test_a_peak_in_all_columns_holds_only_where_all_of_them_were_run():
    claim = Peaks("b is best", ROWS)
    peak = cells("top", a=[70, 71, 72], b=[80, 81, 82], c=[60, 61, 62])
    made = recipe(claim)
    judged = judge(claim, made, made.scale("cpu"), COLUMNS[:1], peak)
    assert judged.finding == "not resolved"
    assert "1 of 2 columns were run; " in judged.why


def test_every_setting_of_rethinking_s_table_is_asked_for(tmp_path):
    whole = find_recipe("rethinking/table1")
    claim = next(one for one in whole.claims if one.text == "FedDyn→FedAvg is above FedAvg in every setting")
    made = plan(whole, "cpu", tmp_path, only=["Silo IID CIFAR10"])
    accuracies = {"FedAvg": 49.0, "FedDyn": 50.0, "FedDyn→FedAvg": 51.0}
    there = {
        key: CellResult(key, read_rule("final"), None, {seed: Score(one) for seed in range(3)}, 0)
        for row, one in accuracies.items()
        for key in [CellKey(row, "Silo IID CIFAR10")]
    }
    judged = judge(claim, whole, made.scale, made.columns, there)
    assert judged.finding == "not resolved"
    assert "1 of 12 columns were run" in judged.why


WITH, WITHOUT = "with", "without"


def treated(**scores):
    """Judge that a and b are better with a treatment; scores by row and column, as a_with."""
    columns = tuple(Column(heading, "s", "top") for heading in (WITH, WITHOUT))
    claim = BetterInPairs("", ((WITH, WITHOUT),), ("a", "b"), baselines=((WITH, WITHOUT),))
    made = recipe(ABOVE).changed(tables=(PaperTable(columns),), claims=(claim,))
    there = {
        key: CellResult(key, read_rule("top"), None, dict(enumerate(map(Score, values))), 0)
        for name, values in scores.items()
        for key in [CellKey(*name.split("_"))]
    }
    return judge(claim, made, made.scale("cpu"), columns, there)


GAIN = {"b_with": [80, 81, 82], "b_without": [70, 71, 72.5]}


def test_a_treatment_is_not_blamed_where_the_method_diverges_without_it_too():
    judged = treated(**GAIN, a_with=[None] * 3, a_without=[None, 50, None])
    assert judged.finding == "not comparable here"
    assert judged.why == "a diverges without the treatment too (without: 2 of 3 seeds)"


def test_a_treatment_that_alone_diverges_or_alone_trains_is_judged():
    assert treated(**GAIN, a_with=[None] * 3, a_without=[50, 51, 52]).finding == "does not hold"
    assert treated(**GAIN, a_with=[50, 51, 52], a_without=[None] * 3).finding == "holds"


def test_what_another_method_refutes_stays_refuted():
    lost = {"b_with": [60, 61, 62], "b_without": [70, 71, 72.5]}
    assert treated(**lost, a_with=[None] * 3, a_without=[None] * 3).finding == "does not hold"


def test_the_best_with_a_treatment_is_not_sought_where_it_diverges_without_it():
    claim = next(one for one in find_recipe("fedinit/table6").claims if "is the best" in one.text)
    plain = claim.baseline(CellKey("SCAFFOLD", "10%-100 Dir-0.6 +RI"))
    assert plain == CellKey("SCAFFOLD", "10%-100 Dir-0.6 -")
    assert claim.baseline(plain) is None
