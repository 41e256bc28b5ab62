"""The page of a comparison: one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedkeel.report.chart import Series, chart, series_of
from fedkeel.report.lines import averaged, diagnostics
from fedkeel.report.tables import HEADINGS, Trial, cells, summarise
from fedkeel.report.verdict import ComparisonVerdict

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2230; --quiet: #667085; --rule: #e3e7ee;
  --well: #f6f7f9; --c0: #2563c9; --c1: #d2650a; --c2: #12875c; --c3: #8446c8; --c4: #c8324d; --c5: #0f8a9d;
  --c6: #8a6a1f; --c7: #5b6475; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161d; --ink: #e6e9ef; --quiet: #98a2b3;
  --rule: #2a313c; --well: #1a2029; --c0: #6ea8ff; --c1: #ff9f4a; --c2: #4cc998; --c3: #bd8cf5; --c4: #ff7d92;
  --c5: #4fc8da; --c6: #d3b25c; --c7: #a3acbb; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { max-width: 980px; margin: 0 auto; padding: 40px 24px 64px }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em }
h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
.quiet { color: var(--quiet); margin: .2rem 0 }
.verdict { font-size: 1.12rem; margin: 1.1rem 0 1.6rem; padding-left: 14px; border-left: 3px solid var(--c0) }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 6px; padding: 0; list-style: none }
.legend svg { width: 26px; height: 10px; margin-right: 7px; vertical-align: middle }
svg { display: block; width: 100%; height: auto }
.legend svg { display: inline-block }
svg text { fill: var(--quiet); font-size: 13px; font-family: inherit }
.grid { stroke: var(--rule) } .axis { stroke: var(--quiet) }
.target { stroke: var(--quiet); stroke-dasharray: 2 4 }
.line { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round }
.dashed { stroke-dasharray: 7 4; stroke-width: 1.6 } .band { fill: var(--c); opacity: .14 }
.scroll { overflow-x: auto }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(380px, 1fr)); gap: 18px }
.charts text { font-size: 11px }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: 8px 14px 8px 0; text-align: right; border-bottom: 1px solid var(--rule) }
th, td { white-space: nowrap }
th { color: var(--quiet); font-weight: 500; font-size: .88rem } tr.best td { font-weight: 650 }
th:first-child, td:first-child { text-align: left }
pre { background: var(--well); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px;
  overflow-x: auto; font: 13.5px/1.5 ui-monospace, monospace; margin: .4rem 0 }
summary { cursor: pointer; color: var(--quiet) }
"""


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
    curves = series_of(trials)
    seeds = len({trial.seed for trial in trials})
    subtitle = f"{seeds} seed{'s' * (seeds != 1)} per method; line: mean, band: worst to best seed"
    colours = "\n".join(f".c{i} {{ --c: var(--c{i}) }}" for i in range(8))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{_STYLE}{colours}
</style>
</head>
<body><main>
<h1>{escape(title)}</h1>
<p class="quiet">{escape(subtitle)}</p>
<p class="verdict">{escape(verdict.sentence)}</p>
{_legend(curves)}
{chart(curves, target)}
<h2>In numbers</h2>
<div class="scroll">{_table(trials, verdict, target)}</div>
<p class="quiet">{escape(_notes(trials, target))}</p>
{_diagnostics(trials)}<h2>Run it again</h2>
<pre>{escape(chr(10).join(commands))}</pre>
<details><summary>What all runs share</summary><pre>{escape(settings.strip())}</pre></details>
</main></body>
</html>
"""


def _diagnostics(trials: Sequence[Trial]) -> str:
    """Return the curves of what probes have reported, means over seeds; nothing where none were asked for."""
    charts = diagnostics(averaged(trials))
    if len(charts) < 2:  # the global update alone is always there
        return ""
    return f'<h2>Diagnostics</h2>\n<div class="charts">{"".join(charts)}</div>\n'


def _legend(curves: Sequence[Series]) -> str:
    keys = [
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="line c{one.colour}'
        f'{"" if one.model == "x" else " dashed"}" d="M1 5H25"/></svg>{escape(one.label)}</li>'
        for one in curves
    ]
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _table(trials: Sequence[Trial], verdict: ComparisonVerdict, target: float | None) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in headings(target))
    body = []
    for line in summarise(trials, target):
        best = ' class="best"' if (line.method, line.model) == (verdict.winner, "x") else ""
        body.append(f"<tr{best}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(line)) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


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
