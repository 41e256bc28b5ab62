"""The live page as a document: the parts of a report that grow, the runs, alerts, the latest rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from fedkeel.common.columns import DECLARED, KnownColumns, shown_score, shown_value
from fedkeel.common.progress import shown_time
from fedkeel.report.page.comparison import metrics_of
from fedkeel.report.page.diagnostics import drift_section, generalisation_section
from fedkeel.report.page.document import (
    Block,
    Curves,
    Document,
    GroupChoice,
    GroupList,
    LiveRun,
    RunColumn,
    RunCurves,
    RunList,
    Section,
    Table,
    Text,
    Tone,
    Verdict,
)
from fedkeel.report.page.runs import column_label, short
from fedkeel.running.requests import CHECKPOINT, CONTINUE, PAUSE, STOP
from fedkeel.web.following import ALIVE, FollowedRun
from fedkeel.web.thinning import ThinnedCurve
from fedkeel.web.watching import RunAlert, RunGroup, Watch

MOST_DRAWN = 100  # runs of a group whose curves are drawn
_SHOWN_ALERTS, _SHOWN_ROUNDS = 30, 12
_FRESH = 600.0  # seconds for which an alert stands at the head of the page
_TONES: dict[str, Tone] = {
    "finished": "good",
    "diverged": "bad",
    "failed": "bad",
    "damaged": "bad",
    "stalled": "bad",
    "paused": "unclear",
    "stopped": "unclear",
    "unfinished": "unclear",
}
_CURVE_STATES: dict[str, Literal["finished", "running", "unfinished", "diverged"]] = {
    "finished": "finished",
    "diverged": "diverged",
    "running": "running",
    "paused": "running",
    "stalled": "running",
}


def empty_page(watch: Watch) -> Document:
    """Return what is shown where there is no run yet."""
    return Document(
        title=f"Runs below {watch.root.name or watch.root}",
        subtitle="live",
        kind="live",
        verdict=Verdict(text="No run here yet: it appears as soon as one starts."),
    )


def live_document(watch: Watch, group: RunGroup, *, curves: bool = True) -> Document:
    """Return the page of a group; without `curves` all of it but the runs' points."""
    shown = group.runs[:MOST_DRAWN]
    names = list(dict.fromkeys(name for run in shown for name in drawn_columns(run)))
    known = KnownColumns(column for run in shown for column in run.declared)
    explorer: Block = Text(id="none", paragraphs=("No round is finished yet.",))
    if names:
        explorer = _explorer(names, known, len(group.runs))
    sections = [
        *_groups(watch, group),
        Section(id="curves", title="Curves", blocks=(explorer,)),
        Section(id="runs", title="Runs", blocks=(_run_list(watch, group),)),
        Section(id="alerts", title="Alerts", blocks=(_alert_table(watch, group),)),
        Section(id="rounds", title="Latest rounds", blocks=(_round_table(group),)),
        *_panels(names, known),
    ]
    return Document(
        title=_title(watch, group),
        subtitle=f"live · {group.kind}",
        kind="live",
        subject="run",
        verdict=_verdict(watch, group),
        facts=tuple(_facts(group)),
        runs=tuple(run_curves(group, run) for run in shown) if curves else (),
        columns={name: column_label(name, known) for name in names},
        sections=tuple(sections),
    )


def drawn_columns(run: FollowedRun) -> dict[str, ThinnedCurve]:
    """Return the curves of a run that are worth drawing: a learning rate that never changes is not."""
    return {name: curve for name, curve in run.curves.items() if not (name == "lr" and curve.is_constant)}


def drawn_axes(run: FollowedRun) -> dict[str, ThinnedCurve]:
    """Return what a run had sent, computed and taken after its rounds."""
    return {**run.axes, "seconds": run.seconds_curve}


def curve_state(run: FollowedRun) -> Literal["finished", "running", "unfinished", "diverged"]:
    """Return how a run stands in the words of a page."""
    return _CURVE_STATES.get(run.state, "unfinished")


def run_curves(group: RunGroup, run: FollowedRun) -> RunCurves:
    """Return a run with the points that are kept of its curves."""
    return RunCurves(
        id=run.id,
        method=group.name_of(run),
        seed=run.seed,
        state=curve_state(run),
        directory=run.place,
        done=run.done,
        planned=run.planned,
        columns={name: _column(curve) for name, curve in drawn_columns(run).items()},
        axes={name: _column(curve) for name, curve in drawn_axes(run).items()},
    )


