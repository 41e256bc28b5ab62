"""The pages of docs/ that come from the code are what the code gives now."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedkeel as fk

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))


@pytest.mark.slow
def test_the_pages_of_methods_are_their_generators_output(generator: dict[str, Any]) -> None:
    made = generator["pages"]()
    assert {f"methods/{path.name}" for path in (DOCS / "methods").iterdir()} == set(made) - {
        "methods.md",
        "settings.md",
        "from-0.1.md",
    }
    for page, text in made.items():
        assert (DOCS / page).read_text() == text, f"{page}: run `make docs` and commit the pages"


def test_the_page_of_settings_is_what_the_code_gives(generator: dict[str, Any]) -> None:
    made = generator["settings_page"]()
    assert (DOCS / "settings.md").read_text() == made, "run `make docs` and commit the page"


def test_the_results_of_methods_are_of_methods_and_pages_that_exist() -> None:
    names = {make.__name__ for make in fk.METHODS}
    for result in tomllib.loads((DOCS / "results.toml").read_text())["result"]:
        assert set(result["methods"]) <= names
        page = (DOCS / result["page"]).read_text()
        for text in result["methods"].values():
            for number in re.findall(r"\d+\.\d+", text):  # a figure stands on the page that it is taken from
                assert number in page or f"{number}0" in page or _rounded(number, page), (
                    result["page"],
                    number,
                )


def _rounded(number: str, page: str) -> bool:
    """Whether the page has a figure that is this one when it is rounded."""
    places = len(number.partition(".")[2])
    return any(f"{float(one):.{places}f}" == number for one in re.findall(r"\d+\.\d+", page))


def test_the_measured_seconds_are_of_methods_that_exist() -> None:
    measured = json.loads((DOCS / "methods.json").read_text())["seconds_over_fedavg"]
    assert set(measured) <= {make.__name__ for make in fk.METHODS}
    assert measured["FedAvg"] == 1.0


def test_traffic_is_counted_in_models(generator: dict[str, Any]) -> None:
    assert generator["traffic"](fk.SCAFFOLD) == pytest.approx((2, 2), rel=1e-3)
    assert generator["traffic"](fk.FedCM) == pytest.approx((2, 1), rel=1e-3)  # and a number or two
