"""Flower: FedAvg in its simulation on Ray, one core a client, the data held by every worker."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from importlib.metadata import version

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # stay on the loopback interface
}

import ray
import torch
from benchlib.turns import Enough, Turns
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers.flwr_client import JOB, app, held

_ENDLESS = 1_000_000
server = ServerApp()


class Strict(FedAvg):
    """FedAvg that does not go on when clients fail: such rounds would be fast."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the replies, all of them."""
        given = list(replies)
        failed = [reply.error for reply in given if reply.has_error()]
        if failed or len(given) != held()[0].cohort:
            print(f"{len(given)} replies, {len(failed)} failed: {failed[:1]}", file=sys.stderr)
            os._exit(1)
        return super().aggregate_train(server_round, given)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Play rounds as they are asked for; Flower calls `evaluate_fn` after each."""
    workload, model, _ = held()
    turns = Turns(workload.warm, torch=torch.__version__, flwr=version("flwr"), ray=version("ray"))
    share = workload.cohort / workload.clients

    def after_round(number: int, arrays: ArrayRecord) -> None:
        if number > 0:
            turns.round_done()

    strategy = Strict(fraction_train=share, fraction_evaluate=0.0, min_train_nodes=workload.cohort)
    try:
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=_ENDLESS, evaluate_fn=after_round)
    except Enough:
        ray.shutdown()
        os._exit(0)  # the simulation itself would wait for its thread's failure


def main() -> None:
    """Run the simulation."""
    os.environ[JOB] = sys.argv[1]
    workload, _, _ = held()
    workers = json.loads(sys.argv[1])["options"].get("workers") or os.cpu_count()
    config = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"include_dashboard": False, "num_cpus": workers, "log_to_driver": False},
    }
    run_simulation(server, app, num_supernodes=workload.clients, backend_config=config)


if __name__ == "__main__":
    main()
