"""Evaluates a model client by client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fedkeel.client_table import OWN_TEST, TRAINING, ClientTable
from fedkeel.data.federation import Batch, Federation
from fedkeel.running.round import Row


def evaluate_clients(
    federation: Federation, history: Sequence[Row], evaluate: Callable[[Batch], Mapping[str, float]]
) -> ClientTable:
    """Return how a model does on each client's own test set, or on its training data where it has none."""
    visits = Counter(client for row in history for client in row["cohort"])
    rows = []
    for client, samples in enumerate(federation.sizes.tolist()):
        tested = None if federation.client_tests is None else federation.client_tests.of(client)
        own = tested is not None and len(tested) > 0
        data = federation.pick(tested) if tested is not None and own else federation.samples(client)
        facts = {
            "client": client,
            "samples": samples,
            "visits": visits[client],
            "evaluated_on": OWN_TEST if own else TRAINING,
            "evaluated": len(tested) if tested is not None and own else samples,
        }
        rows.append({**facts, **evaluate(data)})
    return ClientTable(rows)
