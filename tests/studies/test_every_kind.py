"""Every kind of study can do what any of them can: kind × capability, each cell run or with a reason."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from children import interruptible
from torch import nn
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli import app
from fedkeel.directories.kinds import STUDIES, kept_study, study_class
from fedkeel.report import find_verdict
from fedkeel.report.page.document import Document
from fedkeel.web.watching import Watch

TINY = (
    "--clients 6 --cohort 3 --split IID --rounds 2 --epochs 1 --batch-size 20 --model mlp(3) "
    "--engine serial --threads 1"
)
SLOW = "--rounds 60"  # so long that a signal comes amid it


class Kind(NamedTuple):
    """A kind as it is called: its line, what is seen of each seed, and what makes it long."""

    line: str
    seeds: str = "--seeds 2"
    long: str = SLOW


KINDS = {
    "comparison": Kind(f"compare {TINY} --method fedavg --method scaffold"),
    "sweep": Kind(f"sweep {TINY} --over work.lr --values 0.1,0.2"),
    "search": Kind(f"tune {TINY} --over work.lr=log(0.01,1) --trials 2"),
    "robustness study": Kind(
        f"study robustness {TINY} --method fedavg --reducer median --attack SignFlip(0.34)"
    ),
    "stability study": Kind(
        f"study stability {TINY} --method fedavg --method scaffold --held-out 2 --pairs 1 --samples 10"
    ),
    "interaction study": Kind(
        f"study interaction {TINY} --method fedavg --method scaffold --every 1 --samples 10 --components 2",
        long=f"{SLOW} --every 20",
    ),
    "constants study": Kind(
        f"study constants {TINY.replace('--rounds 2', '')} --pilot-rounds 2 --pilot-points 2 "
        "--pilot-clients 2 --pilot-samples 10",
        long="--pilot-rounds 150",
    ),
    "costs study": Kind(f"costs {TINY} --method fedavg --counted 2", seeds="", long="--counted 80"),
    "recipe": Kind(
        "reproduce fedinit/figure1b --scale smoke --methods 'β = 0'", seeds="--seeds 2", long="--seeds 30"
    ),
}
EXPORTS_ROUNDS = {"comparison", "sweep"}  # by default; of the others the table of scores
RUNS = {  # as KINDS make them, and without the results of all but the first: see `begin_anew`
    "comparison": "4 of 4 runs",
    "sweep": "4 of 4 runs",
    "search": "2 of 2 runs",
    "robustness study": "8 of 8 runs",
    "stability study": "4 of 4 runs",
    "interaction study": "4 of 4 runs",
    "constants study": "2 of 2 runs",
    "costs study": "1 of 1 run",
    "recipe": "2 of 2 runs",
}
BEGUN = {kind: done if kind in ("costs study", "recipe") else f"1{done[1:]}" for kind, done in RUNS.items()}
BEGUN["search"] = "0 of 2 runs"  # how its trials ended is known when it is concluded
FINISHED = ("model.safetensors", "found.json")  # what a run writes at its end
REASONS = {
    ("search", "watch"): "its trials keep no rows on disk",
    ("stability study", "watch"): "its runs keep no rows on disk",
    ("constants study", "watch"): "its pilot keeps no rows on disk",
    ("costs study", "watch"): "its rounds keep no rows on disk",
    ("recipe", "watch"): "its runs are shared with other recipes, and are watched as single runs",
    ("costs study", "seeds"): "what is counted does not depend on the seed",
    ("costs study", "parallel"): "its methods are timed round by round in one run",
}


def test_each_kind_stands_in_the_table() -> None:
    assert KINDS.keys() == STUDIES.keys()
    assert {kind for kind, _ in REASONS} <= STUDIES.keys()
    assert all(REASONS.values())


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make runs one by one unless a test asks for more: processes of their own take seconds."""
    monkeypatch.setattr("fedkeel.cli.studies.cores", lambda: 1)


def call(line: str, *more: str, code: int = 0, stderr: bool = False) -> str:
    result = CliRunner().invoke(app, [*shlex.split(line), *more])
    assert result.exit_code == code, result.output
    return result.stderr if stderr else result.stdout


def make(kind: str, tmp_path: Path, *more: str) -> tuple[Path, str]:
    out = tmp_path / "out"
    printed = call(KINDS[kind].line, "--out", str(out), *more)
    return directory_of(kind, out), printed


def directory_of(kind: str, out: Path) -> Path:
    return next(path.parent for path in out.rglob("study.json")) if kind == "recipe" else out


