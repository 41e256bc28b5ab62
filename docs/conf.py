"""How Sphinx builds the site: `make site`. Markdown by MyST, no mathematics or fonts from elsewhere.

Pages that come from code or from the root of the repository are written by `site_pages.py` before the build.
Pages of docs/ that are in no list of index.md are added to its last one, so that a new page is never lost.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from not_run import with_reasons  # noqa: E402
from site_pages import PROJECT_PAGES, write_pages  # noqa: E402

from fedkeel.common.version import __version__  # noqa: E402
from fedkeel.papers.reproduce.page import kept_document  # noqa: E402
from fedkeel.report.page.rendering import write_page  # noqa: E402

project = "fedkeel"
author = "The fedkeel authors"
project_copyright = "the fedkeel authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "pictures"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nitpicky = True
copybutton_exclude = ".linenos, .gp, .go"
highlight_language = "text"

# pages that other pages may name before they are there
COMING = {"cluster", "deployment", "report", "reliability", "robustness", "torture", "watch"}

html_theme = "furo"
html_title = f"fedkeel {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}


def _complete_index(app: Any, name: str, source: list[str]) -> None:
    """Leave pages out of the index that are not there yet, and add those that no list names."""
    if name == "index":
        there = {page.stem for page in HERE.glob("*.md")} - {"index"}
        kept, listed = [], set()
        for line in source[0].splitlines():
            entry = re.fullmatch(r"(?:.*<)?([a-z_]+)>?", line) if line and not line.startswith("#") else None
            if entry and _in_list(kept) and entry[1] not in there:
                continue
            if entry:
                listed.add(entry[1])
            kept.append(line)
        source[0] = "\n".join(kept).replace("%MORE%", "\n".join(sorted(there - listed)))
        return
    for coming in COMING - {
        page.stem for page in HERE.glob("*.md")
    }:  # a link to a page that is not there yet
        source[0] = re.sub(rf"\[([^\]]+)\]\((?:\.\./)?{coming}\.md[^)]*\)", r"\1", source[0])
    depth = name.count("/")  # files at the root of the repository have a page of their own here
    source[0] = with_reasons(source[0])
    for file, page in PROJECT_PAGES.items():
        source[0] = source[0].replace(f"]({'../' * (depth + 1)}{file}", f"]({'../' * depth}{page}")


def _link_result_pages(app: Any, name: str, source: list[str]) -> None:
    """Where the repository names the command that writes a result's page, the site has the page."""
    if name.startswith("results/") and name.endswith("/README"):
        command = re.compile(r"`fedkeel report docs/results/[^/`]+/([^/`]+)`")
        source[0] = command.sub(r'<a href="\1.html">\1</a>', source[0])


def _write_result_pages(app: Any, problem: Exception | None) -> None:
    """Write the pages of docs/results, which the repository keeps as data."""
    for kept in sorted(HERE.glob("results/*/*/page.json")) if problem is None else ():
        page = Path(app.outdir) / "results" / kept.parents[1].name / f"{kept.parent.name}.html"
        write_page(kept_document(kept.parent), page)


def _in_list(lines: list[str]) -> bool:
    """Whether the next line is inside a toctree."""
    return sum(line.startswith("```") for line in lines) % 2 == 1


def _write_links(app: Any, problem: Exception | None) -> None:
    """External links are listed for whoever wants to look at them; nothing fetches them."""
    found = set()
    for page in Path(app.outdir).rglob("*.html") if problem is None else ():
        for uri in re.findall(r'<a class="reference external" href="(http[^"]+)"', page.read_text()):
            found.add(f"{uri}\t{page.relative_to(app.outdir)}")
    (Path(app.outdir) / "external-links.txt").write_text("\n".join(sorted(found)) + "\n")


def setup(app: Any) -> None:
    """Connect the steps above to the build."""
    write_pages(HERE)
    app.connect("source-read", _complete_index)
    app.connect("source-read", _link_result_pages)
    app.connect("build-finished", _write_result_pages)
    app.connect("build-finished", _write_links)
