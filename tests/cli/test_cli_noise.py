"""`--noise`, `--noise-seed` and `--augment`: as in a file, told by `show` and on the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pages import block, document_in

from fedkeel.experiments.experiment import Experiment

SMALL = [
    *("--data", "mnist", "--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "4"),
    *("--rounds", "2", "--model", "logistic", "--engine", "serial"),
]
CHANGED = ["--noise", "ChannelGains(0.2)", "--noise", "class-brightness", "--augment", "augment(pad=2)"]
FILE = """
rounds = 2
cohort = 2
engine = "serial"
[data]
name = "mnist"
clients = 4
noise = ["ChannelGains(0.2)", "class-brightness"]
noise_seed = 5
augment = "augment(pad=2)"
[model]
name = "logistic"
[work]
steps = 1
batch_size = 4
"""


@pytest.fixture(autouse=True)
def few_pictures(tmp_path, monkeypatch):
    (tmp_path / "sets").mkdir()
    x = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    y = np.arange(60) % 10
    parts = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    np.savez(tmp_path / "sets" / "mnist.npz", **parts)
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path / "sets"))


def test_options_and_a_file_give_the_same_run(fedkeel):
    fedkeel("run", *SMALL, *CHANGED, "--noise-seed", "5", "--out", "options")
    Path("e.toml").write_text(FILE)
    fedkeel("run", "e.toml", "--out", "file")
    fedkeel("run", *SMALL, "--out", "plain")
    assert Experiment.load("options") == Experiment.load("file")
    rows = {name: Path(name, "metrics.jsonl").read_bytes() for name in ("options", "file", "plain")}
    assert rows["options"] == rows["file"] != rows["plain"]


def test_options_take_away_and_replace_what_the_file_says(fedkeel):
    Path("e.toml").write_text(FILE)
    fedkeel("run", "e.toml", "--noise", "none", "--augment", "none", "--out", "without")
    data = Experiment.load("without").data
    assert (data.noise, data.augment) == (None, None)
    fedkeel("run", "e.toml", "--noise", "ChannelGains", "--out", "other")
    data = Experiment.load("other").data
    assert (data.noise, data.noise_seed, data.augment) == (["ChannelGains"], 5, "augment(pad=2)")


def test_show_and_manifest_tell_them(fedkeel):
    fedkeel("run", *SMALL, *CHANGED, "--out", "run")
    (line,) = [line for line in fedkeel("show", "run").stdout.splitlines() if line.startswith("data ")]
    assert ", noise ChannelGains(sigma=0.2) + ClassBrightness(sigma=0.1), noise_seed 0, " in line
    assert ", augment Augment(flip=True, pad=2), " in line
    told = json.loads(Path("run/manifest.json").read_text())["data"]
    assert told["noise"] == ["ChannelGains(sigma=0.2)", "ClassBrightness(sigma=0.1)"]
    assert (told["noise_seed"], told["augment"]) == (0, "Augment(flip=True, pad=2)")
    fedkeel("run", *SMALL, "--out", "plain")
    assert "noise" not in fedkeel("show", "plain").stdout
    assert "augment" not in json.loads(Path("plain/manifest.json").read_text())["data"]


def test_a_comparison_tells_them_on_its_page_and_keeps_to_them(fedkeel):
    fedkeel("compare", "--method", "fedavg", *SMALL, *CHANGED, "--seeds", "1", "--out", "c")
    shared = block(document_in(Path("c/page.html")), "shared").text
    for text in ("ChannelGains(0.2)", "class-brightness", 'augment = "augment(pad=2)"'):
        assert text in shared
    result = fedkeel(
        "compare", "--method", "fedavg", *SMALL, "--noise", "none", "--seeds", "1", "--out", "c", code=6
    )
    assert "belongs to another comparison: its data.noise is" in result.stderr


def test_resume_with_another_noise_in_the_file_is_refused(fedkeel):
    fedkeel("run", *SMALL, *CHANGED, "--out", "run")
    file = Path("run/experiment.toml")
    file.write_text(file.read_text().replace("ChannelGains(0.2)", "ChannelGains(0.3)"))
    told = fedkeel("resume", "run", "--rounds", "3", code=6).stderr
    assert "experiment.toml: not what the run was begun with" in told


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--noise", "Gains"], 2, "data.noise = 'Gains': there is no kind of noise 'Gains'"),
        (["--noise", "ChannelGains(0.2"], 2, "'(' was never closed"),
        (["--augment", "Augment(pad=-1)"], 2, "pad is -1; use 0 or a positive whole number of pixels"),
        (["--noise-seed", "-1"], 2, "data.noise_seed = -1: input should be greater than or equal to 0"),
        (["--noise", "ChannelGains", "--data", "digits"], 3, "on 'digits': noise is for pictures"),
        (["--augment", "Augment", "--data", "digits"], 3, "on 'digits': augmentation is for pictures"),
    ],
)
def test_mistakes_are_told_and_leave_nothing_behind(fedkeel, args, code, message):
    result = fedkeel("run", *SMALL, *args, code=code)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert not Path("runs").exists()
