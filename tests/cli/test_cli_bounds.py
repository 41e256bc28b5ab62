"""`fedkeel bounds`: tables, pages and what bad input gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import block, document_in

from fedkeel.cli.bounds_page import spark
from fedkeel.theory import fedinit


def test_without_a_name_all_bounds_are_listed(fedkeel):
    listed = fedkeel("bounds").stdout
    for part in ("fedinit-1", "beyond-4.7", "stability-fedsagd", "tau2=4"):
        assert part in listed
    assert len(json.loads(fedkeel("bounds", "--json").stdout)["bounds"]) == 24


def test_a_table_has_the_calculators_numbers_and_marks_what_is_violated(fedkeel):
    told = fedkeel(
        "bounds", "fedinit-1", "--over", "beta", "--values", "0,0.05,0.1", "--constant", "N=20"
    ).stdout
    run = fedinit.RelaxedRun(beta=0, eta=1e-4, K=10, N=20, C=100, T=1000, L=10, D=2)
    value = fedinit.theorem_1(run, sigma_l2=1, sigma_g2=1).value
    lines = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.startswith("0")}
    assert lines["0"] == [f"{value:.4g}"] * 2
    assert lines["0.05"][0].startswith("(")
    assert lines["0.1"] == ["—", "—"]
    assert "|β| < 0.0842: violated from beta = 0.1 on; at beta = 0.1, violated by a factor 1.19" in told


@pytest.mark.parametrize("over", ["T", "K", "N", "beta"])
def test_every_parameter_can_vary(fedkeel, over):
    rows = json.loads(fedkeel("bounds", "fedinit-17", "--over", over, "--json").stdout)["curves"][0]["rows"]
    assert len({row["value"] for row in rows}) > 1
    assert all(over in row for row in rows)


def test_the_page_holds_a_chart_and_needs_no_network(fedkeel):
    fedkeel("bounds", "stability", "beyond-4.7", "--over", "T", "--page", "b.html")
    chart = block(document_in(Path("b.html")), "bounds-chart")
    assert len(chart.series) >= 12
    assert chart.x.log
    assert chart.y.log
    assert len({(series.colour % 10, series.dash) for series in chart.series}) == len(chart.series)
    told = json.loads(fedkeel("bounds", "stability", "beyond-4.7", "--over", "T", "--json").stdout)
    for series, curve in zip(chart.series, told["curves"], strict=True):
        assert list(series.y) == [row["value"] for row in curve["rows"]]


def test_no_variance_is_a_number(fedkeel):
    told = fedkeel(
        "bounds", "beyond-4.8", "--over", "K", "--constant", "sigma_l2=0", "--values", "1,2", "--json"
    )
    rows = json.loads(told.stdout)["curves"][0]["rows"]
    assert all(row["value"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fedinit-2"], "there is no bound 'fedinit-2'; did you mean"),
        (["fedinit-1", "--over", "C"], "--over 'C': choose one of T, K, N, beta"),
        (["beyond-4.8", "--over", "T"], "beyond-4.8 does not depend on T: --over one of K"),
        (["fedinit-1", "--constant", "beta=0.1"], "|β| < √(r/M): violated everywhere"),
        (["fedinit-1", "--constant", "beta=0.1", "--constant", "C=10"], "|β| < 0.0842: violated everywhere"),
        (
            ["beyond-4.8", "--over", "K", "--constant", "epsilon=1e-9", "--form", "repaired"],
            "2·floor ≤ ε: violated every",
        ),
        (["fedinit-1", "--constant", "sigma_l2=-1"], "fedinit-1: sigma_l2 is -1.0: give a finite number"),
        (["fedinit-1", "--constant", "beta=nan"], "beta = nan: give a finite number"),
        (["fedinit-1", "--constant", "Lambda=3"], "write NAME=NUMBER"),
        (["fedinit-1", "--constant", "K=2.5"], "K = 2.5: give a whole number"),
        (["fedinit-1", "--constant", "L=ten"], "L = 'ten': give a number"),
        (["fedinit-1", "--values", "0"], "T is 0: give a whole number"),
        (["fedinit-1", "--form", "fixed"], "--form 'fixed'"),
        (["fedinit-1", "--advice", "no.json"], "--advice no.json: cannot be read"),
    ],
)
def test_bad_input_exits_with_2(fedkeel, args, message):
    result = fedkeel("bounds", *args, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_bars_are_logarithmic_and_gaps_stay_gaps():
    assert spark([1.0, 10.0, float("inf"), 100.0]) == "1 ▁▅ █ 100 (logarithmic)"
    assert spark([0.0, float("inf")]) == "no value above zero"


def test_theorem_12_asks_for_the_largest_distance_of_a_sample_s_gradient(fedkeel):
    told = fedkeel("bounds", "fedinit-12", "--constant", "sigma_l2=4", code=2)
    assert "give also --constant sample_spread=…, the largest distance of a sample's gradient" in told.stderr
    given = ["bounds", "fedinit-12", "--constant", "sample_spread=3", "--json", "--constant"]
    told = [json.loads(fedkeel(*given, f"sigma_l2={noise}").stdout)["curves"] for noise in (1, 4)]
    (one, printed), (other, _) = told
    assert one == other  # σ_l is not among what it takes
    assert printed["form"] == "as_printed"  # which has σ_l, and is no bound


def test_theorem_12_as_printed_has_the_paper_s_average_and_says_that_it_is_violated(fedkeel):
    line = ["bounds", "fedinit-12", "--values", "3000", "--constant", "sigma_l2=1", "--constant"]
    told = fedkeel(*line, "sample_spread=2").stdout
    assert "(0.1095)" in told
    assert "σ_l ≥ sample_spread" in told


def test_constants_of_an_older_file_ask_for_what_it_lacks(fedkeel, tmp_path):
    names = ("L", "sigma_l2", "sigma_g2", "L_G", "U", "mu", "tau1", "tau2", "a", "b", "alpha", "beta", "D")
    table = {
        "run": dict.fromkeys(("T", "K", "N", "C", "S", "B", "beta", "eta_g", "eta_l", "epsilon", "theta"), 1),
        "constants": {
            name: {"value": 1, "high": 1} for name in (*names, "interpolation_a", "interpolation_b")
        },
        "losses": [[0, 2.0]],
    }
    file = tmp_path / "older.json"
    file.write_text(json.dumps(table))
    assert fedkeel("bounds", "stability", "--advice", file).exit_code == 0
    told = fedkeel("bounds", "fedinit-12", "--advice", file, code=2).stderr
    assert "give also --constant sample_spread=…" in told
