"""Makes the pictures of docs/diagnostics.md from real runs: python docs/diagnostics_pictures.py (about two minutes)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fedkeel as fk
from fedkeel.probes import Cosine, Divergence, Diversity, Drift
from fedkeel.report.charts import Drawing, line_chart
from fedkeel.studies.interaction import study
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
            engine="serial",
            threads=1,
            probes=[Diversity(), Cosine(), Divergence(), Drift()],
            eval_every=5,
        )
        runs[type(method).__name__] = result.history
    found = {}
    for column, title in COLUMNS.items():
        series = {
            name: [(row["round"] + 1, row[column]) for row in rows if row[column] is not None]
            for name, rows in runs.items()
        }
        write(column.replace("/", "-"), line_chart(title, series, log=column != "cosine/previous"))
        found[column] = {name: (mean(points[:9]), mean(points[9:])) for name, points in series.items()}
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
        found[name] = stability(task, federation, method, rounds=60, cohort=5, work=work, pairs=5)
    write(
        "stability",
        line_chart("‖x − x'‖, one client replaced", {n: list(enumerate(found[n].mean)) for n in cases}),
    )
    return {name: (one.mean[-1], one.largest[-1], one.local[-1], one.gap) for name, one in found.items()}


def features() -> dict[str, Any]:
    """Rethinking, Figures 2 and 3, on digits."""
    found = {}
    for name, splitter in (("unlike clients", fk.DirichletByClass(0.1)), ("like clients", fk.IID())):
        federation = fk.data.load("digits").split(splitter, clients=10, seed=0)
        task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
        work = fk.Work(epochs=5, batch_size=20, lr=0.1)
        seen = study(
            task,
            federation,
            fk.FedAvg(),
            rounds=20,
            cohort=10,
            work=work,
            every=4,
            points=300,
            gamma_corr=0.9,
        )
        found[name] = [(moment.round, moment.features) for moment in seen]
    write("features", line_chart("features of 12 models, γ_corr = 0.9", found))
    return found


def write(name: str, drawn: Drawing) -> None:
    """Write a picture."""
    (PICTURES / f"diagnostics-{name}.svg").write_text(drawn.file())


if __name__ == "__main__":
    print(json.dumps({"figure 1": figure_1(), "features": features(), "figure 2": figure_2()}, indent=1))
