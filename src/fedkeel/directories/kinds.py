"""The kinds of studies: where each is declared, and which of them a directory holds."""

from __future__ import annotations

import shlex
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedkeel.common.errors import FedkeelError, StorageError
from fedkeel.experiments import COMPARISON_FILE, OUTCOME_TEXT, STUDY_FILE
from fedkeel.studies.description import read_description

if TYPE_CHECKING:
    from fedkeel.studies.base import Study

# kind, as study.json has it: the module and the class that declare it; a new study is a module and a row
STUDIES = {
    "comparison": "fedkeel.studies.comparison:Comparison",
    "sweep": "fedkeel.studies.sweep:Sweep",
    "search": "fedkeel.studies.search_study:SearchStudy",
    "robustness study": "fedkeel.studies.robustness:RobustnessStudy",
    "stability study": "fedkeel.studies.stability_study:StabilityStudy",
    "interaction study": "fedkeel.studies.interaction_study:InteractionStudy",
    "constants study": "fedkeel.studies.constants_study:ConstantsStudy",
    "costs study": "fedkeel.studies.costs_study:CostsStudy",
    "recipe": "fedkeel.papers.reproduce.study:RecipeStudy",
}


@cache
def study_class(kind: str) -> type[Study]:
    """Return the class of a kind."""
    module, _, name = STUDIES[kind].partition(":")
    found: type[Study] = getattr(import_module(module), name)
    return found


class KeptStudy(NamedTuple):
    """A study in a directory: what it is, and its plan, None where version 0.1 kept none.

    A method or seed of a study may have a description of its own below it: `whole` is then the study.
    """

    kind: str
    directory: Path
    plan: dict[str, object] | None
    command: str | None = None
    placement: dict[str, Any] | None = None
    whole: KeptStudy | None = None

    def study(self, *, checked: bool = True) -> Study:
        """Return it; unchecked it takes no PyTorch."""
        try:
            return study_class(self.kind).from_table(self.plan or {}, checked=checked)
        except (KeyError, TypeError, ValueError) as problem:
            raise StorageError(
                f"{self.directory / STUDY_FILE}: its plan cannot be read ({problem}): give the line again "
                "that began it, with --out"
            ) from None

    def way_on(self) -> str:
        """Say how to go on with it, where it has nothing to show."""
        begun = self.whole or self
        on = f"`fedkeel resume {shlex.quote(str(begun.directory))}` goes on"
        if self.whole is not None:
            part = f"is part of the study in {begun.directory}"
            return f"{part}, which {begun.way_on()}" if begun.plan is None else f"{part}: {on}"
        if self.plan is not None:
            return f"this {self.kind} is not finished: {on}"
        line = f"`fedkeel {study_class(self.kind).command}` line and --out {self.directory}"
        return f"holds {'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}: go on with the same {line}"


def planned_runs(directory: Path) -> int | None:
    """Return how many runs the study in a directory has when it is done; None where that is not known."""
    try:
        kept = kept_study(directory)
        return None if kept is None or kept.plan is None else len(kept.study(checked=False).runs(directory))
    except FedkeelError:
        return None


def kept_study(directory: Path) -> KeptStudy | None:
    """Return which study a directory holds, None where it holds none."""
    if (directory / OUTCOME_TEXT).exists() and not (directory / STUDY_FILE).exists():
        return KeptStudy("recipe", directory, None)
    if (directory / STUDY_FILE).exists():
        found = read_description(directory)
        if found["study"] not in STUDIES:
            raise StorageError(
                f"{directory / STUDY_FILE}: there is no kind {found['study']!r}: restore it, or choose "
                "another directory"
            )
        kept = KeptStudy(
            found["study"], directory, found.get("plan"), found.get("command"), found.get("placement")
        )
        return kept if kept.plan is not None else kept._replace(whole=_whole(kept))
    if (directory / COMPARISON_FILE).exists():
        from fedkeel.studies.comparison import read_old_comparison  # noqa: PLC0415  heavy

        return KeptStudy("comparison", directory, read_old_comparison(directory))
    return None


def _whole(part: KeptStudy) -> KeptStudy | None:
    """Return the study that a directory is part of: OUT/METHOD, or OUT/seed-N/METHOD."""
    for above in list(part.directory.parents)[:2]:
        if (above / STUDY_FILE).exists():
            found = kept_study(above)
            return found if found is not None and found.kind == part.kind else None
    return None
