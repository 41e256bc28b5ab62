"""Divergence: found within a round with client and layer; a run may go back and take smaller steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from torch import nn

import fedkeel as fk
from fedkeel.running.run_directory import read_rows
from fedkeel.tensors.layout import Layout, worst_layer


def federation(wild: int | None = None, clients: int = 6) -> fk.Federation:
    rng = torch.Generator().manual_seed(0)
    data = []
    for client in range(clients):
        x, y = torch.randn(12, 4, generator=rng), torch.arange(12) % 3
        data.append((x * (1e30 if client == wild else 1.0), y))
    return fk.Federation.from_arrays(data, test=data[1 if wild == 0 else 0])


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def train(lr: float = 0.1, method: Any = None, wild: int | None = None, **options: Any) -> fk.Result:
    given = {"rounds": 6, "cohort": 3, "work": fk.Work(epochs=2, batch_size=4, lr=lr), "engine": "serial"}
    task = fk.Task(net)
    return flat.train(task, federation(wild), fk.FedAvg() if method is None else method, **(given | options))


def rows(result: fk.Result) -> list[dict[str, Any]]:
    return [{name: x for name, x in row.items() if name != "seconds"} for row in result.history]


def test_divergence_is_found_in_its_round_with_client_and_layer() -> None:
    with pytest.raises(fk.Diverged) as caught:
        train(wild=2, rounds=20)
    found = caught.value
    assert found.client == 2
    assert found.layer in {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert f"round {found.round}, client 2: " in str(found)
    assert f"first in {found.layer}" in str(found)
    assert len(found.result.history) == found.round, "the rounds before it are kept"


def test_the_layer_that_left_the_numbers_first_is_named() -> None:
    layout = Layout.of([("a", torch.zeros(2, 2)), ("b", torch.zeros(3))])
    inf, nan = float("inf"), float("nan")
    assert worst_layer(layout, torch.tensor([1.0, nan, 1, 1, inf, inf, 0])) == "b"
    assert worst_layer(layout, torch.tensor([1.0, 1, 1, 9, 2, 3, 0])) == "a"
    everything = torch.full((7,), nan)
    assert worst_layer(layout, everything, torch.tensor([1.0, 1, 1, 1, 2, 1e9, 0])) == "b"


@pytest.mark.parametrize("method", [fk.FedAvg(), fk.SCAFFOLD(), fk.FedDyn(0.1)], ids=repr)
def test_a_run_goes_back_and_goes_on_with_smaller_steps(method: Any) -> None:
    result = train(lr=1e4, method=method, on_divergence="rollback", rounds=4)
    events = [(row["round"], event) for row in result.history for event in row.get("rolled_back", [])]
    assert events[0][0] == 0
    assert all(event["factor"] == 0.1 for _, event in events)
    assert all(event["layer"] is not None and event["client"] is not None for _, event in events)
    assert result.history[-1]["lr"] == pytest.approx(1e4 * 0.1 ** len(events))
    assert "rolled back" in repr(result)


def test_after_a_rollback_the_run_is_that_with_the_smaller_rate() -> None:
    result = train(lr=1e4, on_divergence="rollback", rollback_factor=1e-5)
    assert len(result.history[0]["rolled_back"]) == 1
    small = train(lr=1e4 * 1e-5)
    plain = [{name: x for name, x in row.items() if name != "rolled_back"} for row in rows(result)]
    assert plain == rows(small)


def test_a_healthy_run_is_not_disturbed() -> None:
    assert rows(train(on_divergence="rollback")) == rows(train())


def test_a_run_that_was_rolled_back_resumes_to_the_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"lr": 1e4, "on_divergence": "rollback", "method": fk.SCAFFOLD()}
    whole = train(**options)

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    saved = {"run_dir": tmp_path / "run"}
    with pytest.raises(fk.Stopped):
        train(**options, **saved, callbacks=stop)
    resumed = train(**options, **saved, resume=True)
    assert rows(resumed) == rows(whole)
    assert any("rolled_back" in row for row in read_rows(tmp_path / "run"))
    assert torch.equal(resumed.server.x, whole.server.x)
    assert torch.equal(resumed.server.c, whole.server.c)


def test_tries_come_to_an_end() -> None:
    with pytest.raises(fk.Diverged, match=r"\(after 2 rollbacks; rollback_tries allows no more\)"):
        train(lr=1e30, on_divergence="rollback", rollback_tries=2)


def test_a_diverged_run_may_be_resumed_with_rollback(tmp_path: Path) -> None:
    saved: dict[str, Any] = {"lr": 1e12, "run_dir": tmp_path / "run"}
    with pytest.raises(fk.Diverged):
        train(**saved)
    assert len(train(**saved, resume=True, on_divergence="rollback", rollback_tries=20).history) == 6


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"on_divergence": "go back"}, "on_divergence = 'go back': input should be 'stop' or 'rollback'"),
        ({"rollback_factor": 1.0}, "rollback_factor = 1.0: input should be less than 1"),
        ({"rollback_tries": 0}, "rollback_tries = 0: input should be greater than or equal to 1"),
    ],
)
def test_what_a_rollback_cannot_do_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(fk.ConfigError, match=told):
        train(**options)
