"""From version 0.1: every old argument says what it is now, and what 0.1 wrote is read and resumed."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from older_run import name_as_before
from problems import tiny_net
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli import app
from fedkeel.experiments.experiment import Experiment
from fedkeel.running.from_0_1 import ARGUMENTS
from fedkeel.running.run_directory import read_manifest, read_rows

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "from-0.1.md").read_text()
OLD = """
task federation algorithm rounds cohort work seed engine run_dir resume sampling weighting reducer attack
eval_every evaluate_on checkpoint_every keep_memories threads workers address num_cpus num_gpus device probes
on_client_error min_clients client_seconds max_upload_norm faults on_divergence rollback_factor rollback_tries
callback callbacks progress experiment
""".split()  # noqa: SIM905  as `train` had them
NEW = [name for name in inspect.signature(fk.train).parameters if name != "old"]
WORK = fk.Work(epochs=1, batch_size=4, lr=0.1)
VALUES = {"on_client_error": "leave_out", "eval_every": 2, "keep_memories": True, "reducer": fk.Median()}


def train(**options: Any) -> fk.Result:
    problem = tiny_net([8, 5, 6])
    given: dict[str, Any] = {"rounds": 2, "cohort": 2, "work": WORK, **options}
    return fk.train(problem.task, problem.federation, fk.FedAvg(), **given)


def test_all_37_arguments_are_mapped_and_17_are_left() -> None:
    assert len(OLD) == 37
    assert list(ARGUMENTS) == OLD
    assert len(NEW) == 17
    assert {now.partition("=")[0] for now in ARGUMENTS.values() if "=" in now} == set(NEW)


@pytest.mark.parametrize("old", OLD)
def test_the_new_way_of_an_argument_exists_and_is_on_the_page(old: str) -> None:
    now = ARGUMENTS[old]
    assert f"| `{old}` | `{now}` |" in PAGE
    value = re.fullmatch(r"\w+=fk\.(\w+)\((?:(\w+)=…|10)\)", now)
    if value is None:
        assert now.removesuffix("=…") in NEW or old == "experiment"
    elif value[2] is not None:
        assert value[2] in getattr(fk, value[1]).model_fields


@pytest.mark.parametrize("old", [name for name in OLD if name not in NEW])
def test_an_old_argument_is_refused_with_the_new_way(old: str) -> None:
    with pytest.raises(fk.ConfigError, match=rf"^train: {old} is ") as caught:
        train(**{old: VALUES.get(old, 1)})
    now = ARGUMENTS[old].replace("…", "")
    assert now.rstrip(")") in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "serial"}, "engine is part of execution now: execution=fk.Execution(engine='serial')"),
        ({"on_client_error": "leave_out"}, "failures=fk.Failures(on_client_error='skip')"),
        ({"keep_memories": True}, "execution=fk.Execution(keep_client_states=True)"),
        ({"algorithm": fk.FedAvg()}, "algorithm is method now: method=FedAvg(lr=1.0)"),
        ({"callback": [print] * 9}, "callback is callbacks now: callbacks=…"),
        ({"eval_every": 2, "threads": 1}, "(every=2); threads is part of execution now"),
        ({"execution": "serial"}, "execution = 'serial': give a value, as in execution=fk.Execution(…)"),
        ({"failures": fk.Execution()}, "failures = Execution(): give a value, as in failures=fk.Failures(…)"),
    ],
)
def test_the_message_has_the_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(fk.ConfigError, match=re.escape(message)):
        train(**given)


def test_an_argument_that_never_was_is_a_type_error_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match="train has no argument 'excution'; did you mean 'execution'"):
        train(excution=fk.Execution())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (fk.Execution("serial", threads=1), "Execution(engine='serial', threads=1)"),
        (fk.Execution(), "Execution()"),
        (fk.Execution(device=torch.device("cpu")), "Execution()"),
        (fk.Evaluation(5, on="clients"), "Evaluation(every=5, on='clients')"),
        (fk.Failures("skip", faults=fk.Faults(drop=0.1)).faults, "Faults(drop=0.1, "),
        (fk.Failures("skip", min_clients=0.5), "Failures(on_client_error='skip', min_clients=0.5)"),
        (fk.Aggregation(weighting="samples"), "Aggregation(weighting='samples')"),
        (fk.Aggregation(reducer=fk.Median()), "Aggregation(reducer=Median())"),
        (fk.Bernoulli(0.1), "Bernoulli(clients=0.1)"),
    ],
)
def test_a_value_shows_what_is_not_as_by_default(value: object, shown: str) -> None:
    assert repr(value).startswith(shown)
    assert str(value) == repr(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fk.Execution("serail"), r"engine = 'serail': did you mean 'serial'\?"),
        (lambda: fk.Execution(engin="serial"), r"Execution has no argument 'engin'; did you mean 'engine'\?"),
        (lambda: fk.Execution("serial", 2), r"Execution: 2: give it by keyword, as one of threads=…"),
        (
            lambda: fk.Aggregation("samples"),
            r"Aggregation: 'samples': give it by keyword, as one of weighting=…",
        ),
        (lambda: fk.Evaluation(0), r"Evaluation: every = 0: input should be greater"),
        (lambda: fk.Failures("leave_out"), r"Failures: on_client_error = 'leave_out': .*'stop' or 'skip'"),
        (lambda: fk.Aggregation(reducer=fk.Median), r"reducer = Median: that is a class"),
        (lambda: setattr(fk.Execution(), "engine", "serial"), r"frozen"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_made(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_values_reach_the_run() -> None:
    result = train(
        cohort=fk.Bernoulli(2),
        aggregation=fk.Aggregation(weighting="samples", reducer=fk.Median()),
        evaluation=fk.Evaluation(2, on="clients"),
        failures=fk.Failures("skip", min_clients=0.1, faults=fk.Faults(seed=3)),
        execution=fk.Execution("serial", threads=1),
    )
    assert [row["loss"] is None for row in result.history] == [True, False]
    assert (result.choice.engine, result.choice.threads) == ("serial", 1)


def test_the_identity_has_the_values(tmp_path: Path) -> None:
    train(cohort=fk.Bernoulli(2), aggregation=fk.Aggregation(weighting="samples"), run_dir=tmp_path)
    identity = read_manifest(tmp_path)["identity"]
    told = {"method": "FedAvg(lr=1.0)", "cohort": 2, "sampling": "bernoulli", "weighting": "samples"}
    assert told.items() <= identity.items()


def test_a_method_or_a_probe_with_an_old_function_is_refused() -> None:
    with pytest.raises(fk.ConfigError, match=r"Mine\.enlist is init_client since version 0\.2: rename it"):
        type("Mine", (fk.FedAvg,), {"enlist": lambda self, x0: self.Client()})
    with pytest.raises(fk.ConfigError, match=r"Mine\.enlist is init_client"):
        type("Mine", (fk.Probe,), {"enlist": lambda self, state: state})


def test_the_modules_of_the_page_exist() -> None:
    modules = runpy.run_path(str(DOCS / "older_page.py"))["MODULES"]
    for old, now in modules.items():
        assert f"| `{old}` |" in PAGE
        assert import_module(now.rpartition(", ")[2])


EXPERIMENT = Experiment().with_settings(
    [
        "data.clients=10", "cohort=5", "rounds=4", "method=scaffold", "engine=serial", "threads=1",
        "on_client_error=skip", "faults=Faults(drop=0.3)", "checkpoint_every=2",
    ]
)  # fmt: skip


@pytest.mark.slow(3, thorough=False)
def test_a_run_of_0_1_is_read_and_resumed_to_the_bit(tmp_path: Path) -> None:
    kept = EXPERIMENT.with_settings(["keep_client_states=true"])
    whole = kept.with_settings(["rounds=6"]).train(tmp_path / "whole").history
    first = kept.train(tmp_path / "old").history
    name_as_before(tmp_path / "old")
    text = "".join(file.read_text() for file in (tmp_path / "old").glob("*.[tj]*[nl]"))
    for word in ("keep_memories", "leave_out", '"left_out"', '"algorithm"'):
        assert word in text
    for word in ("keep_client_states", '"skip"', '"skipped"'):
        assert word not in text
    assert [*(tmp_path / "old").rglob("memories.safetensors")]
    assert read_rows(tmp_path / "old") == first
    assert any(row.get("skipped") for row in first)
    assert Experiment.load(tmp_path / "old") == kept
    resumed = kept.with_settings(["rounds=6"]).train(tmp_path / "old", resume=True).history
    assert [{**row, "seconds": 0} for row in resumed] == [{**row, "seconds": 0} for row in whole]
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    assert manifest["identity"]["method"].startswith("SCAFFOLD")


def test_a_finished_run_of_0_1_without_its_client_states_says_so(tmp_path: Path) -> None:
    EXPERIMENT.train(tmp_path)
    name_as_before(tmp_path)
    with pytest.raises(fk.ConfigError, match=r"client states were not kept: .*keep_client_states=True"):
        EXPERIMENT.with_settings(["rounds=6"]).train(tmp_path, resume=True)


def test_a_file_with_old_keys_is_read_and_a_line_with_them_says_the_new_ones(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text('on_client_error = "leave_out"\nkeep_memories = true\n')
    read = Experiment.load(file)
    assert (read.on_client_error, read.keep_client_states) == ("skip", True)
    for setting, message in (
        ("keep_memories=true", "keep_memories is keep_client_states now"),
        ("on_client_error=leave_out", "on_client_error = 'leave_out' is 'skip' now"),
    ):
        told = CliRunner().invoke(app, ["run", "--set", setting])
        assert told.exit_code == 2
        assert message in str(told.output) + str(told.exception)
