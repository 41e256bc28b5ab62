"""Where the numbers come from: differences of configuration, commands, seeds, hashes, versions, engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedkeel.report.page.document import Block, Code, FactList, Section, Table, Text
from fedkeel.report.page.runs import ReportedRun, state_of

_MOST_RUNS = 200  # lines of the table of runs
_HASH = 12  # digits of a hash that are shown
_OWN = ("method", "seed")  # what runs of a comparison differ in anyway


def settings_section(runs: Sequence[ReportedRun], shared: str) -> Section:
    """Return in which settings runs differ beside method and seed, and what all of them share."""
    blocks: list[Block] = []
    table = _differences(runs)
    if table is not None:
        blocks.append(table)
    else:
        same = "All runs have the same settings, but for method and seed."
        alone = "One run: nothing to compare its settings with."
        blocks.append(Text(id="same-settings", paragraphs=(same if len(runs) > 1 else alone,)))
    if shared.strip():
        title = "What all runs share" if len(runs) > 1 else "Its settings"
        blocks.append(Code(id="shared", title=title, text=shared.strip(), folded=len(runs) > 1))
    return Section(id="settings", title="Configuration", about="", blocks=tuple(blocks))


def varied_settings(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the settings, beside method and seed, in which runs differ."""
    known = [run for run in runs if run.settings]
    names = dict.fromkeys(name for run in known for name in run.settings if name not in _OWN)
    return [name for name in names if len({_text(run.settings.get(name)) for run in known}) > 1]


def _differences(runs: Sequence[ReportedRun]) -> Table | None:
    known, varied = [run for run in runs if run.settings], varied_settings(runs)
    if not varied:
        return None
    groups: dict[tuple[str, ...], list[str]] = {}
    for run in known:
        values = (run.trial.label, *(_text(run.settings.get(name)) for name in varied))
        groups.setdefault(values, []).append(str(run.trial.seed))
    return Table(
        id="differences",
        title="Differences between runs",
        headings=("run", *varied, "seeds"),
        rows=tuple((*values, ", ".join(seeds)) for values, seeds in groups.items()),
        left=tuple(range(len(varied) + 1)),
        note="Settings that are the same in all runs are not listed.",
    )


def provenance_section(runs: Sequence[ReportedRun], commands: Sequence[str], subject: str) -> Section:
    """Return all that is needed to make the numbers again, and to tell whether they are the same."""
    blocks: list[Block] = []
    if commands:
        blocks.append(Code(id="commands", title="Run it again", text="\n".join(commands)))
    facts = tuple(_facts([run.manifest for run in runs if run.manifest]))
    if facts:
        blocks.append(FactList(id="versions", rows=facts))
    if runs:
        blocks.append(_runs_table(runs, subject))
    return Section(id="provenance", title="Provenance", about="", blocks=tuple(blocks))


def _facts(manifests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what the manifests say; where runs differ, every value once."""

    def each(*keys: str) -> str:
        found: dict[str, None] = {}
        for manifest in manifests:
            value: Any = manifest
            for key in keys:
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                found[_text(value)] = None
        return "; ".join(found)

    for name, text in (
        ("versions", "; ".join(dict.fromkeys(_listed(one.get("versions", {})) for one in manifests))),
        ("data", "; ".join(dict.fromkeys(_listed(_data(one)) for one in manifests))),
        ("local work", each("identity", "work")),
        ("cohort", each("identity", "cohort")),
        ("sampling", each("identity", "sampling")),
        ("weighting", each("identity", "weighting")),
        ("reducer", each("identity", "reducer")),
        ("probes", each("identity", "probes")),
        ("engine", "; ".join(dict.fromkeys(_engine(one) for one in manifests))),
        ("device", each("identity", "device")),
    ):
        if text:
            yield name, text


def _data(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of the data; the split's seed is the run's."""
    return {key.replace("_", " "): value for key, value in manifest.get("data", {}).items() if key != "seed"}


def _engine(manifest: Mapping[str, Any]) -> str:
    reason = manifest.get("engine_choice", {}).get("reason", "").partition(":")[0]
    threads = manifest.get("threads")
    parts = [
        str(manifest.get("engine", "")),
        f"{threads} thread{'s' * (threads != 1)}" if threads else "",
        reason or "",
    ]
    return ", ".join(filter(None, parts))


def _listed(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in table.items())


def _runs_table(runs: Sequence[ReportedRun], subject: str) -> Table:
    rows = []
    for run in runs[:_MOST_RUNS]:
        identity = run.manifest.get("identity", {})
        rows.append(
            (
                run.trial.label,
                f"{run.trial.seed}",
                state_of(run.trial),
                f"{len(run.trial.rows)}",
                str(run.manifest.get("engine", "—")),
                _hash(identity.get("federation")),
                _hash(identity.get("task", {}).get("initial")),
                run.directory or "in memory",
            )
        )
    note = f"The first {_MOST_RUNS} of {len(runs)} runs. " if len(runs) > _MOST_RUNS else ""
    return Table(
        id="runs",
        title="Runs",
        headings=(subject, "seed", "state", "rounds", "engine", "data hash", "first weights", "directory"),
        rows=tuple(rows),
        left=(0, 2, 4, 5, 6, 7),
        note=f"{note}Hashes are the first {_HASH} digits of SHA-256; the manifests have them whole.",
    )


def _hash(value: object) -> str:
    return str(value)[:_HASH] if value else "—"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return _listed(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return "none" if value is None else str(value)
