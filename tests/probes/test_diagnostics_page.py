"""The page on diagnostics names every probe and every column, and its commands are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import torch
from problems import tiny_net

import fedkeel as fk
from fedkeel.core.oracle import Oracle
from fedkeel.experiments.expression import parse_method, parse_probe
from fedkeel.probes import PROBES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "diagnostics.md").read_text()


def test_every_probe_and_column_is_on_the_page() -> None:
    layout = Oracle(tiny_net([4, 4]).task, torch.device("cpu")).layout
    shown = set(re.findall(r"`([a-z_]+(?:/[A-Za-z_-]+)?)`", PAGE))
    for make in PROBES:
        assert f"| `{make.__name__}(" in PAGE
        for name in make().names(layout):
            if not name.startswith(("layers/", "costs/total_")):
                assert name in shown, name


def test_pictures_exist_and_commands_parse() -> None:
    for picture in re.findall(r"\((pictures/.*?)\)", PAGE):
        assert (ROOT / "docs" / picture).exists(), picture
    for line in re.findall(r"^fedkeel .*$", PAGE, re.MULTILINE):
        words = shlex.split(line, comments=True)
        for flag, read in (("--probe", parse_probe), ("--method", parse_method)):
            for index, word in enumerate(words):
                if word == flag:
                    read(words[index + 1])
    assert fk.SwitchingRule(zeta=0.06, warm_up=10) is not None
