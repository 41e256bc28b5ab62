"""Nothing that fedkeel draws or computes changes unnoticed.

Integers must be equal, numbers within 1e-10 in float64 and 1e-6 in float32, since processors differ in the
last bits. FEDKEEL_GOLDEN=exact asks for every bit, for work that must not change a number on one machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from golden.cases import FILES

GOLDEN = Path(__file__).parent / "golden"
EXACT = os.environ.get("FEDKEEL_GOLDEN") == "exact"

LONG = ("methods-float64", "methods-float32", "settings-float64", "settings-float32")  # not in `make check`


def differences(found: Any, golden: Any, tolerance: float, path: str = "") -> list[str]:
    """Return where two traces differ, in words."""
    if isinstance(golden, dict) and isinstance(found, dict):
        if list(found) != list(golden):
            return [f"{path}: has {sorted(found)}, not {sorted(golden)}"]
        return [d for key in golden for d in differences(found[key], golden[key], tolerance, f"{path} {key}")]
    if isinstance(golden, list) and isinstance(found, list):
        if len(found) != len(golden):
            return [f"{path}: {len(found)} entries, not {len(golden)}"]
        pairs = enumerate(zip(found, golden, strict=True))
        return [d for i, pair in pairs for d in differences(*pair, tolerance, f"{path}[{i}]")]
    if isinstance(golden, float) and isinstance(found, float) and not EXACT:
        same = found == pytest.approx(golden, rel=tolerance, abs=tolerance)
    else:
        same = type(found) is type(golden) and found == golden
    return [] if same else [f"{path}: {found!r}, not {golden!r}"]


@pytest.mark.filterwarnings("ignore:relaxed")
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow(6, thorough=False)) for name in LONG),
        *(name for name in FILES if name not in LONG),
    ],
)
def test_the_golden_trace_holds(name: str) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    found = json.loads(json.dumps(FILES[name]()))
    tolerance = 1e-6 if "float32" in name else 1e-10
    wrong = differences(found, golden, tolerance)
    assert not wrong, "\n".join(wrong[:10])


def test_a_changed_number_is_seen() -> None:
    assert differences({"a": [1, 2.0]}, {"a": [1, 2.0]}, 1e-10) == []
    assert differences({"a": [1, 2.0 + 1e-8]}, {"a": [1, 2.0]}, 1e-10) == [" a[1]: 2.00000001, not 2.0"]
    assert differences({"a": [2, 2.0]}, {"a": [1, 2.0]}, 1e-10) == [" a[0]: 2, not 1"]
    assert differences({"a": [1]}, {"a": [1, 2.0]}, 1e-10) == [" a: 1 entries, not 2"]
