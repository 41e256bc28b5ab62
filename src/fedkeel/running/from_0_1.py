"""What is called otherwise since version 0.1: one table for messages and for docs/from-0.1.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedkeel.common.errors import ConfigError, did_you_mean
from fedkeel.common.older import VALUES

_LONGEST = 40  # characters of a value in a message

# the parameters of train in version 0.1 in their order: how each is written now; … stands for the value
ARGUMENTS = {
    "task": "task=…",
    "federation": "federation=…",
    "algorithm": "method=…",
    "rounds": "rounds=…",
    "cohort": "cohort=…",
    "work": "work=…",
    "seed": "seed=…",
    "engine": "execution=fk.Execution(engine=…)",
    "run_dir": "run_dir=…",
    "resume": "resume=…",
    "sampling": "cohort=fk.Bernoulli(10)",
    "weighting": "aggregation=fk.Aggregation(weighting=…)",
    "reducer": "aggregation=fk.Aggregation(reducer=…)",
    "attack": "attack=…",
    "eval_every": "evaluation=fk.Evaluation(every=…)",
    "evaluate_on": "evaluation=fk.Evaluation(on=…)",
    "checkpoint_every": "execution=fk.Execution(checkpoint_every=…)",
    "keep_memories": "execution=fk.Execution(keep_client_states=…)",
    "threads": "execution=fk.Execution(threads=…)",
    "workers": "execution=fk.Execution(workers=…)",
    "address": "execution=fk.Execution(address=…)",
    "num_cpus": "execution=fk.Execution(num_cpus=…)",
    "num_gpus": "execution=fk.Execution(num_gpus=…)",
    "device": "execution=fk.Execution(device=…)",
    "probes": "probes=…",
    "on_client_error": "failures=fk.Failures(on_client_error=…)",
    "min_clients": "failures=fk.Failures(min_clients=…)",
    "client_seconds": "failures=fk.Failures(client_seconds=…)",
    "max_upload_norm": "failures=fk.Failures(max_upload_norm=…)",
    "faults": "failures=fk.Failures(faults=…)",
    "on_divergence": "failures=fk.Failures(on_divergence=…)",
    "rollback_factor": "failures=fk.Failures(rollback_factor=…)",
    "rollback_tries": "failures=fk.Failures(rollback_tries=…)",
    "callback": "callbacks=…",
    "callbacks": "callbacks=…",
    "progress": "progress=…",
    "experiment": "fk.Experiment.load(path).train(run_dir)",
}


def argument_now(name: str, value: Any) -> str:
    """Say how an argument of version 0.1 is given now, with its value where that is short."""
    now = ARGUMENTS[name]
    value = VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
    shown = repr(value)
    written = now.replace("…", shown) if len(shown) <= _LONGEST else now
    part, _, value_now = now.partition("=")
    if "=" not in now or "." in part:
        return f"{name} is gone: {now}"
    moved = "part of " if value_now.startswith("fk.") else ""
    return f"{name} is {moved}{part} now: {written}"


def refuse_old(given: Mapping[str, Any]) -> None:
    """Refuse keywords that `train` does not take: those of version 0.1 with the new way to say the same."""
    old = [argument_now(name, value) for name, value in given.items() if name in ARGUMENTS]
    if old:
        raise ConfigError("train: " + "; ".join(old))
    known = list(dict.fromkeys(now.partition("=")[0] for now in ARGUMENTS.values() if "=" in now))
    for name in given:
        raise TypeError(f"train has no argument {name!r}; {did_you_mean(name, known)}")
