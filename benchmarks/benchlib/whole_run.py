"""A whole run of fedkeel in a process of its own: `python -m benchlib.whole_run JOB`.

Answers with the seconds from the call of `train` to the end of each round. A long run may be ended early: its
rounds are alike, so its length follows from those that were played.
"""

from __future__ import annotations

import json
import time

import fedkeel as fk
from benchlib.ours import arguments, federation
from benchlib.turns import job
from benchlib.workloads import Workload, build_model, make_data
from fedkeel.running.train import run
from fedkeel.settings.run_settings import RunSettings

_TEST = 64  # samples of the test set, so that evaluating takes no time
_LEAST_ROUNDS = 5


def main() -> None:
    """Train; `enough` seconds after the second round the run is ended."""
    given = job()
    workload = Workload.from_json(given["workload"])
    x, y = make_data(workload)
    data, task = federation(workload, (x, y), (x[:_TEST], y[:_TEST])), fk.Task(build_model(workload))
    ends: list[float] = []

    def see(_: object) -> bool:
        ends.append(time.perf_counter() - started)
        return len(ends) >= _LEAST_ROUNDS and ends[-1] - ends[1] > given["enough"]

    rounds = given["rounds"]
    options = {**arguments(workload), "rounds": rounds, "eval_every": rounds}
    started = time.perf_counter()
    settings = RunSettings(task=task, federation=data, method=fk.FedAvg(), **options)
    result = run(settings, fk.Execution(given["engine"]), callbacks=see)
    total = time.perf_counter() - started
    choice = result.choice
    answer = {"ends": ends, "total": total, "chose": f"{choice.engine} {choice.threads}"}
    print(json.dumps({**answer, "figures": dict(choice.figures)}))


if __name__ == "__main__":
    main()
