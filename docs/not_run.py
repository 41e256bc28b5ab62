"""The commands of README and docs/ that the tests do not run as they stand, and why: `not_run.toml`.

`tests/site` skips them with their reason, and the site says it below the block that shows them.
"""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

NOT_RUN: dict[str, str] = tomllib.loads(Path(__file__).with_name("not_run.toml").read_text())
_BLOCK = re.compile(r"^```(?:|bash|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:fedkeel|make|python|pip) ")


def reason(line: str) -> str | None:
    """Return why a command is not run by the tests as it stands; None where it is."""
    return next((why for part, why in NOT_RUN.items() if part in line), None)


def with_reasons(page: str) -> str:
    """Return a page of Markdown with a note below every block that shows such a command."""
    return _BLOCK.sub(lambda found: found[0] + _note(found[1]), page)


def _note(block: str) -> str:
    lines = [line for line in block.replace("\\\n", " ").splitlines() if _COMMAND.match(line)]
    reasons = dict.fromkeys(why for line in lines if (why := reason(line)))
    if not reasons:
        return ""
    told = "; ".join(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(why)) for why in reasons)
    return f'\n\n<p class="not-run">Not run by the tests as it stands: {told}.</p>\n'
