"""The pages of docs/ that come from the code are what the code gives now."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import fedkeel as fk

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))


@pytest.mark.slow
def test_the_methods_page_is_its_generators_output(generator: dict[str, Any]) -> None:
    page = (DOCS / "methods.md").read_text()
    assert page == generator["methods_page"](), "run `make docs` and commit the page"


def test_the_measured_seconds_are_of_methods_that_exist() -> None:
    measured = json.loads((DOCS / "methods.json").read_text())["seconds_over_fedavg"]
    assert set(measured) <= {make.__name__ for make in fk.METHODS}
    assert measured["FedAvg"] == 1.0


def test_traffic_is_counted_in_models(generator: dict[str, Any]) -> None:
    assert generator["traffic"](fk.SCAFFOLD) == pytest.approx((2, 2), rel=1e-3)
    assert generator["traffic"](fk.FedCM) == pytest.approx((2, 1), rel=1e-3)  # and a number or two
