"""Workers that were lost are told in the history, and kept apart from what two equal runs share."""

from __future__ import annotations

import json
from pathlib import Path

import flat
import pytest
import torch
from torch import nn

import fedkeel as fk
from fedkeel.engines.jobs.engine import JobEngine
from fedkeel.running.run_reading import read_rows

LOST = ["round 0, client 1: run again elsewhere (its node was lost)"]


@pytest.mark.slow(3, thorough=False)
def test_lost_workers_are_a_line_of_the_history_beside_the_timings(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(JobEngine, "lost_workers", lambda self: LOST)
    clients = [(torch.randn(4, 3), torch.arange(4) % 2) for _ in range(2)]
    options = {"rounds": 1, "cohort": 2, "work": fk.Work(steps=1), "engine": "processes", "workers": 1}
    federation = fk.Federation.from_arrays(clients)
    run = flat.train(fk.Task(nn.Linear(3, 2)), federation, fk.FedAvg(), run_dir=tmp_path / "run", **options)
    assert run.history[0]["lost_workers"] == LOST
    assert read_rows(tmp_path / "run")[0]["lost_workers"] == LOST
    assert "lost_workers" not in json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