def _column(curve: ThinnedCurve) -> RunColumn:
    points = curve.points()
    return RunColumn(
        rounds=tuple(round for round, _ in points), values=tuple(short(value) for _, value in points)
    )


def _explorer(names: Sequence[str], known: KnownColumns, runs: int) -> Curves:
    metrics = metrics_of(names, "accuracy", known)
    note = "Runs in progress are thin lines; of finished ones the mean over seeds, with worst and best."
    if runs > MOST_DRAWN:
        note += f" The first {MOST_DRAWN} of {runs} runs are drawn."
    return Curves(id="explorer", title="Over the run", metrics=metrics, note=note)


def _panels(names: Sequence[str], known: KnownColumns) -> Iterator[Section]:
    """Yield the panels of probes that look at these runs."""
    for section in (drift_section(names, known), generalisation_section(names, known)):
        curves = tuple(block for block in section.blocks if block.type != "text")
        if curves:
            yield section.model_copy(update={"blocks": curves})


def _title(watch: Watch, group: RunGroup) -> str:
    if group.found is None and len(group.runs) == 1:
        return f"{group.runs[0].method}, seed {group.runs[0].seed}"
    place = "" if group.found is None or group.place == "." else group.place
    return place or f"Runs below {watch.root.name or watch.root}"


def _groups(watch: Watch, chosen: RunGroup) -> Iterator[Section]:
    if len(watch.groups) < 2:
        return
    by_time = sorted(watch.groups.values(), key=lambda group: -group.last_sign)
    choices = tuple(GroupChoice(id=group.id, label=_label(group), note=_counted(group)) for group in by_time)
    block = GroupList(id="choice", groups=choices, chosen=chosen.id)
    yield Section(id="groups", title="Groups", blocks=(block,))


def _label(group: RunGroup) -> str:
    return "single runs" if group.found is None else f"{group.kind} {group.place}"


def _counted(group: RunGroup) -> str:
    alive = sum(run.state in ALIVE for run in group.runs)
    finished = sum(run.state == "finished" for run in group.runs)
    return f"{alive} running" if alive else f"{finished} of {_planned(group)} finished"


def _planned(group: RunGroup) -> int:
    planned = None if group.found is None else group.found.planned
    return max(planned or 0, len(group.runs))


def _verdict(watch: Watch, group: RunGroup) -> Verdict:
    """Say how the group stands in a sentence; what went wrong in the last minutes stands there too."""
    states = [run.state for run in group.runs]
    alive = sum(state in ALIVE for state in states)
    parts = [f"{alive} of {_planned(group)} runs going on" if alive else "Nothing is running"]
    for name in ("finished", "paused", "stalled", "diverged", "failed", "stopped", "unfinished", "damaged"):
        if name in states:
            parts.append(f"{states.count(name)} {name}")
    left = time_left(group)
    text = f"{', '.join(parts)}{'' if left is None else f'; about {shown_time(left)} left'}."
    bad = [one for one in _alerts_of(watch, group) if one.alert.tone == "bad"]
    if bad and time.time() - bad[-1].alert.when < _FRESH:
        return Verdict(text=f"{text} {_who(group, bad[-1].run)}: {bad[-1].alert.text}", tone="bad")
    return Verdict(text=text, tone="good" if not alive and states.count("finished") == len(states) else "")


def time_left(group: RunGroup) -> float | None:
    """Return the seconds until all runs of a group are through; None where none runs or that is unknown.

    Runs that have not begun yet take what the others take, and as many go on at a time as do now.
    """
    alive = [run for run in group.runs if run.state in ALIVE]
    known = [run.time_left for run in alive if run.time_left is not None]
    if not known or len(known) < len(alive):
        return None
    paces = [run.pace * run.planned for run in group.runs if run.pace is not None and run.planned]
    waiting = _planned(group) - len(group.runs)
    more = waiting * (sum(paces) / len(paces)) if paces else 0.0
    return max(*known, (sum(known) + more) / len(alive))


