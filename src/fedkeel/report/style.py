"""The one style sheet, for light and dark: of charts, alone or on a page, and of pages."""

from __future__ import annotations

from html import escape

CURVE_COLOURS = 8

_CURVES = "".join(f".c{i} {{ --c: var(--c{i}) }} " for i in range(CURVE_COLOURS))
CHART_STYLE = f"""
:root {{ color-scheme: light dark; --paper: #ffffff; --ink: #1c2230; --quiet: #667085; --rule: #e3e7ee;
  --well: #f6f7f9; --c0: #2563c9; --c1: #d2650a; --c2: #12875c; --c3: #8446c8; --c4: #c8324d; --c5: #0f8a9d;
  --c6: #8a6a1f; --c7: #5b6475 }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #12161d; --ink: #e6e9ef; --quiet: #98a2b3;
  --rule: #2a313c; --well: #1a2029; --c0: #6ea8ff; --c1: #ff9f4a; --c2: #4cc998; --c3: #bd8cf5; --c4: #ff7d92;
  --c5: #4fc8da; --c6: #d3b25c; --c7: #a3acbb }} }}
{_CURVES}
svg text {{ fill: var(--quiet); font: 13px system-ui, sans-serif }}
svg.small text {{ font-size: 11px }} svg text.title {{ font-weight: 600 }}
.grid {{ stroke: var(--rule) }} .axis {{ stroke: var(--quiet) }}
.target {{ stroke: var(--quiet); stroke-dasharray: 2 4 }}
.line {{ fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round }}
.dashed {{ stroke-dasharray: 7 4; stroke-width: 1.6 }}
.band {{ fill: var(--c); opacity: .14 }} .disc {{ fill: var(--c) }}
.point {{ fill: var(--c); stroke: var(--c) }} .hollow {{ fill: var(--paper) }}
"""
_PAGE_STYLE = """
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { max-width: 980px; margin: 0 auto; padding: 40px 24px 64px }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em }
h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem }
.quiet { color: var(--quiet); margin: .2rem 0 }
.verdict { font-size: 1.12rem; margin: 1.1rem 0 1.6rem; padding-left: 14px; border-left: 3px solid var(--c0) }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 14px 0 6px; padding: 0; list-style: none }
.legend svg { display: inline-block; width: 26px; height: 10px; margin-right: 7px; vertical-align: middle }
.chart { display: block; max-width: 100%; height: auto } .scroll .chart { max-width: none }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(380px, 1fr)); gap: 18px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: 8px 14px 8px 0; text-align: right; border-bottom: 1px solid var(--rule) }
th, td { white-space: nowrap } td.wide { white-space: normal; min-width: 24em }
th { color: var(--quiet); font-weight: 500; font-size: .88rem } tr.best td { font-weight: 650 }
th:first-child, td:first-child { text-align: left }
.facts { width: auto; margin: 0 0 1.4rem } .facts td { text-align: left; border: 0; padding: 2px 18px 2px 0 }
pre { background: var(--well); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px;
  overflow-x: auto; font: 13.5px/1.5 ui-monospace, monospace; margin: .4rem 0 }
summary { cursor: pointer; color: var(--quiet) }
"""


def html_page(title: str, body: str) -> str:
    """Return a whole HTML page with the style sheet in it; `body` is HTML, `title` is text."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{CHART_STYLE}{_PAGE_STYLE}</style>
</head>
<body><main>
<h1>{escape(title)}</h1>
{body.strip()}
</main></body>
</html>
"""


def html_table(headings: list[str], rows: list[list[str]], best: int | None = None) -> str:
    """Return cells of text as an HTML table; the line `best` is set in bold."""
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    lines = []
    for index, row in enumerate(rows):
        bold = ' class="best"' if index == best else ""
        lines.append(f"<tr{bold}>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
