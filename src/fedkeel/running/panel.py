"""The probe panel: all probes of a run, what a round asks of its clients, and how answers become columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from torch import Tensor

from fedkeel.common.columns import EVENT_COLUMNS, RUN_COLUMNS, HistoryColumn, undeclared
from fedkeel.common.errors import ConfigError
from fedkeel.core.oracle import Oracle
from fedkeel.probes import DEFAULT, Probe
from fedkeel.probes.base import Columns, RoundView, RunView
from fedkeel.probes.client import ClientProbes
from fedkeel.running.privacy import privacy_probes
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.layout import Layout
from fedkeel.tensors.records import ClientMemory, Record, RecordList, leaves, rebuild
from fedkeel.tensors.vector import Vector


class MethodMemories(Mapping[int, Record]):
    """The methods' own memories in a store that holds the probes' notes too."""

    def __init__(self, store: Mapping[int, ClientMemory]) -> None:
        self.store = store

    def __getitem__(self, client: int) -> Record:
        return self.store[client].method

    def __iter__(self) -> Iterator[int]:
        return (client for client in self.store if self.store[client].method)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ProbePanel(NamedTuple):
    """All probes of a run; `asked` are those that are not always on."""

    probes: tuple[Probe, ...] = ()
    asked: tuple[Probe, ...] = ()

    def declared(self, layout: Layout) -> tuple[HistoryColumn, ...]:
        """Return what is declared of the columns of all probes; a plain one where a probe declares none."""
        found: list[HistoryColumn] = []
        for probe in self.probes:
            found += probe.columns
            found += [
                undeclared(name)
                for name in probe.names(layout)
                if not any(column.covers(name) for column in probe.columns)
            ]
        return tuple(found)

    def begin(self, x0: Vector, layout: Layout) -> RecordList:
        """Return the probes' states before the first round."""
        return RecordList(*(probe.begin(x0, layout) for probe in self.probes))

    def renew(self, states: RecordList) -> RecordList:
        """Return the states where a stage begins with fresh memories."""
        return RecordList(*(probe.renew(state) for probe, state in zip(self.probes, states, strict=True)))

    def at_clients(self, states: RecordList, round: int, rounds: int) -> ClientProbes | None:
        """Return what is measured at a round's clients, None where no probe measures there."""
        due = tuple(p.at_clients and (p.always or p.due(round, rounds)) for p in self.probes)
        if not any(due):
            return None
        briefs = (probe.brief(state) for probe, state in zip(self.probes, states, strict=True))
        return ClientProbes(self.probes, due, RecordList(*briefs))

    def memory(
        self, stored: ClientMemory | None, states: RecordList, init_client: Callable[[], Record]
    ) -> ClientMemory:
        """Return what a client works with, from what the store holds of it."""
        if stored is None:
            return ClientMemory(init_client(), self.first_notes(states))
        return stored._replace(method=init_client()) if stored.method is None else stored

    def first_notes(self, states: RecordList) -> RecordList:
        """Return the notes of a client that never took part."""
        return RecordList(
            *(probe.init_client(state) for probe, state in zip(self.probes, states, strict=True))
        )

    def only_notes(self, store: Mapping[int, ClientMemory]) -> dict[int, ClientMemory]:
        """Return what stays of the clients where the methods' memories start afresh: the notes."""
        kept = {client: memory._replace(method=None) for client, memory in store.items()}
        return {client: memory for client, memory in kept.items() if worth_keeping(memory)}

    def restored(self, template: ClientMemory, tensors: Mapping[str, Tensor]) -> ClientMemory:
        """Return a client state from its named tensors; with notes alone the method's part is fresh."""
        kept = any(name.startswith("method.") for name in tensors)
        fresh = not kept and next(leaves(template.method), None) is not None
        memory: ClientMemory = rebuild(template._replace(method=None) if fresh else template, tensors)
        return memory

    def report(self, states: RecordList, view: RoundView) -> tuple[Columns, RecordList]:
        """Return the columns of a round and the next states."""
        columns: Columns = {}
        following = []
        measures = view.measures or (None,) * len(self.probes)
        for probe, state, measured in zip(self.probes, states, measures, strict=True):
            columns |= dict.fromkeys(probe.names(view.layout))
            due = probe.due(view.round, view.run.rounds)
            if due or probe.always:
                own = view._replace(measures=measured, row={**view.row, **columns})
                reported, state = probe.report(state, own)  # noqa: PLW2901
                columns |= reported if due else {}
            following.append(state)
        return columns, RecordList(*following)


def worth_keeping(memory: ClientMemory) -> bool:
    """Tell whether a client keeps anything here: most methods' clients do not, and cost the store nothing.

    Of a memory that lies elsewhere only the shape is known: its tensors are on torch's device "meta".
    """
    return any(not tensor.is_meta for _, tensor in leaves(memory))


def assemble(settings: RunSettings, oracle: Oracle) -> ProbePanel:
    """Return and check the probes that are always on, those asked for, and those that stages' rules read.

    One that is asked for stands in for the same kind among those always on.
    """
    stages = settings.stages
    read = (getattr(part.until, "probe", None) for part in stages.parts)
    asked = tuple(dict.fromkeys([*settings.probes, *(probe for probe in read if probe is not None)]))
    kinds = {type(probe) for probe in asked}
    always = (probe for probe in (*DEFAULT, *privacy_probes(settings)) if type(probe) not in kinds)
    panel = ProbePanel((*always, *asked), asked)
    run = run_view(settings, oracle)
    columns: dict[str, Probe] = {}
    for probe in panel.probes:
        _check_columns(probe)
        probe.check(run)
        for name in probe.names(oracle.layout):
            if name in (*RUN_COLUMNS, *EVENT_COLUMNS) or name in settings.task.metrics:
                owner = "a metric of the task" if name in settings.task.metrics else "the run itself"
                raise ConfigError(
                    f"probes: {probe!r} reports {name!r}, which is a column of {owner}: rename it"
                )
            other = columns.setdefault(name, probe)
            if other is not probe:
                raise ConfigError(f"probes: {other!r} and {probe!r} both report {name!r}: leave one out")
    return panel


def _check_columns(probe: Probe) -> None:
    """Refuse a probe that does not say which columns it reports."""
    for column in probe.columns:
        if not isinstance(column, HistoryColumn):
            raise ConfigError(
                f"probes: {probe!r} declares {column!r}: declare a column as "
                "fk.probes.HistoryColumn('mine', label='what it is')"
            )
    if type(probe).names is Probe.names and not any(not column.is_pattern for column in probe.columns):
        raise ConfigError(
            f"probes: {probe!r} declares no columns: give it columns = (fk.probes.HistoryColumn('mine'),)"
        )


def run_view(settings: RunSettings, oracle: Oracle) -> RunView:
    """Return what probes know of a run."""
    return RunView(
        settings.rounds,
        [part.method for part in settings.stages.parts],
        settings.federation,
        list(settings.task.metrics),
        oracle.layout,
        settings.uniform_weights,
    )
