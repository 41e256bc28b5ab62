"""`train` with the flat keywords of `RunSettings` and `Execution`, for tests of many settings."""

from __future__ import annotations

from typing import Any

import fedkeel as fk

GROUPS = {
    "aggregation": (fk.Aggregation, {name: name for name in fk.Aggregation.model_fields}),
    "evaluation": (fk.Evaluation, {"eval_every": "every", "evaluate_on": "on"}),
    "failures": (fk.Failures, {name: name for name in fk.Failures.model_fields}),
    "execution": (fk.Execution, {name: name for name in fk.Execution.model_fields}),
}


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Return `train`'s keywords for flat ones; those that are grouped already stay."""
    rest, made = dict(options), dict[str, Any]()
    for name, (kind, fields) in GROUPS.items():
        own = {field: rest.pop(flat) for flat, field in fields.items() if flat in rest}
        if own:
            made[name] = kind(**own)
    if rest.pop("sampling", "fixed") == "bernoulli":
        made["cohort"] = fk.Bernoulli(rest.pop("cohort"))
    assert not made.keys() & rest.keys()
    return {**rest, **made}


def train(task: Any, federation: Any, method: Any, **options: Any) -> fk.Result:
    """Train with flat keywords."""
    return fk.train(task, federation, method, **grouped(options))
