"""Writes the pages of docs/ that come from the code: `make docs`.

docs/settings.md, the table of all settings; docs/from-0.1.md, what version 0.1 called otherwise; docs/methods.md, an overview, and docs/methods/, a page for each
method. All of it follows from the code but for the seconds, which are read from docs/methods.json (`make docs
DOCS=--measure` measures them again, on a quiet machine), and the accuracies of docs/comparison.json (`make docs
DOCS=--compare` runs all methods again, half an hour). Rounds of all methods are interleaved and the fastest of several counts, so that other work on the machine
disturbs the ratios little.
"""

from __future__ import annotations

import json
import platform
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import fedkeel as fk
from fedkeel.cli.settings import HEADINGS, cells
from fedkeel.experiments.setting_table import PARTS, find_settings
from fedkeel.explain import Explanation, explain_method

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import method_pages as mp  # noqa: E402
from older_page import older_page  # noqa: E402

MEASURED = HERE / "methods.json"
COHORT, ROUNDS, REPEATS = 10, 4, 3
RATES = ("0.1", "0.01")
AUTHORS = {"FedSpeed": """'FedSpeed(correction="all")'"""}  # compared as their authors run them
SETTING = "Digits, the MLP, 10 of 50 clients with few classes each (Dirichlet 0.1), five local epochs, 60 rounds, five seeds."


def model() -> torch.nn.Module:
    """Return the network that is trained."""
    return fk.models.build("mlp", shape=(64,), classes=10, seed=0)


def train(make: Any, rounds: int, work: fk.Work) -> list[dict[str, Any]]:
    """Train digits on 20 clients and return the rows."""
    federation = fk.data.load("digits").split(fk.IID(), clients=20, seed=0)
    how, evaluation = fk.Execution("serial"), fk.Evaluation(rounds)
    run: dict[str, Any] = {"rounds": rounds, "cohort": COHORT, "execution": how, "evaluation": evaluation}
    return fk.train(fk.Task(model()), federation, make(), work=work, **run).history


def measure() -> dict[str, Any]:
    """Return each method's fastest round over FedAvg's, and on what machine that was measured."""
    fastest: dict[str, float] = {}
    for _ in range(REPEATS):
        for make in fk.METHODS:
            rows = train(make, ROUNDS, fk.Work(epochs=5, batch_size=20, lr=0.05))
            seconds = min(row["seconds"] for row in rows[:-1])  # the last round evaluates too
            fastest[make.__name__] = min(seconds, fastest.get(make.__name__, seconds))
    return {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rounds": REPEATS * (ROUNDS - 1),
        "seconds_over_fedavg": {
            name: round(seconds / fastest["FedAvg"], 2) for name, seconds in fastest.items()
        },
    }


def command(rate: str) -> str:
    """Return the line that compares all methods at a local rate."""
    names = [make.__name__ for make in fk.METHODS]
    methods = " ".join(f"--method {AUTHORS.get(name, name.lower())}" for name in names)
    return (
        f'fedkeel compare {methods} --seeds 5 --split "DirichletByClass(0.1)" --clients 50 --cohort 10 '
        f"--rounds 60 --lr {rate} --engine serial --threads 1"
    )


def compare() -> dict[str, Any]:
    """Run all methods at two local rates and return their accuracies."""
    printed = {}
    for rate in RATES:
        with tempfile.TemporaryDirectory() as out:
            line = [*shlex.split(command(rate)), "--json", "--out", f"{out}/runs"]
            done = subprocess.run(
                [sys.executable, "-m", *line], check=True, stdout=subprocess.PIPE, text=True
            )
            printed[rate] = json.loads(done.stdout)
    return summary(printed)


def summary(printed: dict[str, Any]) -> dict[str, Any]:
    """Return what the pages need of comparisons' JSON, by local rate."""
    rates = {}
    for rate, found in printed.items():
        rows = [row for row in found["methods"] if row["model"] == "x"]
        keys = {"accuracy": "score", "spread": "spread", "seeds": "seeds", "failed": "failed"}
        rates[rate] = {
            row["method"].partition("(")[0]: {name: row[key] for name, key in keys.items()} for row in rows
        }
    return {
        "setting": SETTING,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commands": [command(rate) for rate in printed],
        "rates": rates,
        "verdicts": {rate: found["verdict"]["sentence"] for rate, found in printed.items()},
    }


def traffic(make: Any) -> tuple[float, float]:
    """Return what a client receives and sends in a round, in models."""
    (row,) = train(make, 1, fk.Work(steps=1, batch_size=20, lr=0.05))
    size = COHORT * sum(p.nbytes for p in model().parameters())
    return row["bytes_down"] / size, row["bytes_up"] / size


def pages() -> dict[str, str]:
    """Return docs/settings.md, docs/from-0.1.md, docs/methods.md and the pages of all methods, by path."""
    measured = json.loads(MEASURED.read_text())
    explained = {make.__name__: explain_method(make()) for make in fk.METHODS}
    costs = {
        make.__name__: mp.MethodCost(*traffic(make), measured["seconds_over_fedavg"].get(make.__name__))
        for make in fk.METHODS
    }
    made = {
        f"methods/{name.lower()}.md": mp.method_page(name, explained[name], costs[name]) for name in costs
    }
    made["methods/index.md"] = mp.index_page(list(costs))
    made["methods.md"] = _overview(measured, explained, costs)
    made["settings.md"] = settings_page()
    made["from-0.1.md"] = older_page()
    return made


def settings_page() -> str:
    """Return docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Written by `make docs` from the code; `fedkeel settings` prints the same table, `fedkeel settings work` a part of it.",
        "A key is set with `--set KEY=VALUE`, in an experiment's file (`lr = 0.05` below `[work]`), or with its option. Every",
        "command that takes an experiment has these options; its `--help` shows the most common ones. `KEY=none` clears a key.",
    ]
    for part, title in PARTS.items():
        lines += ["", f"## {title}", "", f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
        for key, kind, default, option, meaning in map(cells, find_settings(part)):
            shown = f"`{option}`" if option.startswith("--") else option
            lines.append(f"| `{key}` | {kind} | `{default}` | {shown} | {meaning} |")
    return "\n".join([*lines, ""])


def _overview(
    measured: dict[str, Any], explained: dict[str, Explanation], costs: dict[str, mp.MethodCost]
) -> str:
    lines = [
        "# Methods",
        "",
        "Written by `make docs` from the code. Each name leads to its page: paper, rule, settings, costs, results.",
        "Traffic counts what one client receives and sends in a round, in models; client state what it keeps between rounds.",
        "Seconds are of one round against FedAvg's: 10 clients × 5 epochs of digits with the MLP, serial engine, the",
        f"fastest of {measured['rounds']} interleaved rounds. Machine: {measured['machine']}, torch "
        f"{measured['torch']}, {measured['date']}.",
        "A method that shows — there was not measured yet: `make docs DOCS=--measure`.",
        "",
        "| method | paper | down | up | client state | gradients per step | seconds / FedAvg |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, cost in costs.items():
        told, paper = explained[name], mp.cited(name, "methods")[0]
        seconds = "—" if cost.seconds is None else f"{cost.seconds:.2f}"
        short = f"[{paper.short}]({paper.link})" if paper.link else paper.short
        lines.append(
            f"| [{name}](methods/{name.lower()}.md) | {short} | {cost.down:.3g} | {cost.up:.3g} | "
            f"{told.client_state.vectors} | {told.gradients_per_step} | {seconds} |"
        )
    lines += ["", *_plug_ins(), "## All methods on one task", ""]
    lines += [
        f'{mp.comparison_setting()} Every method has its default arguments but FedSpeed, which has `correction="all"`, as its '
        f"authors run it{mp.comparison_note()}: nothing was tuned but the local",
        "",
    ]
    lines[-2] += (
        " rate, of which two are shown. The final accuracy, mean ± standard deviation over the seeds:"
    )
    lines += [*mp.comparison_lines(), ""]
    lines += [
        "What such a table can and cannot say: [choosing a method](choosing.md). Each column is one line:",
        "",
    ]
    lines += ["```", "# half an hour", *mp.comparison_commands(), "```", ""]
    return "\n".join(lines)


def _plug_ins() -> list[str]:
    return [
        "On any of them: `relaxed(method, beta, first, aggregate, gamma)` starts each client away from its last end",
        "(client state +1, traffic +0), `sharp(method, rho)` takes sharpness-aware steps (two gradients per step),",
        "`stages((method, until), …, method)` runs methods one after another. `fedkeel explain` prints any combination.",
        "",
        "`until` is a round (a whole number), a fraction of the rounds (a number with a point) or a rule: 1 is one round, 1.0",
        "are all of them. A stage that ends at round 0, or where the one before it ends, is left out, so",
        "`stages((FedDyn, 0), FedAvg)` is FedAvg to the bit, `stages((FedDyn, 1.0), FedAvg)` is FedDyn, and a sweep goes from one to the",
        'other: `fedkeel sweep --over "method=stages((FedDyn, {}), FedAvg)" --values 0,0.25,0.5,0.75,1.0`.',
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
        "| `relaxed(beta=)` | number, `Decayed`, `Adaptive` | constant; shrinking with the round; at most N/C, and lower "
        "where the server's moves are noise. Under `model` a constant β may let x grow without bound once β·C/N > 1: "
        "[relaxed.md](relaxed.md) |",
        "| `Work(clip_on=)` | `gradient`, `direction`, `corrected` | what `clip` bounds: g; gain·g + push − pull·anchor, "
        "without pull·y (FL-Simulator, Acar's FedDyn and SCAFFOLD), so it depends on ‖x‖, moves fixed points and below "
        "pull·‖x‖ drags the model to zero; or gain·g + push + pull·(y − anchor) + decay·y (Acar's FedProx, FedACG, pfl). "
        "Weight decay is outside of all three |",
        "| `Work(momentum=, nesterov=)` | number, flag | local momentum on the whole direction, empty at the start of every "
        "round; for methods without one of their own. `length` in the equations then counts each gradient as often "
        "as the buffer repeats it, so that control variates stay mean gradients |",
        "| `train(cohort=)` | `10`, `fk.Bernoulli(10)` | exactly ten clients, or each with the same probability and ten on average |",
        "| `Aggregation(weighting=)` | `uniform`, `samples` | the mean over clients, or by their number of samples; c and h "
        "are then the weighted means too |",
        "| `SCAFFOLD(option=)` | `II`, `I` | c_i from the walk (contains weight decay and clipping), or the full gradient |",
        "| `SCAFFOLD(by_size=)`, `FedDyn(by_size=)` | flag | for clients of unequal sizes, as Acar et al. run it: c/w_i and "
        "α/w_i with w_i = n_i / mean n; the fixed point is then the optimum over all samples |",
        "| `FedLNAG(carry=)` | `True`, `False` | the buffer travels (2/2), or starts empty each round (1/1) |",
        "| `FedLNAG(damped=)` | `False`, `True` | b ← βb + dir, or βb + (1−β)·dir as FedSAGD's C.5 prints it |",
        "| `FedNova(mu=)` | number | a pull towards x; moves are divided by η‖a_i‖₁ with pull and local momentum |",
        "| `FedDyn(regularize=, compensate=)` | flags | Rethinking's w/o Reg and w/o h |",
        '| `FedDyn(last_models=)` | flag | also evaluates "all", the mean of all clients\' last models, which the authors '
        "plot; client state +1, upload +1 |",
        "| `FedAdam(v0=, bias_correction=)`, also FedYogi, FedAdagrad | number, flag | v starts at τ² (the paper) or at `v0`; "
        "m/(1−β1^t) and v/(1−β2^t) as in Adam (FedAdagrad: m alone) |",
        "| `FedSpeed(correction=)` | `cohort`, `all` | x is corrected by the cohort's ĝ_i (the paper), or by the mean of "
        "all clients' (the authors' code: sharp(FedDyn)) |",
        "| `stages(memory=)` | `auto`, `fresh`, `carry` | what client states do at a change of stage |",
        "",
    ]


if __name__ == "__main__":
    if "--measure" in sys.argv[1:]:
        MEASURED.write_text(json.dumps(measure(), indent=2) + "\n")
    if "--compare" in sys.argv[1:]:
        mp.COMPARISON.write_text(json.dumps(compare(), indent=2, ensure_ascii=False) + "\n")
    written = pages()
    for page, text in written.items():
        (HERE / page).parent.mkdir(exist_ok=True)
        (HERE / page).write_text(text)
    print(
        f"wrote docs/settings.md, docs/from-0.1.md, docs/methods.md and {len(written) - 3} pages in docs/methods"
    )
