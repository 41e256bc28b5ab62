"""Rethinking's Figure 1 on a small setting: control variates turn moves away from the client's own past."""

from __future__ import annotations

import pytest

import fedkeel as fk
from fedkeel.probes import Cosine, Diversity


@pytest.mark.slow(8)
def test_fedavg_has_the_highest_diversity_and_cosine_feddyn_and_scaffold_low() -> None:
    """Ten unlike clients, all of them in every round; means over rounds 8 to 14."""
    federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=10, seed=0)
    task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
    found = {}
    for method in (fk.FedAvg(), fk.SCAFFOLD(), fk.FedDyn(0.1)):
        result = fk.train(
            task,
            federation,
            method,
            rounds=14,
            cohort=10,
            work=fk.Work(epochs=5, batch_size=20, lr=0.1),
            execution=fk.Execution("serial"),
            evaluation=fk.Evaluation(14),
            probes=[Diversity(), Cosine()],
        )
        late = result.history[7:]
        found[type(method).__name__] = [
            sum(row[column] for row in late) / len(late) for column in ("diversity", "cosine/previous")
        ]
    for method in ("SCAFFOLD", "FedDyn"):
        assert found[method][0] < found["FedAvg"][0], found
        assert found[method][1] < 0.75 * found["FedAvg"][1], found
