"""The choice of an engine: by a rule for short runs, else measured once and cached."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from problems import tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.common.errors import Diverged
from fedkeel.core.oracle import Oracle
from fedkeel.engines import build
from fedkeel.engines import choice as choice_module
from fedkeel.engines import estimates as estimates_module
from fedkeel.engines.choice import Begin, decide
from fedkeel.engines.choice_cache import ChoiceCache, fingerprint
from fedkeel.engines.contract import Unsuited
from fedkeel.engines.estimates import Candidate
from fedkeel.engines.stopwatch import Measurement
from fedkeel.settings.run_settings import RunSettings

PROBLEM = tiny_net([8, 8, 8, 8])
WORK = fk.Work(epochs=2, batch_size=4, lr=0.1)
SHORT, LONG = {"rounds": 10, "cohort": 2}, {"rounds": 10**7, "cohort": 4}


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines set back the number that they are told, two: afterwards it is again what it was."""
    before = torch.get_num_threads()
    monkeypatch.setattr(estimates_module.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(estimates_module, "available_cores", lambda: 2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates_module, "step_flops", lambda *_, **__: 1e8)


def question(model: nn.Module | None = None, **options: Any) -> tuple[RunSettings, Oracle]:
    """Return the settings of a run, a long one by default, and the oracle of its task."""
    task = PROBLEM.task if model is None else fk.Task(model.double())
    settings: dict[str, Any] = {"method": fk.FedAvg(), "work": WORK, **LONG, **options}
    made = RunSettings(task=task, federation=PROBLEM.federation, **settings)
    return made, Oracle(task, torch.device("cpu"))


def figures(**seconds: float) -> Begin:
    """Return a fake measurement: so many seconds for each engine, twice that on two threads."""

    @contextmanager
    def begin(one: Candidate) -> Iterator[Measurement]:
        name = one.engine.replace("-", "_")
        if name not in seconds:
            raise Unsuited(f"{one.engine} is not for this")
        yield lambda: seconds[name] * one.threads

    return begin


def no_measurement(one: Candidate) -> Any:
    raise AssertionError(f"measured {one}")


def test_a_short_run_follows_the_rule_and_touches_no_cache(tmp_path: Path) -> None:
    cache = ChoiceCache(tmp_path / "cache")
    choice = decide(*question(**SHORT), build, cache=cache, begin=no_measurement)
    assert (choice.engine, choice.threads) == ("serial", 1)
    assert "too short" in choice.reason
    assert not cache.path.exists()


@pytest.mark.parametrize("length", [SHORT, LONG], ids=["short", "long"])
def test_the_compiler_is_imported_only_by_what_needs_it(
    length: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes more than a second, longer than many a run."""
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # importing it is now an error
    begin = figures(serial=1e-4)
    assert decide(*question(**length), build, cache=ChoiceCache(tmp_path), begin=begin).engine == "serial"


def test_where_there_is_another_device_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice_module, "sensible_threads", lambda *_: 1)
    settings, oracle = question()
    oracle.device = torch.device("meta")
    choice = decide(settings, oracle, build, begin=no_measurement)
    assert (choice.engine, choice.reason) == ("serial", "on meta there is nothing to choose from")


def test_a_long_run_takes_the_fastest(tmp_path: Path) -> None:
    begin = figures(serial=2e-4, stacked_uncompiled=1e-4, stacked=3e-5, processes=9e-5)
    choice = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin)
    assert (choice.engine, choice.threads) == ("stacked", 1)
    assert choice.figures["stacked on 1 thread"] == 30.0
    assert not any("2 threads" in name for name in choice.figures), "the steps are small"


def test_a_little_faster_is_no_reason_to_leave_serial(tmp_path: Path) -> None:
    begin = figures(serial=1.0e-4, stacked_uncompiled=0.95e-4)
    assert decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin).engine == "serial"


def test_the_choice_is_cached_and_stays(tmp_path: Path) -> None:
    first = decide(
        *question(), build, cache=ChoiceCache(tmp_path), begin=figures(serial=2e-4, stacked_uncompiled=1e-5)
    )
    again = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=no_measurement)
    assert again[:2] == first[:2] == ("stacked-uncompiled", 1)
    assert again.figures == first.figures
    assert "(cached)" in again.reason


def test_whoever_measures_second_takes_the_first_choice(tmp_path: Path) -> None:
    cache = ChoiceCache(tmp_path)
    assert cache.keep("key", {"engine": "serial"}) == {"engine": "serial"}
    assert cache.keep("key", {"engine": "stacked"}) == {"engine": "serial"}
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]


def test_a_damaged_file_is_measured_again(tmp_path: Path) -> None:
    cache = ChoiceCache(tmp_path)
    (tmp_path / "key.json").write_text('{"engine": "ser')
    assert cache.read("key") is None
    assert cache.keep("key", {"engine": "stacked"}) == {"engine": "stacked"}
    assert cache.read("key") == {"engine": "stacked"}


def test_without_a_cache_the_rule_decides(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ChoiceCache(tmp_path / "file" / "cache")
    choice = decide(*question(), build, cache=cache, begin=no_measurement)
    assert choice.engine == "serial"
    assert "cannot be written" in choice.reason


def test_the_key_depends_on_model_and_shape_but_not_on_the_method() -> None:
    key = fingerprint(*question(), ["serial"])
    assert key == fingerprint(*question(), ["serial"])
    wider = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
    others = [
        fingerprint(*question(wider), ["serial"]),
        fingerprint(*question(cohort=3), ["serial"]),
        fingerprint(*question(), ["serial", "stacked"]),
        fingerprint(*question(work=fk.Work(epochs=2, batch_size=5)), ["serial"]),
        fingerprint(*question(work=fk.Work(epochs=2, batch_size=5, last_batch="drop")), ["serial"]),
        fingerprint(*question(work=fk.Work(epochs=2, batch_size=4, optimizer=fk.AdamW())), ["serial"]),
    ]
    assert len({key, *others}) == 7
    assert key == fingerprint(*question(rounds=3), ["serial"])
    assert key == fingerprint(*question(method=fk.SCAFFOLD()), ["serial"])


def test_a_run_that_fails_in_its_first_step_is_left_to_tell_so_itself(tmp_path: Path) -> None:
    def diverging(one: Candidate) -> Any:
        raise Diverged("round 0, client 0: the loss turned NaN", round=0)

    cache = ChoiceCache(tmp_path)
    choice = decide(*question(), build, cache=cache, begin=diverging)
    assert (choice.engine, choice.threads) == ("serial", 1)
    assert "could not be measured: round 0, client 0" in choice.reason
    assert not list(tmp_path.iterdir())


def test_an_engine_that_fails_is_not_chosen(tmp_path: Path) -> None:
    working = figures(serial=2e-4)

    def begin(one: Candidate) -> Any:
        if one.engine != "serial":
            raise RuntimeError("no such kernel")
        return working(one)

    choice = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin)
    assert choice.engine == "serial"
    assert choice.figures["stacked-uncompiled on 1 thread"] == "it fails: RuntimeError: no such kernel"


@pytest.mark.usefixtures("_long_steps")
def test_long_steps_are_measured_on_all_threads(tmp_path: Path) -> None:
    begin = figures(serial=2e-2, stacked_uncompiled=1e-2, stacked=3e-3, processes=9e-3)
    choice = decide(*question(), build, cache=ChoiceCache(tmp_path), begin=begin)
    assert choice.figures["serial on 2 threads"] == 40000.0
    assert (choice.engine, choice.threads) == ("stacked", 1)


@pytest.mark.usefixtures("_long_steps")
def test_a_given_number_of_threads_is_kept(tmp_path: Path) -> None:
    begin = figures(serial=2e-2, stacked=1e-3, stacked_uncompiled=1e-2, processes=1e-9)
    for threads in (2, 3):
        choice = decide(*question(), build, threads=threads, cache=ChoiceCache(tmp_path), begin=begin)
        assert (choice.engine, choice.threads) == ("stacked", threads)
        assert all(f"{threads} threads" in name for name in choice.figures)


def test_the_choice_holds_for_runs_of_about_the_same_length(tmp_path: Path) -> None:
    begin = figures(serial=2e-4, stacked_uncompiled=1e-4)
    cache = ChoiceCache(tmp_path)
    reasons = [
        decide(*question(rounds=rounds), build, cache=cache, begin=begin).reason
        for rounds in (10**6, 10**6 + 9, 10**7, 10**6, 10**7)
    ]
    assert ["(cached)" in reason for reason in reasons] == [False, True, False, True, True]


def test_the_number_of_workers_is_part_of_the_question(tmp_path: Path) -> None:
    begin = figures(serial=1e-2, processes=1e-3)
    made = [
        decide(*question(), build, workers=workers, cache=ChoiceCache(tmp_path), begin=begin)
        for workers in (1, 4)
    ]
    assert [choice.engine for choice in made] == ["serial", "processes"]


def test_the_reason_why_an_engine_has_no_figure_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [Candidate("serial", 1), Candidate("stacked-uncompiled", 1), Candidate("stacked", 1)]
    monkeypatch.setattr(choice_module, "candidates", lambda *_: asked)
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 4))
    choice = decide(*question(model), build, cache=ChoiceCache(tmp_path))
    assert choice.engine == "serial"
    said = str(choice.figures["stacked-uncompiled on 1 thread"])
    assert "the layer '1' (Dropout) draws random numbers" in said
    assert "only where stacked-uncompiled is fast" in str(choice.figures["stacked on 1 thread"])
    assert isinstance(choice.figures["serial on 1 thread"], float)


def test_what_was_chosen_is_logged_with_the_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fedkeel"):
        decide(
            *question(),
            build,
            cache=ChoiceCache(tmp_path),
            begin=figures(serial=2e-4, stacked_uncompiled=1e-5),
        )
    assert "engine: stacked-uncompiled, threads: 1" in caplog.text
    assert "serial on 1 thread: 200 µs per step" in caplog.text
    assert "stacked on 1 thread: stacked is not for this" in caplog.text


def test_a_run_tells_in_its_manifest_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choice_module, "timer", lambda *_: nullcontext(lambda: 1.0))
    monkeypatch.setattr(choice_module, "_SHORT_RUN", 0.0)
    monkeypatch.setattr(
        choice_module, "candidates", lambda *_: [Candidate("serial", 1), Candidate("stacked-uncompiled", 1)]
    )
    options: dict[str, Any] = {"rounds": 2, "cohort": 2, "work": WORK}
    for name in ("first", "second"):
        flat.train(PROBLEM.task, PROBLEM.federation, fk.FedAvg(), run_dir=tmp_path / name, **options)
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("first", "second")]
    assert [one["engine"] for one in manifests] == ["serial", "serial"]
    told = manifests[0]["engine_choice"]["microseconds_per_step"]
    assert told["serial on 1 thread"] == 1e6
    assert "may save nothing" in told["stacked-uncompiled on 1 thread"]
    assert manifests[0]["engine_choice"]["reason"].startswith("measured: ")
    assert "(cached)" in manifests[1]["engine_choice"]["reason"]


def test_an_unknown_engine_is_an_error() -> None:
    with pytest.raises(fk.ConfigError, match="did you mean 'stacked'"):
        fk.train(
            PROBLEM.task,
            PROBLEM.federation,
            fk.FedAvg(),
            rounds=1,
            cohort=2,
            work=WORK,
            execution=fk.Execution("stack"),
        )
