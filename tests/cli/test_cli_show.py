"""Help, version, methods, explain, and the live display."""

from __future__ import annotations

import io
import json

import pytest
from commands import COMMANDS as EVERY_COMMAND
from rich.console import Console
from rich.emoji import Emoji

from fedkeel import __version__
from fedkeel.common.progress import RunProgress, console, shown_time
from fedkeel.methods import METHODS

COMMANDS = ("demo", "compare", "run", "resume", "runs", "show", "methods", "explain")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(fedkeel, command):
    text = fedkeel(command, "--help").stdout
    assert "Examples" in text
    assert f"fedkeel {command}" in text


def test_help_lists_the_commands_and_exit_codes(fedkeel):
    text = fedkeel("--help").stdout
    for word in (*COMMANDS, "130 stopped"):
        assert word in text


@pytest.mark.parametrize("path", [(), *EVERY_COMMAND], ids=" ".join)
def test_no_help_has_an_emoji(fedkeel, path):
    text = fedkeel(*path, "--help").stdout
    assert not [sign for sign in text if ord(sign) > 0x1F000]
    assert "mean:A:B" in text or "--measure" not in text


def test_what_is_printed_keeps_what_rich_has_an_emoji_for(capsys):
    console().print("runs/:A:", markup=False)
    assert capsys.readouterr().out == "runs/:A:\n"


def test_rich_would_show_an_emoji_in_the_help_of_measures():
    assert Emoji.replace("mean:A:B") != "mean:A:B"


def test_version(fedkeel):
    assert fedkeel("--version").stdout == f"fedkeel {__version__}\n"


def test_methods_lists_every_method(fedkeel):
    text = fedkeel("methods").stdout
    found = json.loads(fedkeel("methods", "--json").stdout)
    assert [line["name"] for line in found] == [make.__name__ for make in METHODS]
    for make in METHODS:
        assert make.__name__ in text


def test_explain_prints_equations_and_json(fedkeel):
    text = fedkeel("explain", "relaxed(scaffold, beta=0.2)").stdout
    assert "y = start = x + beta·(x − last)" in text
    found = json.loads(fedkeel("explain", "scaffold", "--json").stdout)
    assert found["down"] == {"vectors": 2, "scalars": 0, "names": ["x", "c"], "bytes_at_1M": 8_000_000}
    staged = json.loads(fedkeel("explain", "stages((feddyn, 0.5), fedavg)", "--json").stdout)
    assert len(staged["stages"]) == 2


def test_the_live_table_shows_progress_accuracy_and_time_left():
    row = {"loss": 0.5, "accuracy": 0.75, "train_loss": 0.4, "seconds": 0.1}
    for names in (["FedAvg, seed 0"], ["FedAvg, seed 0", "SCAFFOLD, seed 0"]):
        progress = RunProgress(names, rounds=10)
        progress.begin(0, done=2)
        for round in (2, 3, 4):
            progress.row({**row, "round": round})
        out = Console(file=io.StringIO(), width=100)
        out.print(progress._render())
        text = out.file.getvalue()
        assert "75.0 %" in text
        assert "time left" in text
        assert f"round 5/{10 * len(names)}" in text


def test_times_are_short():
    assert [shown_time(t) for t in (3.2, 61, 7322)] == ["3 s", "1 min 01 s", "2 h 02 min"]
