"""The options of the commands are made from the experiment's fields, in one place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedkeel.cli.app import COMMANDS as ALL_COMMANDS
from fedkeel.cli.app import load_command
from fedkeel.cli.options import experiment_options, read_experiment, takes_experiment
from fedkeel.core.schedules import Drop
from fedkeel.experiments.experiment import Experiment

COMMANDS = {
    ("run",): set(),
    ("compare",): {"seed"},  # seeds are counted
    ("sweep",): {"seed"},
    ("tune",): set(),
    ("advise",): {"track"},  # it makes no runs to be tracked; nor do studies
    ("study", "stability"): {"track"},
    ("study", "interaction"): {"track"},
    ("study", "constants"): {"rounds", "track"},  # the pilot's are --pilot-rounds
    ("study", "robustness"): {"seed"},
}
NO_EXPERIMENT = (
    "demo",
    "resume",
    "runs",
    "show",
    "settings",
    "methods",
    "explain",
    "bounds",
    "watch",
    "recipes show",
    "reproduce",
    "report",
    "cluster check",
    "cite",
    "export",
    "deploy init",
    "deploy up",
    "deploy status",
    "deploy down",
)
METHOD = 'Method, as scaffold or "relaxed(fedcm, beta=0.1)"'
SEVERAL = {  # what differs between commands, and how
    "--method": {f"{METHOD}.", f"{METHOD}; repeatable.", "The same, as other commands take it."},
    "--rounds": {"Communication rounds.", "Go on to this many rounds in all."},
    "--held-out": {
        "Clients held out of training.",
        "Clients held out of training, to replace others; by default 5.",
    },
    "--parallel": {
        "Runs at a time; by default one per core, on a GPU one.",
        "Trials at a time: they are drawn together, not knowing of each other.",
    },
    "--reducer": {
        'What replaces the mean of uploads, as Median or "TrimmedMean(0.2)".',
        'Reducer beside the mean, as "TrimmedMean(0.2)"; repeatable. By default all.',
    },
    "--attack": {
        'Hostile clients, as "SignFlip(share=0.2)" or "Backdoor(0.1, target=7)".',
        'Attack, as "SignFlip(share=0.2)"; repeatable. By default all, with 20 %.',
    },
    "--out": {
        "Where to keep it; by default a new directory below runs/.",
        "Keep what is measured, to go on after an interruption; else nothing is kept.",
        "Directory of all recipes' runs; what they share is run once.",
        "Where to write it; by default page.html in DIR, of several report.html here.",
        "Where to write it; by default it is printed.",
    },
    "--set": {
        "Any setting, as work.lr=0.1; repeatable.",
        "What happens from now on when clients fail, as on_client_error=skip; repeatable.",
    },
    "--port": {
        "Port of the SuperLink, nodes take the next; by default free ones.",
        "Port; by default (0) one that is free.",
    },
    "--page": {
        "Also write a page with the curves, as bounds.html.",
        "Also write it as a page, as advice.html.",
    },
    "--over": {
        'What varies: a setting, as work.lr or "method=FedInit(beta={})"; {} stands for the value.',
        "What varies, and where: uniform(a, b), log(a, b), integer(a, b), choice(…); repeatable.",
        "What varies: T, K, N or beta.",
    },
}
PLANTED = """
import sys
from pydantic import Field
from typer.testing import CliRunner
import fedkeel.settings.options as options

class RunOptions(options.RunOptions):
    patience: options.Count = Field(3, description="A planted setting.")

options.RunOptions = RunOptions
from fedkeel.cli import app

def call(line):
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    return result.stdout

from fedkeel.cli.app import load_command

for command in sys.argv[1:]:
    name, *inner = command.split()
    found = load_command(name)
    for word in inner:
        found = found.commands[word]
    assert "--patience" in {flag for option in found.params for flag in option.opts}, command
