"""The page of a comparison: one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedkeel.report.charts import legend
from fedkeel.report.curves import accuracy_chart, accuracy_curves, averaged, diagnostic_charts
from fedkeel.report.style import html_page, html_table
from fedkeel.report.tables import HEADINGS, Trial, cells, summarise
from fedkeel.report.verdict import ComparisonVerdict


def make_page(
    title: str,
    trials: Sequence[Trial],
    *,
    verdict: ComparisonVerdict,
    target: float | None,
    commands: Sequence[str],
    settings: str,
) -> str:
    """Return a comparison as one self-contained HTML page.

    `commands` are the lines that make it again, `settings` is what all its runs share, as TOML.
    """
    curves = accuracy_curves(trials)
    seeds = len({trial.seed for trial in trials})
    subtitle = f"{seeds} seed{'s' * (seeds != 1)} per method; line: mean, band: worst to best seed"
    body = f"""<p class="quiet">{escape(subtitle)}</p>
<p class="verdict">{escape(verdict.sentence)}</p>
{legend(curves)}
{accuracy_chart(curves, target)}
<h2>In numbers</h2>
{_table(trials, verdict, target)}
<p class="quiet">{escape(_notes(trials, target))}</p>
{_diagnostics(trials)}<h2>Run it again</h2>
<pre>{escape(chr(10).join(commands))}</pre>
<details><summary>What all runs share</summary><pre>{escape(settings.strip())}</pre></details>"""
    return html_page(title, body)


def _diagnostics(trials: Sequence[Trial]) -> str:
    """Return the curves of what probes have reported, means over seeds; nothing where none were asked for."""
    charts = diagnostic_charts(averaged(trials))
    if len(charts) < 2:  # the global update alone is always there
        return ""
    return f'<h2>Diagnostics</h2>\n<div class="charts">{"".join(c.inline() for c in charts)}</div>\n'


def _table(trials: Sequence[Trial], verdict: ComparisonVerdict, target: float | None) -> str:
    lines = summarise(trials, target)
    winner = [i for i, line in enumerate(lines) if (line.method, line.model) == (verdict.winner, "x")]
    return html_table(headings(target), [list(cells(line)) for line in lines], *winner)


def headings(target: float | None) -> list[str]:
    """Return the table's headings with the target in them."""
    shown = "target" if target is None else f"{100 * target:g} %"
    return [name.replace("target", shown) for name in HEADINGS]


def _notes(trials: Sequence[Trial], target: float | None) -> str:
    notes = ["Accuracy: mean ± standard deviation over seeds, on the test set after the last round."]
    if target is not None:
        notes.append("Rounds and bytes (down and up, all clients): means over the seeds that got there.")
    if any(line.model == "gamma" for line in summarise(trials, target)):
        notes.append("FedDyn: the plain line is the model that is sent, gamma the mean of the end models.")
    return " ".join(notes)
