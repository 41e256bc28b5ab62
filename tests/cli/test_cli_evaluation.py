"""What commands say of a run's evaluations."""

from __future__ import annotations

import re
from collections.abc import Callable


def test_a_run_without_evaluation_says_its_training_loss(tiny: Callable) -> None:
    done = tiny("--evaluate-on", "nothing")
    assert re.search(r"^  train loss \d", done.stdout, re.MULTILINE)
    assert "accuracy" not in done.stdout
