"""The page of a comparison: one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from types import MappingProxyType

from fedkeel.client_table import ClientRow
from fedkeel.columns import is_diagnostic
from fedkeel.report.charts import legend
from fedkeel.report.clients import clients_section
from fedkeel.report.curves import accuracy_chart, accuracy_curves, averaged, diagnostic_charts
from fedkeel.report.measures import FINAL, parse_measure
from fedkeel.report.style import html_page, html_table
from fedkeel.report.table_columns import COLUMNS, COST_COLUMNS
from fedkeel.report.tables import Trial, by_method, cells, headings, models_of, summarise, why_diverged
from fedkeel.report.verdict import ComparisonVerdict


def make_page(
    title: str,
    trials: Sequence[Trial],
    *,
    verdict: ComparisonVerdict,
    target: float | None,
    commands: Sequence[str],
    settings: str,
    columns: Sequence[str] = COLUMNS,
    subject: str = "method",
    clients: Mapping[str, Sequence[ClientRow]] = MappingProxyType({}),
) -> str:
    """Return a comparison as one self-contained HTML page.

    `commands` are the lines that make it again, `settings` is what all its runs share, as TOML; `columns` are
    the columns of the table, where the accuracy is by the verdict's measure, and `subject` stands above the
    first. `clients` has, for each method, the rows of its runs client by client, where there are any.
    """
    measure = parse_measure(verdict.measure)
    curves = accuracy_curves(trials, measure.metric)
    marked = None if is_diagnostic(measure.metric) else target
    seeds = len({trial.seed for trial in trials})
    subtitle = f"{seeds} seed{'s' * (seeds != 1)} each; line: mean, band: worst to best seed"
    body = f"""<p class="quiet">{escape(subtitle)}</p>
<p class="verdict">{escape(verdict.sentence)}</p>
{legend(curves)}
{accuracy_chart(curves, marked, measure.metric)}
<h2>In numbers</h2>
{_table(trials, verdict, target, columns, subject)}
<p class="quiet">{escape(_notes(trials, verdict, target, columns))}</p>
{_diagnostics(trials)}{clients_section(clients)}<h2>Run it again</h2>
<pre>{escape(chr(10).join(commands))}</pre>
<details><summary>What all runs share</summary><pre>{escape(settings.strip())}</pre></details>"""
    return html_page(title, body)


def _diagnostics(trials: Sequence[Trial]) -> str:
    """Return the curves of what probes have reported, means over seeds; nothing where none were asked for."""
    charts = diagnostic_charts(averaged(trials))
    if len(charts) < 2:  # the global update alone is always there
        return ""
    return f'<h2>Diagnostics</h2>\n<div class="charts">{"".join(c.inline() for c in charts)}</div>\n'


def _table(
    trials: Sequence[Trial],
    verdict: ComparisonVerdict,
    target: float | None,
    columns: Sequence[str],
    subject: str,
) -> str:
    measure = parse_measure(verdict.measure)
    lines = summarise(trials, target, measure, columns)
    winner = [i for i, line in enumerate(lines) if (line.method, line.model) == (verdict.winner, "x")]
    texts = [list(cells(line, columns)) for line in lines]
    return html_table([subject, *headings(target, measure, columns)[1:]], texts, *winner)


def _notes(
    trials: Sequence[Trial], verdict: ComparisonVerdict, target: float | None, columns: Sequence[str]
) -> str:
    measure = parse_measure(verdict.measure)
    what = "after the last round" if measure == FINAL else f"({measure.label})"
    where = "" if is_diagnostic(measure.metric) else ", on the test set"
    notes = [f"Mean ± standard deviation over seeds. Ranked by {measure.metric}{where} {what}."]
    if any(why_diverged(trial) for trial in trials):
        notes.append(
            "Means are of the seeds that did not diverge; a method with a diverged seed is not ranked."
        )
    if target is not None and any(name in COST_COLUMNS for name in columns):
        notes.append(
            "Costs to the target (bytes: down and up, all clients): means over the seeds that reached it; "
            "with a plus sign what runs took that ended without it."
        )
    if any(model == "gamma" for group in by_method(trials).values() for model in models_of(group)):
        notes.append("FedDyn: the plain line is the model that is sent, gamma the mean of the end models.")
    return " ".join(notes)
