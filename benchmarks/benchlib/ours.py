"""fedkeel as its users run it: `fedkeel.train`, with an engine."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import torch

import fedkeel as fk
from benchlib.turns import Enough, Turns, job
from benchlib.workloads import Data, Workload, build_model, load_data
from fedkeel.running.session import Session, open_session
from fedkeel.running.train import run
from fedkeel.settings.options import Execution
from fedkeel.settings.run_settings import RunSettings

_ENDLESS = 1_000_000


def federation(workload: Workload, data: Data, test: Data | None = None) -> fk.Federation:
    """Return the workload's federation: clients own neighbouring samples."""
    count = workload.clients * workload.samples
    index, offsets = torch.arange(count), torch.arange(0, count + 1, workload.samples)
    parts = {"index": index, "offsets": offsets, "classes": workload.classes}
    return fk.Federation((data[0], data[1]), **parts, test=test)


def arguments(workload: Workload) -> dict[str, Any]:
    """Return the settings of a run besides the task, the data and the method; no round is evaluated."""
    work = fk.Work(epochs=workload.epochs, batch_size=workload.batch, lr=workload.lr)
    return {"rounds": _ENDLESS, "cohort": workload.cohort, "work": work, "eval_every": _ENDLESS}


def session(workload: Workload, data: Data, method: fk.Algorithm | None = None, **options: Any) -> Session:
    """Return a session whose rounds the caller plays one by one."""
    task = fk.Task(build_model(workload))
    whole = {**arguments(workload), **options}
    return opened(task, federation(workload, data), method or fk.FedAvg(), **whole)


def opened(task: fk.Task, data: fk.Federation, method: fk.Algorithm, **options: Any) -> Session:
    """Open a session with the fields of `RunSettings` and `Execution`."""
    how = {name: options.pop(name) for name in Execution.model_fields if name in options}
    settings = RunSettings(task=task, federation=data, method=method, **options)
    return open_session(settings, Execution(**how))


class Heard(logging.Handler):
    """Keeps what `auto` says of its choice."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns

    def emit(self, record: logging.LogRecord) -> None:
        """Note a message about the engine."""
        text = record.getMessage()
        if text.startswith("engine:"):
            self.turns.facts["chose"] = text.removeprefix("engine: ")


def main() -> None:
    """Take turns."""
    given = job()
    workload = Workload.from_json(given["workload"])
    data = federation(workload, load_data(given["data"], workload))
    turns = Turns(workload.warm, torch=torch.__version__, fedkeel=fk.__version__)
    logger = logging.getLogger("fedkeel")
    logger.addHandler(Heard(turns))
    logger.setLevel(logging.INFO)
    task = fk.Task(build_model(workload))
    with suppress(Enough):
        run(
            RunSettings(task=task, federation=data, method=fk.FedAvg(), **arguments(workload)),
            Execution(**given["options"]),
            callbacks=lambda _: turns.round_done(),
        )


if __name__ == "__main__":
    main()
