"""A document as one HTML file that needs no network: template, style sheet, scripts and data in one.

Its content-security policy names the scripts by their hashes and allows no request at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from fedkeel.common.files import storage_errors, write_durably
from fedkeel.report.page.document import Document

SCRIPTS = ("values.js", "tables.js", "charts.js", "curves.js", "app.js")  # in this order


@cache
def asset(name: str) -> str:
    """Return a file of the page's: template.html, style.css or one of `SCRIPTS`."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def plotly_js() -> str:
    """Return plotly's JavaScript, as its wheel carries it."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  heavy

    return str(get_plotlyjs())


def page_js() -> str:
    """Return the page's own JavaScript; it defines `fedkeelPage` (update, append)."""
    return "\n".join(asset(name) for name in SCRIPTS)


def render(document: Document) -> str:
    """Return the page as one file with everything in it."""
    scripts = [plotly_js(), page_js()]
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; "
        f"style-src 'unsafe-inline'; script-src {' '.join(map(_hash, scripts))}"
    )
    return fill_template(
        document,
        policy=f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
        style=f"<style>{asset('style.css')}</style>",
        scripts=[f"<script>{script}</script>" for script in scripts],
        foot="Written by fedkeel; this file needs no network.",
    )


def fill_template(document: Document, *, policy: str, style: str, scripts: Sequence[str], foot: str) -> str:
    """Return the page with this style sheet and these scripts, which may be links where a server has them."""
    return Template(asset("template.html")).substitute(
        title=escape(document.title),
        policy=policy,
        style=style,
        document=embedded(document.to_json()),
        scripts="\n".join(scripts),
        foot=escape(foot),
    )


def embedded(json: str) -> str:
    """Return JSON that no HTML parser can leave: `</script>` and `<!--` need a `<`.

    >>> embedded('{"title":"</script>"}')
    '{"title":"\\\\u003c/script>"}'
    """
    return json.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def write_page(document: Document, path: Path) -> Path:
    """Write the page, complete or not at all."""
    text = render(document)
    with storage_errors(path):
        write_durably(path, text.encode())
    return path


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
