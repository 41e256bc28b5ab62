"""A finished run keeps what it needs: the clients' memories only where asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.running.checkpoints import Checkpoints
from fedkeel.tensors.records import leaves

GENERATOR = torch.Generator().manual_seed(0)
CLIENTS = [(torch.randn(6, 3, generator=GENERATOR), torch.arange(6) % 2) for _ in range(8)]
WORK = fk.Work(steps=2)


def task() -> fk.Task:
    torch.manual_seed(0)
    return fk.Task(nn.Linear(3, 2))


def train(path: Path | None, algorithm: Any = None, **options: Any) -> fk.Result:
    options = {"rounds": 4, "cohort": 3, "work": WORK, "engine": "serial", "checkpoint_every": 1, **options}
    federation = fk.Federation.from_arrays(CLIENTS, test=CLIENTS[0])
    return flat.train(task(), federation, algorithm or fk.SCAFFOLD(), run_dir=path, **options)


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


def test_one_checkpoint_without_memories_is_left(tmp_path: Path) -> None:
    result = train(tmp_path)
    assert len(result.client_states) > 3  # the result itself has them
    assert [name for name in files(tmp_path) if name.startswith("checkpoints")] == [
        "checkpoints/round-00000004/checkpoint.json",
        "checkpoints/round-00000004/server.safetensors",
    ]
    loaded = Checkpoints(tmp_path).read(report=pytest.fail)
    assert loaded is not None
    assert loaded.not_kept == len(result.client_states)


def test_what_a_finished_run_is_for_works_without_them(tmp_path: Path) -> None:
    result = train(tmp_path)
    loaded, again = fk.load(tmp_path, task()), train(tmp_path, resume=True)
    assert result.best is not None
    for other in (loaded, again):
        assert other.history == result.history
        assert torch.equal(weights(other.model), weights(result.model))
        assert other.best is not None
        assert torch.equal(weights(other.best.model), weights(result.best.model))
        assert other.evaluate(CLIENTS[1]) == result.evaluate(CLIENTS[1])
    for (_, ours), (_, theirs) in zip(leaves(again.server), leaves(result.server), strict=True):
        assert torch.equal(ours, theirs)
    assert len(again.client_states) == 0


def test_to_go_on_without_them_is_refused_with_what_to_do(tmp_path: Path) -> None:
    train(tmp_path)
    before = files(tmp_path)
    with pytest.raises(fk.ConfigError) as problem:
        train(tmp_path, rounds=6, resume=True)
    assert str(problem.value) == (
        f"rounds = 6: the run in {tmp_path} ended after round 4, and its client states were not kept: "
        "train all 6 rounds in another directory; a run that is to go on later keeps them with "
        "keep_client_states=True (--keep-client-states)"
    )
    assert files(tmp_path) == before
    assert fk.load(tmp_path).manifest["rounds"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [(fk.FedAvg(), {}), (fk.FedAdam(), {}), (fk.SCAFFOLD(), {"keep_client_states": True})],
    ids=["FedAvg", "FedAdam", "SCAFFOLD, kept"],
)
def test_a_run_goes_on_where_nothing_is_missing(algorithm: Any, options: Any, tmp_path: Path) -> None:
    train(tmp_path, algorithm, **options)
    longer, whole = train(tmp_path, algorithm, rounds=7, resume=True), train(None, algorithm, rounds=7)
    assert torch.equal(weights(longer.model), weights(whole.model))
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_a_run_that_a_callback_ended_early_can_go_on(tmp_path: Path) -> None:
    train(tmp_path, callbacks=lambda row: row["round"] == 1)
    assert len(list((tmp_path / "checkpoints").glob("*/client_states.safetensors"))) > 0
    assert len(list((tmp_path / "checkpoints").glob("*/server.safetensors"))) == 2
    went_on = train(tmp_path, resume=True)
    assert torch.equal(weights(went_on.model), weights(train(None).model))
    assert not any(name.endswith("client_states.safetensors") for name in files(tmp_path))


def test_what_a_run_kept_by_an_older_version_left_goes_with_the_next_end(tmp_path: Path) -> None:
    """It has two checkpoints with memories: it goes on with them, and then leaves one without."""
    train(tmp_path, keep_client_states=True)
    assert any(name.endswith("client_states.safetensors") for name in files(tmp_path))
    train(tmp_path, rounds=5, resume=True)
    assert not any(name.endswith("client_states.safetensors") for name in files(tmp_path))