def _facts(group: RunGroup) -> Iterator[tuple[str, str]]:
    alive = [run for run in group.runs if run.state in ALIVE]
    yield "running", f"{len(alive)}"
    yield "finished", f"{sum(run.state == 'finished' for run in group.runs)} of {_planned(group)}"
    left = time_left(group)
    yield "time left", "–" if left is None else shown_time(left)
    yield "rounds", f"{sum(run.done for run in group.runs):,}"
    yield "clients skipped", f"{sum(run.skipped_in_all for run in group.runs):,}"


def _run_list(watch: Watch, group: RunGroup) -> RunList:
    order = {"running": 0, "paused": 0, "stalled": 0, "finished": 2}
    runs = sorted(group.runs, key=lambda run: order.get(run.state, 1))
    note = (
        "A stop writes a checkpoint and ends the command that the run belongs to; `fedkeel resume` goes on."
        if watch.control
        else "`fedkeel watch --control` adds buttons that pause, checkpoint and stop runs."
    )
    listed = tuple(_line(watch, group, run) for run in runs)
    return RunList(id="list", title="How far they are", runs=listed, note=note)


def _line(watch: Watch, group: RunGroup, run: FollowedRun) -> LiveRun:
    alive = run.state in ALIVE
    score = next((shown_score(row) for row in reversed(run.latest) if shown_score(row)), None)
    going = (CONTINUE if run.state == "paused" else PAUSE, CHECKPOINT, STOP)
    left = run.time_left
    return LiveRun(
        id=run.id,
        name=_who(group, run),
        place=run.place,
        state=run.state,
        tone=_TONES.get(run.state, ""),
        done=run.reached,
        planned=run.planned,
        score=str(score or ""),
        clients=_clients(run) if run.latest else "",
        pace=f"{run.pace:.2g} s per round" if run.pace is not None and alive else "",
        left="" if left is None else f"{shown_time(left)} left",
        asked=watch.asked(run),
        requests=going if watch.control and alive else (),
    )


def _clients(run: FollowedRun) -> str:
    """Say how many clients of the last round are done and how many failed."""
    failed = f", {run.skipped} failed" if run.skipped else ""
    return f"{run.cohort - run.skipped} clients done{failed}"


def _who(group: RunGroup, run: FollowedRun) -> str:
    return f"{group.name_of(run)}, seed {run.seed}"


def _alerts_of(watch: Watch, group: RunGroup) -> list[RunAlert]:
    return sorted((one for one in watch.alerts if one.run in group.runs), key=lambda one: one.alert.when)


def _alert_table(watch: Watch, group: RunGroup) -> Table:
    found = _alerts_of(watch, group)[-_SHOWN_ALERTS:][::-1]
    return Table(
        id="alerts",
        title="What to know",
        headings=("time", "what", "run"),
        rows=tuple((_clock(one.alert.when), one.alert.text, _who(group, one.run)) for one in found),
        tones=tuple(one.alert.tone for one in found),
        left=(0, 1, 2),
        wide=(1,),
        note="" if found else "Nothing so far.",
    )


def _clock(when: float) -> str:
    moment = datetime.fromtimestamp(when)
    today = moment.date() == datetime.now().date()
    return moment.strftime("%H:%M:%S" if today else "%d %b %H:%M")


def _round_table(group: RunGroup) -> Table:
    """A line per round, of the runs that wrote something last."""
    active = sorted(group.runs, key=lambda run: -run.last_sign)[:_SHOWN_ROUNDS]
    alive = [run for run in active if run.state in ALIVE] or active[:1]
    each = max(1, _SHOWN_ROUNDS // max(1, len(alive)))
    scores = [
        name
        for name in ("train_loss", "loss", "accuracy", "validation_loss", "validation_accuracy")
        if any(row.get(name) is not None for run in alive for row in run.latest)
    ]
    rows = [
        (
            _who(group, run),
            f"{row['round'] + 1:,}",
            *(_cell(name, row.get(name)) for name in scores),
            f"{row['cohort'] - len(row.get('skipped') or ())} of {row['cohort']}",
            f"{run.times[row['round']]:.3g}" if row["round"] in run.times else "–",
        )
        for run in alive
        for row in list(run.latest)[::-1][:each]
    ]
    headings = (
        "run",
        "round",
        *(DECLARED.describe(name).label for name in scores),
        "clients done",
        "seconds",
    )
    return Table(id="latest", title="A line per round", headings=headings, rows=tuple(rows))


def _cell(column: str, value: Any) -> str:
    return shown_value(column, value) if isinstance(value, int | float) else "–"