assert "A planted setting." in call("settings patience")
call("run e.toml --out from-file")
call("run e.toml --patience 5 --out from-option")
"""
TINY = "method = 'FedAvg'\nrounds = 1\ncohort = 2\n%s\n[data]\nclients = 4\n[work]\nsteps = 1\n"


def options_of(words: tuple[str, ...]) -> dict[str, str | None]:
    command = load_command(words[0])
    for word in words[1:]:
        command = command.commands[word]
    return {flag.removeprefix("--"): option.help for option in command.params for flag in option.opts}


def given(**values: object) -> Experiment:
    options = {option.parameter: option for option in experiment_options()}
    return read_experiment(None, None, [(options[name], value) for name, value in values.items()])


@pytest.mark.parametrize(("words", "left_out"), COMMANDS.items(), ids=map(" ".join, COMMANDS))
def test_every_command_has_the_same_options_of_an_experiment(words, left_out):
    names = {option.name for option in experiment_options()}
    assert names - options_of(words).keys() == left_out
    assert {"set", "json", "out"} <= options_of(words).keys()


def every_command() -> Iterator[tuple[str, Any]]:
    """Yield the commands that do something, with what is written on the line."""
    for name in ALL_COMMANDS:
        command = load_command(name)
        for word, inner in getattr(command, "commands", {"": command}).items():
            yield f"{name} {word}".strip(), inner


def test_the_file_of_an_experiment_is_an_argument_everywhere():
    for line, command in every_command():
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        takes = any(one.name == "settings" for one in command.params) and line != "deploy up"
        assert [one.name for one in arguments] == ["file"] if takes else line in NO_EXPERIMENT, line


def test_options_of_one_name_say_one_thing():
    told: dict[str, set[str]] = {}
    for _, command in every_command():
        for option in (one for one in command.params if one.param_type_name == "option"):
            for flag in option.opts:
                told.setdefault(flag, set()).add(option.help)
    for flag, texts in told.items():
        assert len(texts) == 1 or texts == SEVERAL.get(flag), (flag, texts)


def test_options_of_earlier_versions_are_answered_with_their_new_names(fedkeel):
    for line, words in {
        "compare --file e.toml --method fedavg": "--file: the experiment's file is an argument",
        "compare fedavg --method scaffold": "fedavg: there is no such file: write --method fedavg",
        "compare fedavg scaffold --method fedcm": "scaffold: one argument too many",
        "split IID": "IID: there is no such file: write --split IID",
        "split --out a.svg": "--out: write --picture",
        "run work.lr=3": "work.lr=3: there is no such file: write --set work.lr=3",
        "advise --look-at 3": "--look-at: write --pilot-clients",
        "advise --points 3": "--points: write --pilot-points",
        "study stability --method fedavg --points 3": "--points: write --samples",
        "bounds fedinit-1 --set L=2": "--set: write --constant",
        "bounds fedinit-1 --constants a.json": "--constants: write --advice",
        "bounds fedinit-1 --html a.html": "--html: write --page",
    }.items():
        assert words in fedkeel(*line.split(), code=2).stderr


def test_every_key_but_tables_is_an_option_with_a_help_text_and_a_name_of_its_own():
    table = Experiment().table()
    parts = [key for key, value in table.items() if isinstance(value, dict)]
    plain = {key for key in table if key not in parts}
    nested = {f"{part}.{key}" for part in parts for key in table[part]}
    options = experiment_options()
    assert plain | nested <= {option.key for option in options}
    assert len({option.name for option in options}) == len(options)
    for option in options:
        assert option.annotation.__metadata__[0].help, option.key


def test_options_keep_their_names():
    for name in (
        *("method", "data", "split", "clients", "model", "epochs", "steps", "batch-size", "lr"),
        *("weight-decay", "rounds", "cohort", "seed", "engine", "eval-every", "target", "probe", "set"),
    ):
        assert name in options_of(("run",))


def test_values_become_settings_of_their_type():
    made = given(
        clients="all",
        batch_size="all",
        cohort="0.5",
        schedule="Drop(at=5)",
        probe=["divergence", "diversity(every=5)"],
        data="name with 'quotes' and \\",
        weighting="samples",
        threads=2,
        clip=1e-5,
    )
    assert (made.data.clients, made.work.batch_size, made.cohort) == (None, None, 0.5)
    assert made.work.schedule == Drop(at=5)
    assert made.probes == ["divergence", "diversity(every=5)"]
    assert made.data.name == "name with 'quotes' and \\"
    assert (made.weighting, made.threads, made.work.clip) == ("samples", 2, 1e-5)
    assert given(steps=3).work.epochs is None


def test_an_option_that_is_declared_twice_is_a_mistake_of_ours():
    def command(experiment: Experiment, lr: float = 0.1) -> None:
        """Do nothing."""

    with pytest.raises(AssertionError, match="an option is declared twice"):
        takes_experiment()(command)
    takes_experiment(leave_out=("lr",))(command)


@pytest.mark.slow(9)
def test_a_setting_that_is_added_to_the_run_options_is_a_key_and_an_option_everywhere(tmp_path):
    (tmp_path / "e.toml").write_text(TINY % "patience = 7")
    words = [" ".join(command) for command in COMMANDS]
    subprocess.run([sys.executable, "-c", PLANTED, *words], cwd=tmp_path, check=True)
    for directory, patience in (("from-file", 7), ("from-option", 5)):
        assert f"patience = {patience}\n" in Path(tmp_path, directory, "experiment.toml").read_text()
        assert f'"patience": {patience}' in Path(tmp_path, directory, "manifest.json").read_text()
