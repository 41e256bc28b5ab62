"""Charts: axes, curves, discs; the same element inside a page and as a file of its own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from fedkeel.report.charts import Axis, ChartCurve, disc_grid, draw_chart, fit_axis, line_chart
from fedkeel.report.curves import averaged, diagnostic_charts
from fedkeel.report.style import html_page
from hypothesis import given
from hypothesis import strategies as st

import fedkeel
from fedkeel.report import Trial, find_verdict, make_page

SVG = "{http://www.w3.org/2000/svg}"


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


def lines_of(svg: str) -> list[ET.Element]:
    """Return the curves of a file, without the keys of its legend."""
    paths = ET.fromstring(svg).iter(f"{SVG}path")
    return [path for path in paths if (path.get("class") or "").startswith("line") and len(path)]


def test_a_chart_has_a_line_for_each_curve_and_a_legend() -> None:
    drawn = line_chart("a < b", {"one": [(1, 2.0), (2, 3.0)], "two": [(1, 1.0)]}, log=True).file()
    assert ET.fromstring(drawn).get("aria-label") == "a < b"
    assert len(lines_of(drawn)) == 2
    texts = [text.text for text in ET.fromstring(drawn).iter(f"{SVG}text")]
    assert {"a < b", "one", "two", "round"} <= set(texts)


def test_charts_without_points_and_flat_ones_are_drawn_too() -> None:
    assert "nothing to draw" in line_chart("nothing", {"one": []}).file()
    for flat in (0.0, 1.0, -3.0, 1e-9):
        assert len(lines_of(line_chart("flat", {"one": [(1, flat), (2, flat)]}).file())) == 1
    assert len(lines_of(line_chart("flat", {"one": [(1, 5.0)]}, log=True).file())) == 1


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9),
    st.booleans(),
    st.booleans(),
)
def test_all_values_and_ticks_lie_on_their_axis(values: list[float], log: bool, rounded: bool) -> None:
    values = [abs(value) + 1e-3 for value in values] if log else values
    axis = fit_axis(values, 400, 20, log=log, rounded=rounded)
    for value in (*values, *axis.ticks(6)):
        assert 20 - 1e-3 <= axis.pixel(value) <= 400 + 1e-3
    assert 2 <= len(axis.ticks(6)) <= 13


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 1, 0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis(0.5, 12.3, 0, 1), [2, 4, 6, 8, 10, 12]),
        (Axis(1, 100, 0, 1, log=True), [1, 2, 5, 10, 20, 50, 100]),
        (Axis(1, 1e12, 0, 1, log=True), [1, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12]),
        (Axis(3, 4, 0, 1, log=True), [3, 3.2, 3.4, 3.6, 3.8, 4]),
    ],
)
def test_ticks_are_round_numbers(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks(6) == pytest.approx(ticks)


def test_a_logarithmic_axis_has_decades_of_one_length() -> None:
    axis = Axis(1, 1000, 0, 300, log=True)
    assert [axis.pixel(10.0**k) for k in range(4)] == pytest.approx([0, 100, 200, 300])


def test_points_are_hollow_where_the_curve_says_so() -> None:
    curve = ChartCurve("bound", [(1, 1.0), (2, 3.0)], 0, hollow=[False, True])
    assert draw_chart([curve], x="T").inline().count("hollow") == 1


def test_a_disc_has_the_area_of_its_samples() -> None:
    root = ET.fromstring(disc_grid([[4, 0], [1, 16]], ["a", "b"], "split").file())
    radii = [float(disc.get("r") or 0) for disc in root.iter(f"{SVG}circle")]
    assert [(radius / radii[-1]) ** 2 for radius in radii] == pytest.approx([4 / 16, 1 / 16, 1], abs=1e-3)


def test_one_style_sheet_and_one_module_that_draws() -> None:
    files = list(Path(fedkeel.__file__).parent.rglob("*.py"))
    styled = [path.name for path in files if "<style>" in path.read_text()]
    assert sorted(styled) == ["charts.py", "style.py"]
    drawing = [path.name for path in files if re.search(r"<svg |<circle|<rect|<polyline", path.read_text())]
    assert drawing == ["charts.py"]


def test_what_a_chart_names_its_parts_the_style_sheet_knows() -> None:
    band = ChartCurve("a", [(1, 0.5), (2, 0.6)], 3, dashed=True, band=[(1, 0.4, 0.6), (2, 0.5, 0.7)])
    drawn = draw_chart([band], x="round", y="accuracy", title="t", percent=True, target=0.5).inline()
    discs = disc_grid([[1]], ["a"], "split").inline()
    style = html_page("", "")
    for classes in re.findall(r'class="([^"]+)"', drawn + discs + line_chart("t", {"a": [(1, 1)]}).inline()):
        for name in classes.split():
            assert f".{name} " in style, name


def test_rows_of_seeds_are_averaged_and_gaps_left_out() -> None:
    trials = [Trial("FedAvg", seed, rows(seed + 1.0, drift=2.0)) for seed in range(2)]
    (found,) = averaged(trials).values()
    assert "drift" not in found[0]
    assert found[1]["drift"] == pytest.approx((4 + 8) / 2)
    assert [chart.label for chart in diagnostic_charts({"FedAvg": found})] == ["global_update", "drift"]


@pytest.mark.parametrize(("more", "shown"), [({"drift": 2.0}, True), ({}, False)])
def test_the_page_draws_diagnostics_where_they_were_asked_for(more: Any, shown: bool) -> None:
    trials = [Trial(method, seed, rows(1.0, **more)) for method in ("A", "B") for seed in range(2)]
    page = make_page("t", trials, verdict=find_verdict(trials), target=None, commands=["x"], settings="y")
    assert ("<h2>Diagnostics</h2>" in page) is shown
    assert "http" not in page
