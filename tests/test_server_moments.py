"""FedAdam, FedYogi and FedAdagrad: where the second moment begins, and the correction of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import play, tiny_net

import fedkeel as fk
from fedkeel.common.errors import ConfigError
from fedkeel.explain import explain

WORK = fk.Work(epochs=1, batch_size=3, lr=0.05)
SERVERS = [fk.FedAdam, fk.FedYogi, fk.FedAdagrad]


@pytest.mark.parametrize("make", SERVERS)
def test_the_second_moment_begins_at_tau_squared_or_where_v0_says(make: Any) -> None:
    x = torch.zeros(3, dtype=torch.float64)
    assert make(tau=0.1).init(x).v.tolist() == pytest.approx([0.01] * 3, rel=1e-15)
    assert make(tau=0.1, v0=0.0).init(x).v.tolist() == [0.0] * 3
    assert make(tau=0.1, v0=2.0).init(x).v.tolist() == [2.0] * 3


@pytest.mark.parametrize("make", SERVERS)
def test_the_server_counts_rounds_only_where_it_corrects(make: Any) -> None:
    problem = tiny_net([5, 7, 4])
    assert make().init(torch.zeros(3)).t is None
    played = play(problem, make(bias_correction=True), rounds=3, cohort=2, work=WORK)
    assert [float(after.server.t) for after in played] == [1.0, 2.0, 3.0]


def test_corrected_fedadam_from_zero_is_adam_of_pytorch() -> None:
    method = fk.FedAdam(0.03, 0.8, 0.95, 1e-2, v0=0.0, bias_correction=True)
    played = play(tiny_net([5, 7, 4]), method, rounds=6, cohort=2, work=WORK)
    x = torch.nn.Parameter(torch.as_tensor(tiny_net([5, 7, 4]).x0).clone().double())
    adam = torch.optim.Adam([x], lr=0.03, betas=(0.8, 0.95), eps=1e-2)
    before = torch.zeros_like(x)
    for after in played:
        x.grad = -(after.server.m - 0.8 * before) / 0.2  # the mean move of this round, downhill
        before = after.server.m
        adam.step()
        np.testing.assert_allclose(after.models["x"], x.detach().numpy(), rtol=1e-11, atol=1e-12)


def test_the_first_corrected_round_moves_each_weight_by_the_rate() -> None:
    """m/(1−β1) is D and v/(1−β2) is D²: an exponent that is off by one would show at once."""
    x = torch.zeros(4, dtype=torch.float32)
    method = fk.FedAdam(0.5, tau=1e-12, v0=0.0, bias_correction=True)
    delta = torch.tensor([1.0, -2.0, 0.5, 3e-3])
    cohort: Any = None
    after = method.aggregate(method.init(x), fk.FedAdam.Up(delta), cohort)
    torch.testing.assert_close(after.x, 0.5 * delta.sign(), rtol=2e-5, atol=0)


def test_a_corrected_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    problem, method = tiny_net([5, 7, 4]), fk.FedAdam(bias_correction=True)
    given: dict[str, Any] = {"cohort": 2, "work": WORK, "engine": "serial"}

    def end(rounds: int, **further: Any) -> Any:
        return flat.train(problem.task, problem.federation, method, rounds=rounds, **given, **further).server

    end(2, run_dir=tmp_path, checkpoint_every=1)
    resumed, whole = end(4, run_dir=tmp_path, checkpoint_every=1, resume=True), end(4)
    assert torch.equal(resumed.x, whole.x)
    assert float(resumed.t) == float(whole.t) == 4


def test_explain_prints_the_correction() -> None:
    told = explain(fk.FedAdam(bias_correction=True))
    assert any("beta1" in line and "t" in line for line in told.equations["server"])
    assert "t ← t + 1" in told.equations["server"]


def test_a_method_is_known_by_the_same_text_as_before_the_options_existed() -> None:
    assert repr(fk.FedAdam()) == "FedAdam(lr=0.1, beta1=0.9, beta2=0.99, tau=0.001)"
    assert repr(fk.FedYogi(v0=0.0)) == "FedYogi(lr=0.1, beta1=0.9, beta2=0.99, tau=0.001, v0=0.0)"


def test_a_negative_start_is_refused() -> None:
    with pytest.raises(ConfigError, match="v0"):
        fk.FedAdam(v0=-1.0)
