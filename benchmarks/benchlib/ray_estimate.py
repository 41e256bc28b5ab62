"""What a round on a Ray cluster takes, on paper: from measured overheads, for clusters nobody measured here.

A round begins when the model has reached the nodes. Then three things go on side by side, and the longest
bounds the round: the clients' steps over all slots; the driver, which hands out tasks, takes their results
and copies what it sends and gets; and the driver's link.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

MEGABYTE = 2**20
NETWORK = 1.25e9  # bytes per second of a link of 10 Gbit/s
CLUSTERS = (10, 100, 1000)  # nodes, CORES each
CORES = 16
CHUNK = 8  # uploads that are summed up together
_TOGETHER = 0.01  # seconds: clients that take less go out several at once
_LARGE = 0.125  # MB of an upload that is summed up on the nodes


class Overheads(NamedTuple):
    """Seconds of an empty task that is waited for, of one among many, of a megabyte there and back."""

    latency: float
    task: float
    megabyte: float


class Setting(NamedTuple):
    """Clients per round, steps of each, seconds per step, MB of the model and of a client's memory."""

    name: str
    cohort: int
    steps: int
    step: float
    megabytes: float
    memory: float = 0.0


def estimate(
    setting: Setting, costs: Overheads, *, slots: int, nodes: int = 1, cores: int | None = None
) -> dict[str, Any]:
    """Return the seconds of a round, what they are made of and what bounds them.

    With one node nothing goes over a network. `cores` are those that driver and clients share, where all
    nodes are on one machine.
    """
    client = setting.steps * setting.step
    walking = math.ceil(setting.cohort / slots) * client
    sums = math.ceil(setting.cohort / CHUNK)
    copied = (1 + sums) * setting.megabytes + 2 * setting.cohort * setting.memory
    driver = number_of_tasks(setting, slots) * costs.task + copied * costs.megabyte / 2
    if cores is not None:
        walking = max(walking, (setting.cohort * client + driver) / cores)
    begins = costs.latency
    link = 0.0
    if nodes > 1:
        second = NETWORK / MEGABYTE  # megabytes of the link in a second
        begins += (1 + math.log2(nodes)) * setting.megabytes / second  # nodes pass the model on
        link = (copied - setting.megabytes) / second
    parts = {"clients": walking, "driver": driver, "link": link}
    bound = max(parts, key=lambda name: parts[name])
    memory = 2 * setting.cohort * setting.memory * MEGABYTE  # those sent, and those that came back
    return {**parts, "seconds": begins + parts[bound], "bound": bound, "driver_bytes": memory}


def number_of_tasks(setting: Setting, slots: int) -> int:
    """Return into how many tasks a round is cut: whole chunks, single clients for each slot's last, sums."""
    client = setting.steps * setting.step
    chunks = math.ceil(setting.cohort / CHUNK)
    whole = max(0, chunks - slots)
    singles = setting.cohort - CHUNK * whole
    sums = chunks - whole if setting.megabytes > _LARGE else 0
    return math.ceil(whole / _at_once(CHUNK * client)) + math.ceil(singles / _at_once(client)) + sums


def _at_once(seconds: float) -> int:
    return max(1, math.ceil(_TOGETHER / seconds))


def extrapolated(costs: Overheads, steps: dict[str, float]) -> list[dict[str, Any]]:
    """Return the estimate for larger clusters, a row per setting; `steps` are measured seconds per step."""
    logistic, cnn = steps["logistic50"], steps["cnn"]
    settings = [
        Setting("logistic (0.03 MB), 50 clients per round", 50, 40, logistic, 0.03),
        Setting("logistic, 10,000 of 10⁶ clients", 10_000, 40, logistic, 0.03),
        Setting("logistic, 10,000 of 10⁶ clients, SCAFFOLD", 10_000, 40, logistic, 0.06, 0.03),
        Setting("cnn (3 MB), 100 clients per round", 100, 10, cnn, 3.04),
        Setting("cnn, 10,000 of 10⁶ clients", 10_000, 10, cnn, 3.04),
        Setting("cnn, 10,000 of 10⁶ clients, SCAFFOLD", 10_000, 10, cnn, 6.08, 3.04),
        Setting("44 MB, 1,000 clients × 50 steps of 0.5 s", 1_000, 50, 0.5, 44.0),
    ]
    return [
        {
            "name": one.name,
            "clusters": [estimate(one, costs, slots=nodes * CORES, nodes=nodes) for nodes in CLUSTERS],
        }
        for one in settings
    ]
