"""What bad input gets: a message with the thing, the value and the fix, an exit code, nothing left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import fedkeel as fk


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--set", "rouns=3"], 2, "there is no key 'rouns'; did you mean 'rounds'?"),
        (["--set", "data.clints=3"], 2, "there is no key 'data.clints'; did you mean 'clients'?"),
        (["--set", "work.bach_size=3"], 2, "there is no key 'work.bach_size'; did you mean 'batch_size'?"),
        (["--set", "rounds=ten"], 2, "rounds = 'ten': input should be a valid integer"),
        (["--set", "rounds"], 2, "write a key and a value, as in work.lr=0.1"),
        (["--set", "work.lr=fast"], 2, "lr = 'fast'"),
        (["--set", "work=3"], 2, "work = 3: it is a table"),
        (["--lr", "-1"], 2, "lr = -1.0: input should be greater than 0"),
        (["--rounds", "0"], 2, "rounds = 0: input should be greater than or equal to 1"),
        (["--seed", "-1"], 2, "seed = -1"),
        (["--method", "scafold"], 2, "there is no method 'scafold'; did you mean 'SCAFFOLD'?"),
        (["--method", "fedprox(mu=-1)"], 2, "FedProx: mu = -1: input should be greater than or equal to 0"),
        (["--method", "relaxed(fedavg"], 2, "'(' was never closed"),
        (["--split", "Dirichlet(0.1)"], 2, "did you mean 'DirichletByClass'?"),
        (["--engine", "seriel"], 2, "engine = 'seriel': did you mean 'serial'?"),
        (["--cohort", "5"], 2, "cohort = 5: there are 4 clients, so give 1 to 4"),
        (["--cohort", "1.5"], 2, "cohort = 1.5: a fraction lies above 0 and at most at 1"),
        (["--cohort", "many"], 2, "cohort = 'many': give a count (10) or a fraction of the clients (0.2)"),
        (["--epochs", "2"], 2, "exactly one of epochs and steps"),
        (["--device", "cuda:77"], 2, "device = 'cuda:77': PyTorch cannot compute there"),
        (["--device", "gpu"], 2, "device = 'gpu': PyTorch cannot compute there"),
        (["--device", "meta"], 2, "device = 'meta' holds no numbers: choose cpu"),
        (["--model", "mpl"], 2, "there is no model 'mpl'; did you mean 'mlp'?"),
        (["--model", "cnn"], 2, "cnn takes square pictures"),
        (["missing.toml"], 2, "missing.toml: there is no such file"),
        (["--data", "digit"], 3, "there is no data set 'digit'; did you mean 'digits'?"),
        (["--clients", "5000"], 3, "cannot give 5000 clients 1 sample each"),
        (["--split", "Natural", "--set", "data.clients=all"], 3, "needs data with natural groups"),
        (["--lr", "1e30", "--set", "work.steps=4"], 4, "round 0, client"),
    ],
)
def test_bad_input_gets_its_message_and_exit_code(tiny, args, code, message):
    result = tiny(*args, code=code)
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    if code in (2, 3):
        assert not Path("runs").exists()


def test_a_far_fetched_name_is_not_suggested(fedkeel):
    told = fedkeel("explain", "foo", code=2).stderr
    assert "there is no method 'foo'; known: " in told
    assert "did you mean" not in told


def test_usage_errors_exit_with_2(fedkeel):
    for args in (
        ["run", "--rounds", "ten"],
        ["run", "--nope"],
        ["compare"],
        ["nope"],
        ["compare", "--method", "a", "--seeds", "0"],
    ):
        fedkeel(*args, code=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = 3\nlerning_rate = 1\n", "there is no key 'lerning_rate'"),
        ("rounds = 'three'\n", "rounds = 'three': input should be a valid integer"),
        ("[work]\nlr = 0.1\nstps = 3\n", "there is no key 'work.stps'; did you mean 'steps'?"),
        ("[data]\nsplit = 'IDD'\n", "did you mean 'IID'?"),
        ("rounds = \n", "cannot be read as TOML"),
    ],
)
def test_a_bad_file_is_named(fedkeel, text, message):
    Path("bad.toml").write_text(text)
    result = fedkeel("run", "bad.toml", code=2)
    assert result.stderr.startswith("error: bad.toml: ")
    assert message in result.stderr


def test_several_mistakes_are_told_at_once(fedkeel):
    Path("bad.toml").write_text("rounds = 0\nseed = -1\n")
    result = fedkeel("run", "bad.toml", code=2)
    assert "rounds = 0" in result.stderr
    assert "seed = -1" in result.stderr


def test_an_unwritable_directory_is_refused(tiny):
    Path("file").write_text("not a directory")
    result = tiny("--out", "file/run", code=6)
    assert "file/run" in result.stderr
    assert "choose another directory" in result.stderr


def test_a_full_disk_stops_the_run_and_loses_nothing(tiny, fedkeel, monkeypatch):
    real = os.fsync
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    result = tiny("--out", "run", "--set", "checkpoint_every=1", code=6)
    assert "No space left on device" in result.stderr
    assert "free some room and resume" in result.stderr
    monkeypatch.setattr(os, "fsync", real)
    fedkeel("resume", "run")


def test_a_directory_that_holds_a_run_is_not_overwritten(tiny):
    tiny("--out", "run")
    before = Path("run/metrics.jsonl").read_bytes()
    result = tiny("--out", "run", code=6)
    assert "fedkeel resume run" in result.stderr
    assert Path("run/metrics.jsonl").read_bytes() == before


def test_a_directory_with_other_files_is_not_used(tiny, fedkeel):
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("precious")
    assert "thesis.tex" in tiny("--out", "mine", code=6).stderr
    assert "thesis.tex" in fedkeel("compare", "--method", "fedavg", "--out", "mine", code=6).stderr


def test_an_experiment_that_was_edited_is_refused_and_comes_back_when_it_is_removed(tiny, fedkeel):
    tiny("--out", "run")
    file = Path("run/experiment.toml")
    file.write_text(file.read_text().replace("lr = 0.1\n", "lr = 0.2\n"))
    told = "not what the run was begun with, so it was damaged or edited: remove it, and the run goes on"
    assert f"run/experiment.toml: {told}" in fedkeel("resume", "run", code=6).stderr
    file.unlink()
    fedkeel("resume", "run")
    assert "lr = 0.1\n" in file.read_text()


def test_divergence_names_round_client_and_the_last_good_checkpoint(tiny):
    result = tiny("--weight-decay", "1e4", "--rounds", "60", "--out", "run", code=4)  # grows ×1000 a round
    assert "error: round " in result.stderr
    assert "turned NaN or infinite" in result.stderr or "norm of the model is inf" in result.stderr
    assert "last good checkpoint is run/checkpoints/round-" in result.stderr


def test_resume_needs_a_run(fedkeel):
    assert "no run here" in fedkeel("resume", "nowhere", code=6).stderr
    assert "no such directory" in fedkeel("runs", "nowhere", code=6).stderr
    assert "no run here" in fedkeel("show", "nowhere", code=6).stderr


def test_a_run_made_from_python_is_resumed_from_python(fedkeel):
    federation = fk.data.load("digits").split(fk.IID(), clients=4, seed=0)
    work = fk.Work(steps=1, batch_size=4)
    task = fk.Task(fk.models.logistic(64))
    fk.train(task, federation, fk.FedAvg(), rounds=1, cohort=2, work=work, run_dir="run")
    assert "made from Python" in fedkeel("resume", "run", code=2).stderr
    assert "FedAvg(lr=1.0)" in fedkeel("show", "run").stdout


def test_debug_shows_the_traceback_wherever_it_stands(fedkeel):
    for args in (["--debug", "explain", "nope"], ["explain", "nope", "--debug"]):
        result = fedkeel(*args, code=2)
        assert "Traceback" in result.stderr
        assert "error: there is no method 'nope'" in result.stderr


def test_a_warning_is_one_readable_line_on_stderr(tiny):
    result = tiny("--method", "fedinit(beta=0.9)")
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert line.startswith("warning: relaxed: beta·C/N = 0.9·2 > 1")
