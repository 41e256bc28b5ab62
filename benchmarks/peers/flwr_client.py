"""Flower's client: imported by the simulation's workers, who keep model and data between rounds."""

from __future__ import annotations

import json
import os
from functools import cache

import torch
from benchlib.workloads import Data, Workload, build_model, load_data, without_fedkeel
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.nn.functional import cross_entropy

JOB = "FEDKEEL_BENCH_JOB"  # workers inherit the environment
app = ClientApp()


@cache
def held() -> tuple[Workload, nn.Module, Data]:
    """Return what a process keeps: workload, model, data."""
    without_fedkeel()
    given = json.loads(os.environ[JOB])
    workload = Workload.from_json(given["workload"])
    return workload, build_model(workload), load_data(given["data"], workload)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Walk over the client's data."""
    workload, model, data = held()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    size, client = workload.samples, int(context.node_config["partition-id"])
    x, y = (part[client * size : (client + 1) * size] for part in data)
    optimiser = torch.optim.SGD(model.parameters(), lr=workload.lr)
    for _ in range(workload.epochs):
        for places in torch.randperm(size).split(workload.batch):
            optimiser.zero_grad()
            cross_entropy(model(x[places]), y[places]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": size})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
