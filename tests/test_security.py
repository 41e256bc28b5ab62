"""What SECURITY.md promises of the things around the code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(bom: Path, constraints: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / ".ci" / "sbom"), str(bom), str(constraints)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_a_bill_of_materials_must_list_every_pinned_package_and_no_other(tmp_path: Path) -> None:
    """`make sbom` makes it with cyclonedx-py, in `.ci/run`; this tries the check itself."""
    pins = tmp_path / "constraints.txt"
    pins.write_text("# all\nJinja2==3.1.6\nboolean.py==5.0\n")
    bom = tmp_path / "sbom.json"
    both = [{"name": "Jinja2", "version": "3.1.6"}, {"name": "boolean-py", "version": "5.0"}]
    bom.write_text(json.dumps({"components": both}))
    assert check(bom, pins).stdout.endswith("2 packages, all that are pinned\n")
    bom.write_text(json.dumps({"components": both[:1]}))
    assert "missing [('boolean-py', '5.0')], too much []" in check(bom, pins).stderr
    bom.write_text(json.dumps({"components": [*both, {"name": "x", "version": "1"}]}))
    assert "missing [], too much [('x', '1')]" in check(bom, pins).stderr


def test_security_md_names_commands_that_exist() -> None:
    text, makefile = (ROOT / "SECURITY.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("audit", "sbom"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile
