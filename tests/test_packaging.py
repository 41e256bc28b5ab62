"""What is shipped: one version everywhere, and every file of the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import fedkeel

SOURCE = Path(fedkeel.__file__).parent
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_the_same_everywhere() -> None:
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == PROJECT["project"]["version"] == fedkeel.__version__


def test_every_file_of_the_package_is_shipped() -> None:
    """`make wheel` looks into the wheel itself; this says it at once."""
    shipped = {
        path
        for pattern in PROJECT["tool"]["setuptools"]["package-data"]["fedkeel"]
        for path in SOURCE.glob(pattern)
    }
    others = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert others <= shipped
    assert SOURCE / "py.typed" in shipped
