"""Writes the pages of docs/ that come from the code: `make docs`.

docs/methods.md: every method's equations (traced from its code), knobs and costs, with bytes and seconds measured
on this machine. Rounds of all methods are interleaved and the fastest of several counts, so that a busy machine
disturbs the ratios little.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

import torch

import fedkeel as fk
from fedkeel.explain import explain_method

HERE = Path(__file__).parent
ROUNDS, REPEATS = 4, 3


def measured() -> dict[str, tuple[float, float, float]]:
    """Return each method's bytes down and up a client (in models) and its fastest round in seconds."""
    federation = fk.data.load("digits").split(fk.IID(), clients=20, seed=0)
    task = fk.Task(fk.models.build("mlp", shape=(64,), classes=10, seed=0))
    work = fk.Work(epochs=5, batch_size=20, lr=0.05)
    size = sum(p.numel() for p in task.model.parameters()) * 4 * 10
    found: dict[str, tuple[float, float, float]] = {}
    for _ in range(REPEATS):
        for make in fk.METHODS:
            result = fk.train(
                task,
                federation,
                make(),
                rounds=ROUNDS,
                cohort=10,
                work=work,
                engine="serial",
                eval_every=ROUNDS,
            )
            row = result.history[0]
            fastest = min(r["seconds"] for r in result.history[:-1])
            best = min(fastest, found.get(make.__name__, (0, 0, float("inf")))[2])
            found[make.__name__] = (row["bytes_down"] / size, row["bytes_up"] / size, best)
    return found


def methods_page() -> str:
    """Return docs/methods.md."""
    costs = measured()
    base = costs["FedAvg"][2]
    lines = [
        "# Methods",
        "",
        "Written by `make docs` from the code: the equations are traced from each method's functions, not typed.",
        "Traffic counts what one client receives and sends in a round, in models; memory what it keeps between rounds.",
        "Seconds are of one round against FedAvg's: 10 clients × 5 epochs of digits with the MLP, serial engine, the",
        f"fastest of {REPEATS * (ROUNDS - 1)} interleaved rounds. Machine: {platform.machine()}, torch {torch.__version__}, "
        f"{datetime.now(UTC):%Y-%m-%d}.",
        "",
        "| method | down | up | memory | gradients per step | seconds / FedAvg |",
        "|---|---|---|---|---|---|",
    ]
    explained = {make.__name__: explain_method(make()) for make in fk.METHODS}
    for name, told in explained.items():
        down, up, seconds = costs[name]
        lines.append(
            f"| [{name}](#{name.lower()}) | {down:.3g} | {up:.3g} | {told.memory.vectors} | "
            f"{told.gradients_per_step} | {seconds / base:.2f} |"
        )
    lines += ["", *_plug_ins()]
    for name, told in explained.items():
        lines += [f"## {name}", "", "```", str(told), "```", ""]
    return "\n".join(lines)


def _plug_ins() -> list[str]:
    return [
        "On any of them: `relaxed(method, beta, first, aggregate, gamma)` starts each client away from its last end",
        "(memory +1, traffic +0), `sharp(method, rho)` takes sharpness-aware steps (two gradients per step),",
        "`stages((method, until), …, method)` runs methods one after another. `fedkeel explain` prints any combination.",
        "",
        "What the papers leave open is an argument, is written to the manifest, and has this effect:",
        "",
        "| argument | choices | effect |",
        "|---|---|---|",
        "| `relaxed(aggregate=)` | `model`, `walk` | `model` (the paper): the server averages end models; `walk` "
        "(FL-Simulator): it averages moves seen from the shifted starts. They differ under partial participation. |",
        "| `relaxed(first=)` | `initial`, `none` | whether a client's first start is shifted away from x⁰ or not at all |",
        "| `relaxed(gamma=)` | `walk`, `end` | with `walk`: FedDyn's γ from the moves, or the mean end model as in "
        "FL-Simulator |",
        "| `relaxed(beta=)` | number, `Decayed`, `Adaptive` | constant; shrinking with the round; never longer than "
        "the client's own walks. Under `model` a constant β may let x grow without bound once β·C/N > 1 |",
        "| `Work(clip_on=)` | `gradient`, `direction` | what `clip` bounds; `direction` includes push and −pull·anchor, so "
        "it depends on ‖x‖ and moves fixed points |",
        "| `train(sampling=)` | `fixed`, `bernoulli` | exactly the cohort, or each client with that probability |",
        "| `train(weighting=)` | `uniform`, `samples` | the mean over clients, or by their number of samples; c and h "
        "are then the weighted means too |",
        "| `SCAFFOLD(option=)` | `II`, `I` | c_i from the walk (contains weight decay and clipping), or the full gradient |",
        "| `FedLNAG(carry=)` | `True`, `False` | the buffer travels (2/2), or starts empty each round (1/1) |",
        "| `FedDyn(regularize=, compensate=)` | flags | Rethinking's w/o Reg and w/o h |",
        "| `stages(memory=)` | `auto`, `fresh`, `carry` | what memories do at a change of stage |",
        "",
    ]


if __name__ == "__main__":
    (HERE / "methods.md").write_text(methods_page())
    print("wrote docs/methods.md")
