"""`fedkeel recipes` and `fedkeel reproduce`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fedkeel.papers.recipes import all_recipes


def test_the_list_names_every_recipe_with_its_claim_time_and_what_is_missing(fedkeel, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path))
    monkeypatch.setenv("FEDKEEL_CACHE", str(tmp_path))
    shown = fedkeel("recipes").stdout
    for name, recipe in all_recipes().items():
        assert name in shown
        assert (recipe.claims[0].text if recipe.claims else recipe.title)[:20] in " ".join(shown.split())
    assert "cifar10" in shown
    assert "a GPU" in shown
    listed = json.loads(fedkeel("recipes", "--json").stdout)
    assert [one["name"] for one in listed] == list(all_recipes())
    assert all({"paper", "cpu", "smoke"} == set(one["scales"]) for one in listed)
    needs = next(one for one in listed if one["name"] == "fedsagd/table2")["scales"]
    assert needs["paper"]["missing"] == ["cifar10", "cifar100", "emnist-l", "shakespeare", "a GPU"]
    assert needs["cpu"]["seconds"] < needs["paper"]["seconds"]


def test_a_data_set_that_is_there_is_not_missing(fedkeel, monkeypatch, tmp_path):
    (tmp_path / "mnist.npz").touch()
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path))
    found = json.loads(fedkeel("recipes", "show", "fedsagd/table2", "--json").stdout)
    assert "mnist" not in found["scales"]["cpu"]["missing"]


def test_one_recipe_is_shown_with_settings_table_claims_and_assumptions(fedkeel):
    shown = fedkeel("recipes", "show", "fedsagd/table2").stdout
    for text in (
        "work.epochs=20",
        "FedDyn(alpha=0.01)",
        "2000+",
        "84.05",
        "FedSAGD has the highest top accuracy",
        "in the paper's numbers: does not hold",
        "EMNIST-L",
        "- cpu:",
    ):
        assert text in shown


def test_the_list_does_not_import_torch():
    code = "import sys; from fedkeel.cli import app; sys.argv=['fedkeel','recipes']\n"
    code += "try: app()\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_a_dry_run_says_what_would_be_run_and_runs_nothing(fedkeel, tmp_path):
    line = ("reproduce", "fedsagd/table2", "--scale", "smoke", "--only", "emnist", "--dry-run")
    shown = fedkeel(*line, "--out", str(tmp_path / "out")).stdout
    assert "FedAvg" in shown
    assert "10 of 10 runs are left" in shown
    assert not (tmp_path / "out").exists()
    found = json.loads(fedkeel(*line, "--json", "--out", str(tmp_path / "out")).stdout)
    assert len(found["runs"]) == 10


@pytest.mark.slow
def test_reproduce_ends_with_the_table_the_claims_and_a_page(fedkeel, tmp_path):
    line = ("reproduce", "fedsagd/table2", "--scale", "smoke", "--only", "emnist")
    line = (*line, "--methods", "fedavg,fedsagd", "--parallel", "1", "--out", str(tmp_path))
    shown = fedkeel(*line)
    assert "EMNIST top(%): paper" in shown.stdout
    assert "81.01" in shown.stdout
    assert "in the paper's numbers: holds" in shown.stdout
    assert (tmp_path / "fedsagd-table2-smoke" / "page.html").exists()
    assert "accuracy" in shown.stderr
    again = fedkeel(*line, "--json")
    found = json.loads(again.stdout)
    assert "4 of 4 runs are there already" in again.stderr
    assert {cell["row"] for cell in found["cells"]} == {"FedAvg", "FedSAGD(ours)"}
    assert len(found["runs"]) == 4
    directory = tmp_path / "fedsagd-table2-smoke"
    assert fedkeel("show", str(directory)).stdout == shown.stdout
    assert json.loads(fedkeel("show", str(directory), "--json").stdout) == found
