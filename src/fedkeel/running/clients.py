"""Evaluates a model client by client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fedkeel.common.client_table import OWN_TEST, TRAINING, ClientTable
from fedkeel.common.columns import SKIPPED
from fedkeel.data.federation import Federation
from fedkeel.data.samples import Rows, Samples
from fedkeel.running.round import Row


def evaluate_clients(
    federation: Federation, history: Sequence[Row], evaluate: Callable[[Samples], Mapping[str, float]]
) -> ClientTable:
    """Return how a model does on each client's own test set, or on its training data where it has none."""
    visits = Counter(client for row in history for client in row["cohort"])
    visits.subtract(failure["client"] for row in history for failure in row.get(SKIPPED, ()))
    rows = []
    for client in range(len(federation)):
        trained_on = federation.rows(client)
        own = trained_on[:0] if federation.client_tests is None else federation.client_tests.of(client)
        data = Rows(federation.pool, own if len(own) else trained_on)
        facts = {
            "client": client,
            "samples": len(trained_on),
            "visits": visits[client],
            "evaluated_on": OWN_TEST if len(own) else TRAINING,
            "evaluated": data.size,
        }
        rows.append({**facts, **evaluate(data)})
    return ClientTable(rows)
