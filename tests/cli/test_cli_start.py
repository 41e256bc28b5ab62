"""The command line starts quickly: commands are imported when they are called, PyTorch when one trains."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest
from children import interruptible
from selecting import slow

from fedkeel.cli.app import COMMANDS, load_command
from fedkeel.cli.methods import TABLE, method_table

HEAVY = ("torch", "scipy", "sklearn", "pandas", "optuna")
CALL = f"""
import sys
from fedkeel.__main__ import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
INTERRUPT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(1000): pass\n"


def imported(*args: str) -> list[str]:
    """Run a command in a process of its own and return which heavy modules it imported."""
    done = subprocess.run([sys.executable, "-c", CALL, *args], capture_output=True, text=True, check=True)
    assert done.stdout
    return ast.literal_eval(done.stderr.splitlines()[-1])


@pytest.mark.parametrize("line", ["--help", *slow("--version", "methods", "methods --json", "run --help")])
def test_what_trains_nothing_imports_nothing_heavy(line):
    assert imported(*line.split()) == []


def test_no_command_imports_anything_heavy_before_it_runs():
    code = (
        "import sys\nfrom fedkeel.cli.app import COMMANDS, load_command\n"
        "for name in COMMANDS: load_command(name)\n"
        f"assert not set({HEAVY}) & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_runs_are_listed_and_shown_without_torch(tiny, fedkeel):
    tiny("--out", "runs/a", "--method", "fedprox(mu=0.1)")
    methods = ("--method", "fedavg", "--method", "fedprox(mu=0.1)")
    fedkeel("compare", "runs/a/experiment.toml", *methods, "--seeds", "1", "--out", "c")
    for args in (["runs"], ["runs", "--json"], ["show", "runs/a"], ["show", "runs/a", "--json"]):
        assert imported(*args) == []
    for args in (["show", "c"], ["show", "c", "--json"]):
        assert "torch" not in imported(*args)


def test_the_list_of_commands_says_what_each_command_says_of_itself():
    for name, (_, summary) in COMMANDS.items():
        assert summary == load_command(name).help.splitlines()[0]


def test_the_table_of_methods_is_what_the_code_gives():
    assert TABLE.read_text() == method_table(), "run `python -m fedkeel.cli.methods` and commit methods.json"


def test_a_mistyped_command_gets_a_suggestion(fedkeel):
    result = fedkeel("metods", code=2)
    assert "there is no command 'metods'; did you mean 'methods'?" in result.stderr
    assert "methods" in result.stderr


@pytest.mark.parametrize("module", ["typer", *slow("torch")])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(tmp_path, module):
    (tmp_path / f"{module}.py").write_text(INTERRUPT)
    path = os.pathsep.join([str(tmp_path), *sys.path[1:]])
    done = subprocess.run(
        [sys.executable, "-m", "fedkeel", "explain", "scaffold"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=interruptible,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nstopped\n")


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        ("> /dev/full", 6, "error: cannot write to standard output: No space left on device\n"),
        *slow((">&-", 0, ""), ("2>&-", 0, ""), ("| head -c 1 > /dev/null", 0, "")),
    ],
)
def test_a_stdout_that_is_closed_full_or_not_read_ends_without_a_traceback(redirection, code, told):
    line = f"{sys.executable} -m fedkeel methods {redirection}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, told)


@pytest.mark.slow(9)
def test_a_stderr_that_cannot_be_written_changes_no_exit_code_and_stops_no_run(tmp_path):
    for line, code in (("explain foo", 2), ("run --rounds 1 --steps 1 --clients 4 --cohort 2 --json", 0)):
        whole = f"{sys.executable} -m fedkeel {line} 2> /dev/full"
        done = subprocess.run(whole, shell=True, capture_output=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stderr) == (code, b"")
    assert b'"rounds": 1' in done.stdout
