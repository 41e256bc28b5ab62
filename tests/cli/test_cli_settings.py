"""The help of a command shows what most people need; `fedkeel settings` lists every setting there is."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from commands import COMMANDS

from fedkeel.cli.options import experiment_options
from fedkeel.core.work import Work
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.setting_table import PARTS, all_settings

MOST = 30
USUAL = (
    "data",
    "model",
    "split",
    "clients",
    "cohort",
    "epochs",
    "steps",
    "batch-size",
    "lr",
    "lr-decay",
    "engine",
)
LAST_LINE = "All other settings: --set KEY=VALUE, listed by `fedkeel settings`"
GIVEN = {  # a value for every option that only `settings` shows, as the command line has it
    "true or false": (),
    "table": ("a=1",),
    "list of text": ("anything",),
    "count or fraction": ("2",),
}


OF_AN_EXPERIMENT = {
    " ".join(path): command
    for path, command in COMMANDS.items()
    if any(one.name == "settings" for one in command.params) and path != ("deploy", "up")
}


@pytest.fixture
def help_of(fedkeel):
    """The help of a command; it is printed for a screen of 200 columns."""
    return lambda line: fedkeel(*line.split(), "--help").stdout


def shown(text: str) -> list[str]:
    return re.findall(r"^│ [ *]*--([a-z-]+)", text, re.M)


def test_the_commands_that_take_an_experiment_are_found():
    assert {"run", "compare", "sweep", "tune", "costs", "advise", "split"} <= OF_AN_EXPERIMENT.keys()
    assert {"study stability", "study robustness", "cluster check"} <= OF_AN_EXPERIMENT.keys()


@pytest.mark.parametrize("line", OF_AN_EXPERIMENT)
def test_help_shows_at_most_thirty_options_and_names_the_table_of_the_others(help_of, line):
    text = help_of(line)
    options = shown(text)
    assert {"set", "json", "help"} <= set(options)
    assert len(options) <= MOST
    if line != "split":  # which trains nothing
        assert set(USUAL) <= set(options)
    assert text.rstrip().splitlines()[-1].strip() == LAST_LINE


@pytest.mark.parametrize("line", OF_AN_EXPERIMENT)
def test_help_shows_the_options_of_its_own_examples(line):
    command = OF_AN_EXPERIMENT[line]
    known = {flag for one in command.params if not getattr(one, "hidden", False) for flag in one.opts}
    assert set(re.findall(r"--[a-z][a-z-]*", command.epilog)) <= known


@pytest.mark.parametrize("line", OF_AN_EXPERIMENT)
def test_an_option_that_help_does_not_show_still_works(line):
    command = OF_AN_EXPERIMENT[line]
    settings = {f"--{option.name}": option for option in experiment_options()}
    kinds = {setting.key: setting.type for setting in all_settings()}
    hidden = [one for one in command.params if getattr(one, "hidden", False)]
    assert bool(hidden) == (line != "split")
    needed = {"--method": "fedavg", "--over": "work.lr", "--values": "1,2"}
    words = [part for one in command.params if one.required for part in (one.opts[0], needed[one.opts[0]])]
    for one in hidden:
        kind = kinds[settings[one.opts[0]].key]
        words += [one.opts[0], *GIVEN.get(kind, (value_of(kind),))]
    context = command.make_context(line, words)
    assert not context.args
    assert all(context.params[one.name] not in (None, []) for one in hidden)


def value_of(kind: str) -> str:
    """Return a value of a type, as the table names it."""
    if kind == "text":
        return "anything"
    if " or " in kind and not kind.startswith(("integer", "number")):
        return kind.split(" or ", maxsplit=1)[0]
    return "1" if kind.startswith("integer") else "0.5"


def test_a_hidden_option_that_is_mistyped_gets_its_name(fedkeel):
    assert "did you mean --weight-decay" in fedkeel("run", "--weigth-decay", "1", code=2).stderr


def keys_of_an_experiment() -> set[str]:
    parts = {"work": [field.name for field in dataclasses.fields(Work)]}
    parts |= {
        name: list(field.annotation.model_fields)
        for name, field in Experiment.model_fields.items()
        if name in ("data", "model")
    }
    plain = Experiment.model_fields.keys() - parts.keys()
    return {*plain, *(f"{part}.{key}" for part, keys in parts.items() for key in keys)}


def test_every_key_of_an_experiment_is_listed_once_with_its_type_default_and_meaning(fedkeel):
    listed = json.loads(fedkeel("settings", "--json").stdout)
    assert sorted(one["key"] for one in listed) == sorted(keys_of_an_experiment())
    for one in listed:
        assert one.keys() == {"key", "part", "type", "default", "option", "meaning"}
        assert one["type"]
        assert one["default"]
        assert one["part"] in PARTS
        assert re.fullmatch(r"[A-Z].*\.", one["meaning"]), one
    options = {option.key: f"--{option.name}" for option in experiment_options()}
    assert {one["key"]: one["option"] for one in listed if one["option"]} == options
    assert [one["key"] for one in listed if one["option"] is None] == ["data.options"]


def test_the_defaults_in_the_table_are_those_of_an_experiment():
    made = Experiment().with_settings(f"{one.key}={one.default}" for one in all_settings())
    assert made == Experiment()


def test_the_types_in_the_table_are_plain_words():
    types = {setting.key: setting.type for setting in all_settings()}
    assert types["rounds"] == "integer from 1"
    assert types["cohort"] == "count or fraction"
    assert types["sampling"] == "fixed or bernoulli"
    assert types["data.clients"] == "integer from 1, or all"
    assert types["work.lr"] == "number above 0"
    assert types["work.momentum"] == "number from 0 below 1"
    assert types["work.nesterov"] == "true or false"
    assert types["work.schedule"] == types["method"] == types["reducer"] == "text"
    assert types["probes"] == "list of text"


def test_the_table_is_filtered_by_a_part_or_a_key(fedkeel):
    def keys(*words: str) -> list[str]:
        return [one["key"] for one in json.loads(fedkeel("settings", *words, "--json").stdout)]

    assert keys("model") == ["model.name", "model.dtype", "model.seed", "model.init"]
    assert keys("work.lr") == keys("lr") == ["work.lr"]
    assert keys("batch-size") == ["work.batch_size"]
    assert keys("seed") == ["seed", "data.seed", "model.seed"]
    assert sorted(key for part in PARTS for key in keys(part)) == sorted(keys_of_an_experiment())
    text = fedkeel("settings", "failures").stdout
    for word in ("on_client_error", "--on-client-error", "stop or skip", "--set KEY=VALUE"):
        assert word in text
