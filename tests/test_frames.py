"""The frames between `train` and the gradient: at most eleven, and those that docs/architecture.md names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from problems import tiny_net

import fedkeel as fk
from fedkeel.core.oracle import Oracle

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
PACKAGE = str(Path(fk.__file__).parent)


def frames_to_the_gradient(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the package's functions from `train` to the one that asks for a gradient, in every step."""
    found: set[tuple[str, ...]] = set()
    gradient = Oracle.gradient

    def record(self: Oracle, *given: Any) -> Any:
        frame, names = sys._getframe(1), list[str]()
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                names.insert(0, frame.f_code.co_qualname)
            frame = frame.f_back  # type: ignore[assignment]
        found.add(tuple(names))
        return gradient(self, *given)

    monkeypatch.setattr(Oracle, "gradient", record)
    problem, work = tiny_net([3, 8, 5]), fk.Work(epochs=1, batch_size=3, lr=0.1)
    fk.train(
        problem.task,
        problem.federation,
        fk.SCAFFOLD(),
        rounds=2,
        cohort=2,
        work=work,
        execution=fk.Execution("serial"),
    )
    [names] = found
    return list(names)


def test_eleven_frames_lie_between_train_and_the_gradient_and_the_page_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = frames_to_the_gradient(monkeypatch)
    assert frames[0] == "train"
    assert len(frames) <= 11
    [paragraph] = re.findall(r"^Frames between `train` and the gradient.*?:(.*?)\.\n\n", PAGE, re.M | re.S)
    assert re.findall(r"`([\w.]+)`", paragraph) == frames


def test_the_life_of_a_round_has_them_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    [life] = re.findall(r"## The life of a round\n\n```\n(.*?)```", PAGE, re.S)
    for name in frames_to_the_gradient(monkeypatch):
        assert name in life, f"{name} is not there, or stands before what calls it"
        life = life.split(name, 1)[1]
