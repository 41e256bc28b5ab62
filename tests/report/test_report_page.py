"""The page: one file, no network, everything on it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from fedkeel.report.curves import accuracy_chart, accuracy_curves

from fedkeel.report import Trial, find_verdict, make_page


def trial(method: str, seed: int, *accuracies: float | None) -> Trial:
    rows = [
        {"round": i, "accuracy": a, "bytes_down": 10, "bytes_up": 10, "seconds": 0.1}
        for i, a in enumerate(accuracies)
    ]
    return Trial(method, seed, rows)


TRIALS = [
    trial("FedAvg", 0, 0.1, 0.5, 0.7),
    trial("FedAvg", 1, 0.2, 0.4, 0.8),
    trial("relaxed(SCAFFOLD, beta=<b>)", 0, 0.1, 0.6, 0.9),
    trial("relaxed(SCAFFOLD, beta=<b>)", 1, 0.2, 0.6, 0.9),
]


@pytest.fixture
def text() -> str:
    return make_page(
        "A & B",
        TRIALS,
        verdict=find_verdict(TRIALS),
        target=0.5,
        commands=["fedkeel compare --method FedAvg --method 'relaxed(SCAFFOLD)' --seeds 2"],
        settings="rounds = 3\n",
    )


def test_the_page_needs_no_network_and_no_script(text):
    assert not re.search(r"https?://|<script|<link|src=|@import|url\(", text)


def test_the_page_holds_verdict_table_curves_and_commands(text):
    assert "fedkeel compare --method FedAvg --method &#x27;relaxed(SCAFFOLD)&#x27; --seeds 2" in text
    assert "75.0 ± 7.1 %" in text
    assert text.count('class="band') == 2
    assert "communication rounds" in text
    assert "test accuracy" in text
    assert "prefers-color-scheme: dark" in text
    assert "rounds = 3" in text


def test_names_are_escaped_and_tags_closed(text):
    assert "<b>" not in text
    assert "A &amp; B" in text
    open_tags: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in {"meta"}:
                open_tags.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Checker().feed(text)
    assert open_tags == []


def test_a_curve_is_the_mean_and_its_band_the_worst_and_best_seed():
    curve = accuracy_curves(TRIALS)[0]
    assert curve.points == [(1, pytest.approx(0.15)), (2, pytest.approx(0.45)), (3, pytest.approx(0.75))]
    assert curve.band == [(1, 0.1, 0.2), (2, 0.4, 0.5), (3, 0.7, 0.8)]


def test_the_chart_is_well_formed_and_stays_inside_its_frame():
    root = ElementTree.fromstring(accuracy_chart(accuracy_curves(TRIALS), target=0.5))
    width, height = (float(part) for part in root.get("viewBox").split()[2:])
    for path in root.iter("path"):
        numbers = re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get("d"))
        assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in numbers)


def test_few_rounds_flat_curves_and_no_rounds_draw_something():
    assert "<svg" in accuracy_chart(accuracy_curves([trial("A", 0, 0.5)]))
    assert "<svg" in accuracy_chart(accuracy_curves([trial("A", 0, 0.5, 0.5), trial("B", 0, 0.5, None)]))
    assert "No round was evaluated" in accuracy_chart(accuracy_curves([trial("A", 0)]))
