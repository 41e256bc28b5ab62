"""How a run ends: its result, and what its directory says of the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from fedkeel.common.client_table import ClientTable
from fedkeel.common.jsonfiles import json_text
from fedkeel.running.best import BestKeeper
from fedkeel.running.clients import evaluate_clients
from fedkeel.running.panel import MethodMemories
from fedkeel.running.result import BestRound, Result
from fedkeel.running.run_directory import CLIENTS_FILE, RunDirectory
from fedkeel.running.selection import source_of
from fedkeel.running.session import Session

MODEL_FILE, BEST_FILE = "model.safetensors", "best.safetensors"


def result_of(
    session: Session,
    best: BestKeeper | None,
    manifest: Mapping[str, Any],
    path: Path | None,
    stopped_by: str | None,
) -> Result:
    """Return what there is after the last finished round."""
    context, state = session.context, session.state
    settings, engine = context.settings, context.engine
    choice = context.choice._replace(threads=engine.threads)
    if manifest.get("engine") == choice.engine:  # a resumed run keeps to the first choice, and to its reason
        told = manifest["engine_choice"]
        choice = choice._replace(reason=told["reason"], figures=told["microseconds_per_step"])
    return Result(
        method=repr(settings.method),
        history=session.history,
        trained=context.oracle.trained(context.model(state), state.buffers).eval(),
        server=state.server,
        client_states=MethodMemories(session.store),
        manifest=manifest,
        choice=choice,
        run_dir=path,
        best=_best(session, best),
        stopped_by=stopped_by,
        task=settings.task,
        transform=settings.federation.transform,
        labels=settings.federation.origin.get("labels"),
        columns=context.panel.declared(context.oracle.layout),
    )


def write_end(directory: RunDirectory, manifest: dict[str, Any], result: Result) -> None:
    """Write the models of a run that has ended, and into its manifest how it did."""
    best, rounds = result.best, len(result.history)
    apart = best is not None and best.round + 1 != rounds
    manifest["end"] = {
        "rounds": rounds,
        "stopped_by": result.stopped_by,
        "best": None if best is None else best.describe(),
    }
    files = {
        MODEL_FILE: _saved(result.model),
        BEST_FILE: _saved(best.model) if best and apart else None,
        CLIENTS_FILE: None if result.client_table is None else _lines(result.client_table),
    }
    directory.finish(manifest, files)


def _best(session: Session, best: BestKeeper | None) -> BestRound | None:
    kept = None if best is None else best.kept
    if kept is None:
        return None
    model = session.context.oracle.trained(kept.vector, kept.buffers).eval()
    source = source_of(kept.column, session.context.settings)
    return BestRound(kept.round, session.history[kept.round], kept.column, model, source)


def with_clients(result: Result, session: Session) -> Result:
    """Return the result of a run that has ended with its table per client, where clients have test sets."""
    context, state = session.context, session.state
    federation, vector = context.settings.federation, context.model(state)
    if federation.client_tests is None:
        return result
    table = evaluate_clients(
        federation, session.history, lambda data: context.engine.evaluate([vector], state.buffers, data)[0]
    )
    return replace(result, client_table=table)


def _lines(table: ClientTable) -> bytes:
    return "".join(f"{json_text(row)}\n" for row in table.rows).encode()


def _saved(model: nn.Module) -> bytes:
    content: bytes = save({name: t.detach().cpu().clone() for name, t in model.state_dict().items()})
    return content