@pytest.mark.slow(12, thorough=False)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_can_do_what_all_can(kind: str, tmp_path: Path) -> None:
    directory, printed = make(kind, tmp_path, *shlex.split(KINDS[kind].seeds))
    assert f"Page: {directory / 'page.html'}" in printed
    kept = kept_study(directory)
    assert kept is not None
    assert kept.kind == kind
    assert kept.study().seeds == (2 if KINDS[kind].seeds else 1)
    shown = call(f"show {shlex.quote(str(directory))}")
    assert shown.split() == printed.split()
    numbers = json.loads(call(f"show {shlex.quote(str(directory))} --json"))
    assert numbers["directory"] == str(directory)
    call(f"report {shlex.quote(str(directory))} --out {tmp_path / 'page.html'}")
    assert (tmp_path / "page.html").stat().st_size > 100_000
    assert call(f"export {shlex.quote(str(directory))} --table scores --format markdown").startswith("|")
    call(f"export {shlex.quote(str(directory))} --out {tmp_path / 'table.tex'}")
    assert (tmp_path / "table.tex").read_text().startswith(r"\begin{tabular}")
    heading, *rows = call(f"export {shlex.quote(str(directory))}").splitlines()
    assert rows
    assert heading.startswith("label,seed,state,round") == (kind in EXPORTS_ROUNDS)
    before = files(directory)
    again = call(f"resume {shlex.quote(str(directory))} --json")
    assert json.loads(again) == numbers
    assert {name for name, stamp in files(directory).items() if before.get(name) != stamp} <= {
        "study.json",
        "result.json",
        "page.html",
        "outcome.json",
        "outcome.txt",
        "page.json",
        "journal.log",
    }
    assert listed(tmp_path, directory) == {"kind": kind, "state": f"{RUNS[kind]} finished"}
    for part in directory.rglob("study.json"):
        if part.parent != directory:
            told = f"{part.parent}: is part of the study in {directory}: `fedkeel resume {directory}` goes on"
            for command in ("show", "resume", *(["export"] if kind == "stability study" else [])):
                line = f"{command} {shlex.quote(str(part.parent))}"
                assert call(line, code=6, stderr=True) == f"error: {told}\n"
    begin_anew(directory)
    assert listed(tmp_path, directory) == {"kind": kind, "state": f"{BEGUN[kind]} finished"}
    watched = Watch(tmp_path)
    watched.look()
    if (kind, "watch") not in REASONS:
        assert {group.kind for group in watched.groups.values()} == {kind}


def listed(root: Path, directory: Path) -> dict[str, str]:
    """Return what `fedkeel runs` says of a study."""
    lines = json.loads(call(f"runs {shlex.quote(str(root))} --json"))
    return next(
        {key: line[key] for key in ("kind", "state")} for line in lines if line["directory"] == str(directory)
    )


def begin_anew(directory: Path) -> None:
    """Take away what a study came to and all that its runs made but the first, as if it had just begun."""
    (directory / "result.json").unlink(missing_ok=True)
    made = sorted(directory.rglob("found.json")) or sorted(directory.rglob("model.safetensors"))
    for file in made[1:]:
        file.unlink()


def files(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): path.stat().st_mtime_ns
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.mark.slow(60)
@pytest.mark.parametrize("kind", KINDS)
def test_runs_side_by_side_give_the_same(kind: str, tmp_path: Path) -> None:
    """A search draws what is side by side together, so its settings are others; its trials are as many."""
    if (kind, "parallel") in REASONS:
        pytest.skip(REASONS[kind, "parallel"])
    one = json.loads(make(kind, tmp_path / "one", "--json")[1])
    two = json.loads(make(kind, tmp_path / "two", "--json", "--parallel", "2")[1])
    if kind == "search":
        assert two["trials"] == one["trials"]
    else:
        assert plain(two) == plain(one)


def plain(value: Any) -> Any:
    """Return numbers without times, places and command lines."""
    if isinstance(value, dict):
        return {
            key: plain(part)
            for key, part in value.items()
            if "second" not in key
            and key not in ("directory", "page", "command", "spreads", "limits", "text")
        }
    return [plain(part) for part in value] if isinstance(value, list) else value


