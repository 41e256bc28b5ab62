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


def audit(tmp_path: Path, answer: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the audit with a pip-audit that gives an answer."""
    fake = tmp_path / "pip-audit"
    (tmp_path / "answer").write_text(answer)
    fake.write_text(f'#!/bin/sh\ncat "{tmp_path}/answer"; echo "connection refused" >&2; exit {code}\n')
    fake.chmod(0o755)
    line = [sys.executable, str(ROOT / ".ci" / "audit"), str(fake), "constraints.txt"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_an_audit_that_could_not_look_packages_up_fails_and_says_why(tmp_path: Path) -> None:
    """pip-audit itself ends with 0 where it found nothing out about any package."""
    fine: dict[str, object] = {"name": "a", "version": "1", "vulns": []}
    skipped = {"name": "b", "skip_reason": "Dependency not found on PyPI"}
    flaw = {"id": "CVE-1", "fix_versions": ["2"]}

    def told(*packages: object, code: int = 0) -> tuple[int, str]:
        done = audit(tmp_path, json.dumps({"dependencies": packages}), code)
        return done.returncode, done.stdout + done.stderr

    assert told(fine) == (0, "audit: no known vulnerability in 1 packages\n")
    code, text = told(fine, skipped)
    assert code == 1
    assert "1 of 2 packages could not be looked up (b), so nothing is known about them" in text
    code, text = told({**fine, "vulns": [flaw]}, code=1)
    assert (code, "a 1: CVE-1, fixed in 2" in text) == (1, True)
    broken = audit(tmp_path, "", 1)
    assert broken.returncode == 1
    assert "pip-audit gave no answer, so nothing is known: connection refused" in broken.stderr


def test_security_md_names_commands_that_exist() -> None:
    text, makefile = (ROOT / "SECURITY.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("audit", "sbom"):
        assert f"make {target}" in text
        assert f"\n{target}:" in makefile
