"""A page for each method: its paper, rule, settings and costs, and results in our experiments. Called by generate.py.

What it did here comes from docs/comparison.json (`python docs/generate.py --compare` makes it anew) and from
docs/results.toml, which repeats figures of other pages beside the page that explains them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedkeel.common.references import Paper, cited
from fedkeel.explain import Explanation

HERE = Path(__file__).parent
COMPARISON, RESULTS = HERE / "comparison.json", HERE / "results.toml"
NOT_YET = "Not yet measured here."


class MethodCost(NamedTuple):
    """What a round of a method costs, in models and in FedAvg's seconds."""

    down: float
    up: float
    seconds: float | None


def paper_line(paper: Paper) -> str:
    """Return a paper in Markdown."""
    who = ", ".join(paper.authors).replace(", others", " and others") or "Anonymous authors"
    title = f"[{paper.title}]({paper.link})" if paper.link else f"*{paper.title}*"
    where = paper.booktitle or paper.journal or (f"arXiv:{paper.arxiv}" if paper.arxiv else paper.note)
    return f"{who}: {title}. {', '.join(part for part in (where, str(paper.year or '')) if part)}."


def method_page(name: str, told: Explanation, cost: MethodCost) -> str:
    """Return docs/methods/NAME.md."""
    papers = cited(name, "methods")
    idea, _, rest = told.about.partition("\n")
    equations = str(told).split(told.about, 1)[1].strip().split("\n\n")
    lines = [f"# {name}", "", _sentence(idea.partition(": ")[2] or idea), ""]
    lines += ["Paper" + "s" * (len(papers) > 1) + ":", "", *(f"- {paper_line(one)}" for one in papers), ""]
    lines += ["## The rule", "", "Traced from the code (`fedkeel explain` prints it for any arguments):", ""]
    lines += ["```", equations[0], "```", "", f"{_one_line(equations[1])}.", ""]
    lines += [*_notes(rest), "", "## Settings", "", *_settings(told), ""]
    lines += [
        "## What it costs",
        "",
        *_costs(told, cost),
        "",
        "## Results in our experiments",
        "",
        *_results(name),
        "",
    ]
    lines += [
        "## Use it",
        "",
        "```python",
        "import fedkeel as fk",
        "",
        f"method = fk.{_call(name, told)}",
        "```",
        "",
    ]
    lines += ["```", f"fedkeel explain {name.lower()}", f"fedkeel cite {name.lower()}", "```", ""]
    return "\n".join(lines)


def index_page(names: list[str]) -> str:
    """Return docs/methods/index.md, the list of the pages."""
    about = "A page for each method: its paper, its rule, its settings, what it costs, and results in our experiments."
    entries = [f"{name.lower()}" for name in names]
    return "\n".join(
        ["# A page for each method", "", about, "", "```{toctree}", ":maxdepth: 1", "", *entries, "```", ""]
    )


def comparison_lines() -> list[str]:
    """Return the table of all methods on one task, for docs/methods.md and docs/choosing.md."""
    made = _comparison()
    if made is None:
        return [NOT_YET]
    rates = list(made["rates"])
    lines = [
        "| method | " + " | ".join(f"local rate {rate}" for rate in rates) + " |",
        "|---|" + "---|" * len(rates),
    ]
    best = {
        name: max((made["rates"][rate][name]["accuracy"] or 0) for rate in rates)
        for name in made["rates"][rates[0]]
    }
    for name in sorted(best, key=lambda one: -best[one]):
        cells = " | ".join(_score(made["rates"][rate][name]) for rate in rates)
        lines.append(f"| [{name}](methods/{name.lower()}.md) | {cells} |")
    return lines


def comparison_setting() -> str:
    """Return what was run for the table, in a sentence."""
    made = _comparison()
    return "" if made is None else f"{made['setting']} {made['date']}."


def comparison_note() -> str:
    """Return what is to be said of a row that was not measured with the others, in brackets."""
    made = _comparison()
    note = "" if made is None else made.get("note", "")
    return f" ({note})" if note else ""


def comparison_commands() -> list[str]:
    """Return the command lines of the table."""
    made = _comparison()
    return [] if made is None else made["commands"]


def _comparison() -> dict[str, Any] | None:
    return json.loads(COMPARISON.read_text()) if COMPARISON.exists() else None


def _score(row: dict[str, Any]) -> str:
    failed = f" ({row['failed']} of {row['seeds']} diverged)" if row["failed"] else ""
    return (
        f"—{failed}"
        if row["accuracy"] is None
        else f"{100 * row['accuracy']:.1f} ± {100 * row['spread']:.1f} %{failed}"
    )


def _results(name: str) -> list[str]:
    made, lines = _comparison(), []
    if made is not None and name in next(iter(made["rates"].values())):
        cells = "; ".join(f"local rate {rate}: {_score(rows[name])}" for rate, rows in made["rates"].items())
        fedavg = "; ".join(f"{rate}: {_score(rows['FedAvg'])}" for rate, rows in made["rates"].items())
        beside = "" if name == "FedAvg" else f" FedAvg: {fedavg}."
        lines += [
            f"- {_arguments(name)}, not tuned ([table](../methods.md#all-methods-on-one-task)): {cells}.{beside}"
        ]
    for result in tomllib.loads(RESULTS.read_text())["result"]:
        if name in result["methods"]:
            lines.append(
                f"- {result['setting']} ([{result['page']}](../{result['page']})): {result['methods'][name]}."
            )
    return lines or [NOT_YET]


def _arguments(name: str) -> str:
    """Say with what arguments a method was compared."""
    if name == "FedSpeed":
        return f'With `correction="all"`, as its authors run it{comparison_note()}'
    return "All methods with their default arguments"


def _notes(rest: str) -> Iterator[str]:
    """Yield the docstring's own words without the papers, which stand above."""
    for line in rest.strip().splitlines():
        if line.startswith(("Reference:", "References:")):
            return
        yield line


def _settings(told: Explanation) -> list[str]:
    if not told.settings:
        return ["None."]
    rows = [f"| `{setting.name}` | `{setting.value}` | {setting.allowed} |" for setting in told.settings]
    return ["| setting | default | allowed |", "|---|---|---|", *rows]


def _costs(told: Explanation, cost: MethodCost) -> list[str]:
    seconds = "not yet measured" if cost.seconds is None else f"{cost.seconds:.2f}"
    kept = (
        f": {', '.join(f'`{name}`' for name in told.client_state.names)}" if told.client_state.names else ""
    )
    more = f", and forward passes of {told.other_models} more" if told.other_models else ""
    whole = ", and one over all of its data per round" if told.full_gradient else ""
    l2 = [f"| effective L2 term | {told.effective_l2} |"] if told.effective_l2 else []
    return [
        "| cost | |",
        "|---|---|",
        f"| a client receives, in models | {cost.down:.3g} |",
        f"| a client sends, in models | {cost.up:.3g} |",
        f"| a client keeps, in models | {told.client_state.vectors}{kept} |",
        f"| gradients per local step | {told.gradients_per_step}{more}{whole} |",
        f"| seconds per round / FedAvg's | {seconds} ([how](../methods.md)) |",
        *l2,
    ]


def _call(name: str, told: Explanation) -> str:
    arguments = ", ".join(
        f"{setting.name}={setting.value}" for setting in told.settings if setting.owner == name
    )
    return f"{name}({arguments})"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