@pytest.mark.slow(60)
@pytest.mark.parametrize("how", ["interrupt", "kill"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_ended_goes_on(kind: str, how: str, tmp_path: Path) -> None:
    if (kind, how) in REASONS:
        pytest.skip(REASONS[kind, how])
    words = [*shlex.split(KINDS[kind].line), *shlex.split(KINDS[kind].long)]
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedkeel", *words, "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=interruptible,  # noqa: PLW1509
    )
    while not list(out.rglob("study.json")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == (130 if how == "interrupt" else -signal.SIGKILL), told
    directory = directory_of(kind, out)
    if how == "interrupt":
        assert f"resume with: fedkeel resume {shlex.quote(str(directory))}" in told
    finished = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name in FINISHED}
    numbers = json.loads(call(f"resume {shlex.quote(str(directory))} --json"))
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    undisturbed = json.loads(call(shlex.join(words), "--json", "--out", str(tmp_path / "whole")))
    assert plain(numbers) == plain(undisturbed)


def test_a_kind_says_in_python_what_it_takes() -> None:
    for name in (
        "comparison",
        "sweep",
        "robustness",
        "stability",
        "interaction",
        "constants",
        "costs",
        "tune",
    ):
        face = getattr(fk.study, name)
        assert "Settings:" in face.__doc__
        parameters = inspect.signature(face).parameters
        assert {"experiment", "run_dir", "parallel", "on"} <= parameters.keys()
        by_place = [one.name for one in parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        assert by_place == {"sweep": ["over", "values"], "tune": ["over"], "constants": []}.get(
            name, ["methods"]
        )


def test_the_module_of_studies_shows_its_functions_alone() -> None:
    kinds = {study_class(kind).command.rpartition(" ")[2] for kind in STUDIES}
    assert set(dir(fk.study)) == {"comparison" if name == "compare" else name for name in kinds}
    assert dir(fk.study) == fk.study.__all__


def test_a_result_prints_itself_and_has_a_document(tmp_path: Path) -> None:
    tiny = {
        "rounds": 1,
        "cohort": 3,
        "data.clients": 6,
        "work.epochs": 1,
        "engine": "serial",
        "model.name": "mlp(3)",
    }
    found = fk.study.comparison(["fedavg", fk.SCAFFOLD()], experiment=tiny, seeds=1)
    assert isinstance(found, fk.StudyResult)
    assert isinstance(found.document, Document)
    assert "SCAFFOLD" in repr(found)
    assert "<table>" in found._repr_html_()
    assert found.directory is None
    assert found.numbers["methods"][1]["method"] == "SCAFFOLD"
    assert study_class("comparison").kind == "comparison"
    with pytest.raises(fk.ConfigError, match="comparison has no argument 'method'"):
        fk.study.comparison(["fedavg"], experiment=tiny, method=1)
    with pytest.raises(TypeError, match="positional arguments: give methods by place, all else by keyword"):
        fk.study.comparison(["fedavg"], tiny)
    with pytest.raises(TypeError, match="sweep: missing a required argument: 'values'"):
        fk.study.sweep("work.lr", experiment=tiny)
    swept = fk.study.sweep("work.lr", [0.1, 0.2], experiment=tiny, seeds=1)
    assert [line["label"] for line in swept.numbers["table"]] == ["0.1", "0.2"]


@pytest.mark.slow(10)
def test_functions_of_ones_own_are_compared_side_by_side_as_one_by_one() -> None:
    """What the function closes over goes along to the processes."""
    federation = fk.data.load("digits").split(fk.IID(), clients=6, seed=0)
    work = fk.Work(epochs=1, batch_size=20, lr=0.1)

    def train(method: Any, seed: int) -> fk.Result:
        task = fk.Task(lambda: nn.Linear(64, 10))
        execution = fk.Execution("serial", threads=1)
        return fk.train(
            task, federation, method, rounds=2, cohort=3, work=work, seed=seed, execution=execution
        )

    one, two = (
        fk.compare(train, [fk.FedAvg(), fk.SCAFFOLD()], seeds=2, parallel=parallel) for parallel in (1, 2)
    )
    assert [trial.rows[-1]["loss"] for trial in one.trials] == [
        trial.rows[-1]["loss"] for trial in two.trials
    ]
    assert one.document.title == two.document.title


def test_what_is_in_memory_is_judged_once_and_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []
    for module in ("fedkeel.studies.comparison", "fedkeel.report.page.parts"):
        monkeypatch.setattr(
            f"{module}.find_verdict", lambda *given: judged.append(given) or find_verdict(*given)
        )
    make("comparison", tmp_path / "comparison")
    assert len(judged) == 1
    monkeypatch.setattr("fedkeel.papers.reproduce.page.kept_document", None)
    make("recipe", tmp_path / "recipe")
