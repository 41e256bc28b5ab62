"""`fedkeel resume` goes on with every kind of command that makes many runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fedkeel.common.jsonfiles import sealed
from fedkeel.experiments import STUDY_FILE
from fedkeel.experiments.planned_run import PlannedRun
from fedkeel.papers.reproduce import carrying_out
from fedkeel.studies import tune as search

TINY = ("--clients", "6", "--cohort", "3", "--steps", "1", "--batch-size", "8", "--rounds", "3")
TINY += ("--model", "mlp(4)", "--engine", "serial")
PILOT = ("--pilot-rounds", "4", "--pilot-points", "2", "--pilot-clients", "2", "--pilot-samples", "8")
LINES = {
    "sweep": ("sweep", *TINY, "--over", "work.lr", "--values", "0.01,0.1", "--seeds", "2", "--parallel", "1"),
    "tune": ("tune", *TINY, "--over", "work.lr=log(0.01, 1)", "--trials", "3"),
    "robustness": (
        *("study", "robustness", *TINY, "--method", "fedavg", "--reducer", "median"),
        *("--attack", "SignFlip(0.34)", "--seeds", "1", "--parallel", "1"),
    ),
    "stability": (
        *("study", "stability", *TINY, "--method", "fedavg", "--pairs", "2", "--held-out", "2"),
        *("--samples", "20"),
    ),
    "interaction": (
        *("study", "interaction", *TINY, "--method", "fedavg", "--every", "1", "--samples", "20"),
        *("--components", "3"),
    ),
    "constants": (
        *("study", "constants", *TINY[:6], "--batch-size", "8", "--model", "mlp(4)", "--steps", "1"),
        *PILOT,
    ),
    "reproduce": (
        *("reproduce", "fedinit/table9", "--scale", "smoke", "--methods", "fedavg,scaffold", "--seeds", "1"),
        *("--parallel", "1"),
    ),
}
# what is called for each part of the work: the second call is interrupted
PARTS: dict[str, tuple[Any, str]] = {
    "sweep": (PlannedRun, "run"),
    "tune": (search, "attempt"),
    "robustness": (PlannedRun, "run"),
    "stability": (import_module("fedkeel.studies.stability.study"), "read_or_make"),
    "interaction": (import_module("fedkeel.studies.interaction.study"), "read_or_make"),
    "constants": (import_module("fedkeel.studies.constants.study"), "read_or_make"),
    "reproduce": (carrying_out, "carry_out"),
}


def place(kind: str) -> Path:
    return Path("runs/fedinit-table9-smoke") if kind == "reproduce" else Path("runs")


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {
            key: part for key, part in value.items() if "second" not in key and key not in ("text", "sha256")
        }
        return {key: without_times(part) for key, part in kept.items()}
    return [without_times(part) for part in value] if isinstance(value, list) else value


@pytest.fixture
def stopped(fedkeel: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A command that is interrupted in the second part of its work; returns what it says."""

    def stop(kind: str) -> str:
        where, name = PARTS[kind]
        real, calls = getattr(where, name), []

        def once(*args: Any, **given: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*args, **given)

        with monkeypatch.context() as patch:
            patch.setattr(where, name, once)
            return str(fedkeel(*LINES[kind], "--out", "runs", code=130).stderr)

    return stop


@pytest.mark.parametrize("kind", LINES)
def test_what_was_stopped_goes_on_and_ends_as_if_it_had_not_been(
    kind: str, fedkeel: Callable, stopped: Callable[[str], str]
) -> None:
    assert f"resume with: fedkeel resume {place(kind)}" in stopped(kind)
    resumed = json.loads(fedkeel("resume", place(kind), "--json").stdout)
    whole = json.loads(fedkeel(*LINES[kind], "--out", "runs", "--json").stdout)
    assert without_times(resumed) == without_times(whole)
    Path("runs").rename("before")
    anew = json.loads(fedkeel(*LINES[kind], "--out", "runs", "--json").stdout)
    assert without_times(anew) == without_times(whole)


def test_the_page_of_a_resumed_sweep_has_the_line_that_began_it(
    fedkeel: Callable, stopped: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["fedkeel", *LINES["robustness"], "--out", "runs"])
    stopped("robustness")
    monkeypatch.setattr("sys.argv", ["fedkeel", "resume", "runs"])
    fedkeel("resume", "runs")
    assert "fedkeel study robustness --clients 6" in Path("runs/page.html").read_text()


def test_a_resumed_sweep_may_have_more_rounds(fedkeel: Callable) -> None:
    fedkeel(*LINES["sweep"], "--out", "runs")
    found = json.loads(fedkeel("resume", "runs", "--rounds", "4", "--json").stdout)
    assert "rounds = 4" in found["settings"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--set", "on_client_error=skip"), "runs is a search; --set is for single runs"),
        (("--columns", "top"), "search has no table of methods or values: leave it out"),
    ],
)
def test_what_does_not_fit_the_command_is_refused(
    given: tuple[str, ...], told: str, fedkeel: Callable
) -> None:
    fedkeel(*LINES["tune"], "--out", "runs")
    assert told in fedkeel("resume", "runs", *given, code=2).stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda table: table | {"plan": {"ovr": ["x"], "experiment": {}}}, "its plan cannot be read"),
        (lambda table: table | {"plan": None}, "go on with the same `fedkeel sweep` line and --out runs"),
        (lambda table: table | {"study": "demo"}, "there is no kind 'demo'"),
        (lambda table: {}, "it lacks 'study'"),
    ],
)
def test_a_damaged_plan_is_named_with_the_way_out(
    change: Callable[[dict[str, Any]], Any], told: str, fedkeel: Callable
) -> None:
    fedkeel(*LINES["sweep"], "--out", "runs")
    file = Path("runs") / STUDY_FILE
    table = json.loads(file.read_text())
    whole = change({key: part for key, part in table.items() if key not in ("sha256", "format")})
    file.write_text(json.dumps(sealed(whole)))
    assert told in fedkeel("resume", "runs", code=6).stderr


def test_another_command_leaves_the_file_as_it_is(fedkeel: Callable) -> None:
    fedkeel(*LINES["sweep"], "--out", "runs")
    before = (Path("runs") / STUDY_FILE).read_bytes()
    fedkeel(*LINES["sweep"], "--lr-decay", "0.5", "--out", "runs", code=6)
    fedkeel(*LINES["tune"], "--out", "runs", code=6)
    assert (Path("runs") / STUDY_FILE).read_bytes() == before


def test_a_mistake_leaves_no_directory(fedkeel: Callable) -> None:
    fedkeel(*LINES["sweep"], "--model", "nothing", "--out", "runs", code=2)
    assert not Path("runs").exists()
