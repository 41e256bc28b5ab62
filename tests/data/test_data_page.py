"""What docs/data.md says of models, of noise and of Shakespeare is so."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedkeel as fk
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.sections import DataSettings

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
NOTICE = "THE_COMEDY_OF_ERRORS_COMMERCIALLY"


@pytest.mark.slow
def test_every_model_on_the_page_has_the_parameters_beside_it() -> None:
    """The first number of a row is that of the model as called there, with its default number of classes."""
    rows = re.findall(r"^\| `(\w+)\(\)` \| ([\d,]+)", PAGE, re.MULTILINE)
    assert {name for name, _ in rows} == set(fk.models.names())
    for name, shown in rows:
        model = getattr(fk.models, name)()
        assert sum(p.numel() for p in model.parameters()) == int(shown.replace(",", "")), name


def test_the_file_with_noise_reads_and_its_table_names_every_key() -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    data = Experiment.from_table(tomllib.loads(shown)).data
    assert data.noise == ["ChannelGains(0.2)", "ClassBrightness(0.1)"]
    assert data.augment == "Augment(flip=True, pad=4)"
    for key in re.findall(r"^\| `data\.(\w+)` \| `--", PAGE, re.MULTILINE):
        assert key in DataSettings.model_fields


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_noise_is_refused_where_the_page_says_so(name: str) -> None:
    settings = [f"data.name={name}", "data.clients=4", "data.noise=ChannelGains"]
    with pytest.raises(fk.DataError, match=f"on '{name}': noise is for pictures"):
        Experiment().with_settings(settings).federation()


def equal_windows(dataset: fk.Dataset) -> int:
    """Count the test windows (80 characters and the next) that are training windows too."""
    assert dataset.test is not None

    def windows(x: Tensor, y: Tensor) -> list[bytes]:
        rows = torch.cat([x, y[:, None].to(x.dtype)], 1).to(torch.uint8)
        characters, width = rows.numpy().tobytes(), rows.shape[1]
        return [characters[i : i + width] for i in range(0, len(characters), width)]

    known = set(windows(dataset.x, dataset.y))
    return sum(window in known for window in windows(*dataset.test))


def test_the_licence_notice_may_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role whose text repeats itself, as the notice does, has test windows among its training windows."""
    words = " ".join(f"word {number} of a speech" for number in range(60)).replace("0", "O")
    roles = {"HAMLET": words, NOTICE: "PROHIBITED COMMERCIAL DISTRIBUTION. " * 30}
    content = {
        "users": list(roles),
        "num_samples": [len(text) - 80 for text in roles.values()],
        "text": roles,
    }
    (tmp_path / "shakespeare.json").write_text(json.dumps(content))
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path))
    whole = fk.data.load("shakespeare")
    assert whole.group_names == ("HAMLET", NOTICE)
    assert equal_windows(whole) > 0
    without = fk.data.load("shakespeare", notices=False)
    assert without.group_names == ("HAMLET",)
    assert equal_windows(without) == 0


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(os.environ.get("FEDKEEL_DATA", "/nowhere")) / "shakespeare.json").exists(),
    reason="shakespeare.json is not at hand: set FEDKEEL_DATA to a folder that has it",
)
def test_the_windows_of_the_real_text_that_are_in_both_parts() -> None:
    assert "294 of the 217,651 test windows" in PAGE
    assert equal_windows(fk.data.load("shakespeare")) == 294
    assert equal_windows(fk.data.load("shakespeare", notices=False)) == 0
    assert equal_windows(fk.data.load("shakespeare", roles=100)) == 0
