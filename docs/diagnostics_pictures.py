"""Makes the pictures of docs/diagnostics.md from real runs: python docs/diagnostics_pictures.py (about four minutes)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fedkeel as fk
from fedkeel.common.picture import line_picture
from fedkeel.probes import Cosine, Divergence, Diversity, Drift
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.interaction import FeatureSettings, study
from fedkeel.studies.stability import stability

PICTURES = Path(__file__).parent / "pictures"
COLUMNS = {
    "diversity": "diversity of moves",
    "cosine/previous": "cosine with the client's last move",
    "divergence": "divergence, all clients",
    "drift": "drift",
}


def digits(clients: int) -> tuple[fk.Task, fk.Federation]:
    """Return a small network and unlike clients."""
    federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=clients, seed=0)
    return fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0)), federation


def figure_1() -> dict[str, Any]:
    """Rethinking, Figure 1: full participation of ten unlike clients."""
    task, federation = digits(10)
    work = fk.Work(epochs=5, batch_size=20, lr=0.1)
    methods = [fk.FedAvg(), fk.FedNTD(), fk.MOON(), fk.SCAFFOLD(), fk.FedDyn(0.1)]
    runs = {}
    for method in methods:
        result = fk.train(
            task,
            federation,
            method,
            rounds=30,
            cohort=10,
            work=work,
            execution=fk.Execution("serial", threads=1),
            probes=[Diversity(), Cosine(each_round=True), Divergence(), Drift()],
            evaluation=fk.Evaluation(5),
        )
        runs[type(method).__name__] = result.history
    found = {}
    for column, title in COLUMNS.items():
        series = {
            name: [(row["round"] + 1, row[column]) for row in rows if row[column] is not None]
            for name, rows in runs.items()
        }
        write(column.replace("/", "-"), line_picture(title, series, log=column != "cosine/previous"))
        found[column] = {name: (mean(points[:9]), mean(points[9:])) for name, points in series.items()}
    last = {name: list(enumerate(rows[-1]["cosine/last_round_with"], start=1)) for name, rows in runs.items()}
    write("cosine-last", line_picture("cosine of the last round's move with that of each round", last))
    found["last round with"] = {name: (mean(points[:9]), mean(points[9:])) for name, points in last.items()}
    return found


def mean(points: list[tuple[float, float]]) -> float:
    """Return the mean of a curve."""
    return sum(value for _, value in points) / len(points)


def figure_2() -> dict[str, Any]:
    """FedSAGD, Figure 2: logistic regression on MNIST, one client replaced."""
    if not (Path(os.environ.get("FEDKEEL_DATA", "")) / "mnist.npz").exists():
        return {}
    federation = fk.data.load("mnist").split(fk.DirichletByClient(0.3), clients=100, seed=0).hold_out(10)
    task = fk.Task(fk.models.build("logistic", shape=(1, 28, 28), classes=10, seed=0))
    cases = {
        "FedAvg": (fk.FedAvg(), 0.1),
        "FedProx(1)": (fk.FedProx(1.0), 0.1),
        "FedLNAG": (fk.FedLNAG(0.9), 0.1),
        "FedDyn": (fk.FedDyn(0.1), 0.1),
        "FedSAGD": (fk.FedSAGD(), 0.1),
        "FedSAGD(λ=1, μ=0.1)": (fk.FedSAGD(0.9, 1.0, 0.1), 0.1),
        "FedSAGD, lr 0.001": (fk.FedSAGD(), 0.001),
    }
    undrawn = {"FedProx": fk.FedProx(0.001), "FedDyn": fk.FedDyn(0.01), "SCAFFOLD": fk.SCAFFOLD()}
    found = {}
    for name, (method, lr) in {**cases, **{f"{n}, lr 0.001": (m, 0.001) for n, m in undrawn.items()}}.items():
        work = fk.Work(steps=10, batch_size=50, lr=lr)
        settings = RunSettings(
            task=task, federation=federation, method=method, rounds=60, cohort=5, work=work
        )
        found[name] = stability(settings, pairs=5)
    write(
        "stability",
        line_picture("‖x − x'‖, one client replaced", {n: list(enumerate(found[n].mean)) for n in cases}),
    )
    walks = {name: list(enumerate(found[name].local[-2].distances)) for name in cases}
    write("local", line_picture("largest distance between two walks in round 50, by step", walks))
    first = next(iter(found.values()))
    return {
        "replaced": [one._asdict() for one in first.clients],
        "chosen among": (first.eligible, first.drawn_by, first.drawn_at_least),
        **{
            name: {
                "mean, largest": (one.mean[-1], one.largest[-1]),
                "losses": one.losses[-1]._asdict(),
                "local": {local.round: local.distances[-1] for local in one.local},
                "gap": one.gap,
            }
            for name, one in found.items()
        },
    }


def features() -> dict[str, Any]:
    """Rethinking, Figures 2 and 3, on digits."""
    found = {}
    for name, splitter in (("unlike clients", fk.DirichletByClass(0.1)), ("like clients", fk.IID())):
        federation = fk.data.load("digits").split(splitter, clients=10, seed=0)
        task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
        work = fk.Work(epochs=5, batch_size=20, lr=0.1)
        settings = RunSettings(
            task=task, federation=federation, method=fk.FedAvg(), rounds=20, cohort=10, work=work
        )
        seen = study(settings, features=FeatureSettings(every=4, points=300, gamma_corr=0.9))
        found[name] = [(snapshot.round, snapshot.features) for snapshot in seen]
    write("features", line_picture("features of 12 models, γ_corr = 0.9", found))
    return found


def write(name: str, drawn: str) -> None:
    """Write a picture."""
    (PICTURES / f"diagnostics-{name}.svg").write_text(drawn)


if __name__ == "__main__":
    print(json.dumps({"figure 1": figure_1(), "features": features(), "figure 2": figure_2()}, indent=1))
