"""Charts of diagnostics: the columns that probes report, in the page only where they were asked for."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from fedkeel.report import Trial, find_verdict, make_page
from fedkeel.report.lines import averaged, diagnostics, lines


def rows(scale: float, **more: float) -> list[dict[str, Any]]:
    return [
        {
            "round": r,
            "accuracy": 0.5,
            "loss": 1.0,
            "bytes_down": 1,
            "bytes_up": 1,
            "seconds": 0.1,
            "global_update": 1.0,
            **{name: value * scale * (r + 1) if r else None for name, value in more.items()},
        }
        for r in range(4)
    ]


def test_a_chart_is_one_picture_with_a_line_for_each_curve() -> None:
    drawn = lines("a < b", {"one": [(1, 2.0), (2, 3.0)], "two": [(1, 1.0)]}, log=True)
    root = ET.fromstring(drawn)
    assert root.get("aria-label") == "a < b"
    assert (
        len([path for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("fill") == "none"])
        == 2
    )
    assert lines("nothing", {"one": []}) == ""
    assert "<path" in lines("flat", {"one": [(1, 0.0), (2, 0.0)]})


def test_rows_of_seeds_are_averaged_and_gaps_left_out() -> None:
    trials = [Trial("FedAvg", seed, rows(seed + 1.0, drift=2.0)) for seed in range(2)]
    (found,) = averaged(trials).values()
    assert "drift" not in found[0]
    assert found[1]["drift"] == pytest.approx((4 + 8) / 2)
    assert [chart.count("drift") > 0 for chart in diagnostics({"FedAvg": found})] == [False, True]


@pytest.mark.parametrize(("more", "shown"), [({"drift": 2.0}, True), ({}, False)])
def test_the_page_draws_diagnostics_where_they_were_asked_for(more: Any, shown: bool) -> None:
    trials = [Trial(method, seed, rows(1.0, **more)) for method in ("A", "B") for seed in range(2)]
    page = make_page("t", trials, verdict=find_verdict(trials), target=None, commands=["x"], settings="y")
    assert ("<h2>Diagnostics</h2>" in page) is shown
