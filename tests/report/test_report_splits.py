"""The picture of a split shows the counts it was made of."""

from __future__ import annotations

import json
import sys
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.report.splits import as_png, as_svg, as_text, count_split

COUNTS = np.array([[4, 0, 1], [0, 2, 2]])


def federation() -> fk.Federation:
    clients = [(np.zeros((row.sum(), 2)), np.repeat([0, 1, 2], row)) for row in COUNTS]
    return fk.Federation.from_arrays(clients, classes=3)


def test_counts_are_the_clients_samples_by_class() -> None:
    picture = count_split(federation())
    np.testing.assert_array_equal(picture.counts, COUNTS)
    facts = dict(picture.facts)
    assert facts["samples"] == "9"
    assert facts["classes per client"] == "2 to 2, median 2"


def test_names_of_classes_cannot_write_into_a_picture() -> None:
    """A name that holds tags and quotes is text in it; tests/report/test_report_page.py has the page."""
    name = """<script>alert("x")</script>'"&"""
    drawn = as_svg(count_split(federation())._replace(names=(name, "b", "c")))
    texts = [element.text for element in ElementTree.fromstring(drawn).iter()]
    assert any(name in (text or "") for text in texts)
    assert "<script" not in drawn


def test_drawings() -> None:
    picture = count_split(federation())
    assert as_svg(picture).count("<circle") == 4
    assert "0 │█ │" in as_text(picture)
    assert "1 │ ▒│" in as_text(picture)
    with Image.open(BytesIO(as_png(picture, cell=4))) as opened:
        assert opened.size == (8, 12)
        assert opened.getpixel((2, 2)) == (37, 99, 201)
        assert opened.getpixel((6, 2)) == (255, 255, 255)


def test_a_png_without_pillow_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        fk.DataError, match=r'writing pictures needs the package Pillow: pip install "fedkeel'
    ):
        as_png(count_split(federation()))


def test_real_targets_cannot_be_drawn() -> None:
    with pytest.raises(fk.DataError, match="only classes can be drawn"):
        count_split(fk.Federation.from_arrays([(np.zeros((2, 1)), np.array([0.5, 1.5]))]))


@pytest.mark.parametrize("ending", ["html", "svg", "png"])
def test_the_command_draws_and_writes(tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"split.{ending}"
    shown = CliRunner().invoke(
        app, ["split", "--split", "DirichletByClass(0.1)", "--clients", "7", "--picture", str(out)]
    )
    assert shown.exit_code == 0, shown.output
    assert "7" in shown.output
    assert out.stat().st_size > 200


def test_the_command_speaks_json_and_refuses_nonsense(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["split", "--split", "IID", "--clients", "3", "--json"])
    assert np.array(json.loads(told.output)["counts"]).shape == (3, 10)
    assert CliRunner().invoke(app, ["split", "--split", "IDD"]).exit_code == 2
    assert (
        CliRunner().invoke(app, ["split", "--split", "IID", "--picture", str(tmp_path / "a.pdf")]).exit_code
        == 2
    )
    assert CliRunner().invoke(app, ["split", "--split", "IID", "--data", "cifar11"]).exit_code in (2, 3)
    assert CliRunner().invoke(app, ["split", "--split", "IID", "--clients", "100000"]).exit_code in (2, 3)
