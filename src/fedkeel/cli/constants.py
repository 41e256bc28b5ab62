"""The constants that `fedkeel advise` needs: measured with progress, and printed."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkeel.cli.stage_progress import StageProgress
from fedkeel.common.errors import Stopped
from fedkeel.common.progress import console, plain_table
from fedkeel.experiments.experiment import Experiment
from fedkeel.settings.options import SERIAL
from fedkeel.studies.constants_page import HEADINGS, constant_notes, constant_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedkeel.studies.constants import Findings


def measure(experiment: Experiment, effort: dict[str, int], out: Path | None) -> Findings:
    """Run the study of an experiment with progress; `out` is where it can go on."""
    from fedkeel.studies.constants import Effort, study  # noqa: PLC0415  loads PyTorch

    with _says_how_to_go_on(out), StageProgress(stderr=True) as stages:
        return study(
            experiment.settings(),
            SERIAL.model_copy(update={"device": experiment.device}),
            effort=Effort(**effort),
            directory=out,
            progress=stages.update,
        )


@contextmanager
def _says_how_to_go_on(out: Path | None) -> Iterator[None]:
    """End an interrupted measurement that is kept with the line that goes on."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        if out is None:
            raise
        line = shlex.join(["fedkeel", *sys.argv[1:]])
        raise Stopped(f"\n{str(stop) or 'stopped'}\ngo on with: {line}") from None


def print_constants(found: Findings) -> None:
    """Print what was measured, with its spread and what is behind it."""
    numbers: dict[str, Any] = found.as_dict()
    table = plain_table(("", *HEADINGS), constant_rows(numbers))
    table.columns[-1].justify = "left"
    console().print(table)
    for line in constant_notes(numbers):
        console().print(line, markup=False, soft_wrap=True)


def number(value: float) -> str:
    """Return a value as the pages print it."""
    return "∞" if math.isinf(value) else f"{value:.4g}"
