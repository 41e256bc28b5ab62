"""FedSpeed as its authors run it: x is corrected by the mean correction of all clients."""

from __future__ import annotations

import numpy as np
import pytest
from engines.stacked_runs import RAGGED, both
from problems import play, tiny_net

import fedkeel as fk
from fedkeel.common.errors import ConfigError
from fedkeel.explain import explain

SIZES = [3, 8, 5, 11, 4]
WORK = fk.Work(epochs=2, batch_size=3, lr=0.05, lr_decay=0.9, weight_decay=0.01)
ALL = fk.FedSpeed(0.4, 0.1, correction="all")


@pytest.mark.parametrize("cohort", [2, 5])
def test_fedspeed_with_all_corrections_is_sharp_feddyn(cohort: int) -> None:
    pair = (ALL, fk.sharp(fk.FedDyn(0.4), 0.1))
    speed, dyn = (play(tiny_net(SIZES), one, rounds=6, cohort=cohort, work=WORK) for one in pair)
    for ours, theirs in zip(speed, dyn, strict=True):
        np.testing.assert_allclose(ours.models["x"], theirs.models["x"], rtol=1e-12, atol=1e-14)


def test_the_two_corrections_agree_under_full_participation_only() -> None:
    for cohort, same in ((5, True), (2, False)):
        pair = (ALL, fk.FedSpeed(0.4, 0.1))
        ours, theirs = (
            play(tiny_net(SIZES), one, rounds=4, cohort=cohort, work=WORK)[-1].models["x"] for one in pair
        )
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-11) == same


def test_the_servers_h_is_the_mean_of_all_clients_corrections() -> None:
    for after in play(tiny_net(SIZES), ALL, rounds=5, cohort=2, work=WORK):
        total = sum(memory.g_i.numpy() for memory in after.memories.values())
        np.testing.assert_allclose(total / len(SIZES), after.server.h.numpy(), rtol=1e-12, atol=1e-14)


def test_the_stacked_engine_agrees() -> None:
    assert both(RAGGED.task, RAGGED.federation, ALL, cohort=2, rounds=3) < 1e-10


def test_explain_prints_the_mean_correction() -> None:
    assert "h ← h − alpha·share·mean(end − x)" in explain(ALL).equations["server"]


def test_the_default_is_the_papers_and_known_by_the_same_text() -> None:
    assert repr(fk.FedSpeed()) == "FedSpeed(alpha=0.1, rho=0.1, blend=1.0)"
    with pytest.raises(ConfigError, match="correction"):
        fk.FedSpeed(correction="none")  # type: ignore[arg-type]
