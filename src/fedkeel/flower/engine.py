"""The engine of a deployment: clients do their rounds on their nodes, the server reduces and evaluates.

Seen from the round loop it is one more engine. Only the memories are elsewhere: each message names the
version that the server's history commits to, and sends the memory along only where it begins afresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from fedkeel.common.columns import RESTARTED, SKIPPED, STATE_LOST
from fedkeel.common.version import __version__
from fedkeel.core.oracle import Oracle
from fedkeel.data.samples import Samples
from fedkeel.engines.client import ClientRunner
from fedkeel.engines.contract import ClientOutcome, ClientResult, CohortResult, MemoriesLost, RoundRequest
from fedkeel.engines.outcome import UnusableClient
from fedkeel.engines.reduction import Reduction
from fedkeel.engines.serial import Serial
from fedkeel.engines.sizing import fits_channels_last
from fedkeel.flower.deployment import single
from fedkeel.flower.envelope import PROTOCOL, TRAIN, Envelope, packed
from fedkeel.flower.nodes import LinkError, Registry
from fedkeel.flower.options import DeployOptions
from fedkeel.flower.replies import LostMemory, ReplyForm, read_reply
from fedkeel.methods.stages import Stages
from fedkeel.running.round import Row
from fedkeel.settings.options import DEPLOYED
from fedkeel.settings.run_settings import RunSettings
from fedkeel.tensors.records import ClientMemory, RecordList, leaves
from fedkeel.tensors.vector import Vector


class NodesEngine:
    """Runs cohorts on the nodes of a deployment."""

    name = DEPLOYED

    def __init__(
        self,
        settings: RunSettings,
        oracle: Oracle,
        *,
        registry: Registry,
        options: DeployOptions,
        run: str,
        history: Sequence[Row],
        count: int | None = None,
    ) -> None:
        self.settings, self.oracle, self.registry, self.options = settings, oracle, registry, options
        self.runner = ClientRunner(settings, oracle)
        self.run_id, self.history, self.threads = run, history, count or 1
        self.restarted: int | None = None  # the round in which all memories were last given up
        test = settings.federation.test
        if test is not None:
            oracle.channels_last = fits_channels_last(single(settings, test), oracle)

    def run(self, request: RoundRequest, memories: Sequence[ClientMemory]) -> CohortResult:
        """Let every client of the cohort do its round on its node, and reduce what they send."""
        asking = Asking(self, request, dict(zip(request.clients, memories, strict=True)))
        outcomes = asking.outcomes()
        reduction = Reduction(self.settings.reducer, request.weights)
        for client in request.clients:
            reduction.add(outcomes.pop(client))
        remarks = {STATE_LOST: sorted(asking.lost)} if asking.lost else {}
        return reduction.result()._replace(remarks=remarks)

    def evaluate(self, vectors: Sequence[Vector], buffers: Vector, data: Samples) -> list[dict[str, float]]:
        """Return loss and metrics of each model on samples, at the server."""
        return Serial.evaluate(self, vectors, buffers, data)  # type: ignore[arg-type]

    def close(self) -> None:
        """Nothing to give back: the nodes are not ours."""


class Asking:
    """One round's messages and what came back."""

    def __init__(
        self, engine: NodesEngine, request: RoundRequest, memories: Mapping[int, ClientMemory]
    ) -> None:
        self.engine, self.request, self.memories = engine, request, memories
        self.lost: set[int] = set()
        self._form = ReplyForm.of(request, memories[request.clients[0]])
        stages, afresh = engine.settings.played_stages, engine.restarted == request.round
        self._versions = {} if afresh else committed_versions(engine.history, stages, request.stage)
        self._waiting = set(request.clients)
        self._sent: dict[str, int] = {}
        self._attempts = dict.fromkeys(request.clients, 0)
        self._asked_at: dict[int, float] = {}
        self._last_error: dict[int, str] = {}

    def outcomes(self) -> dict[int, ClientOutcome]:
        """Ask all clients and wait for them: each gives a result or a failure."""
        registry, options = self.engine.registry, self.engine.options
        clock, found = registry.clock, dict[int, ClientOutcome]()
        end = clock.now() + options.round_seconds
        while self._waiting:
            registry.refresh()
            for client in sorted(self._waiting):
                self._ask_where_due(client, end)
            for sent, reply in registry.link.receive(list(self._sent)).items():
                client = self._sent.pop(sent)
                if client in self._waiting and (outcome := self._outcome(client, reply)) is not None:
                    found[client] = outcome
                    self._waiting.discard(client)
            if self._waiting and clock.now() > end:
                for client in sorted(self._waiting):
                    found[client] = self._failed(client, self._why_silent(client))
                break
            if self._waiting:
                clock.tick()
        return found

    def _ask_where_due(self, client: int, end: float) -> None:
        """Send a client its message: the first time, or again where it has not answered for long."""
        registry, options = self.engine.registry, self.engine.options
        now, node = registry.clock.now(), registry.node_of(client)
        asked = self._asked_at.get(client)
        overdue = asked is None or now - asked > options.attempt_seconds
        if node is None or not overdue or self._attempts[client] > options.retries:
            return
        sent = registry.link.send(node, TRAIN, self._message(client), seconds=max(1.0, end - now))
        self._sent[sent] = client
        self._asked_at[client] = now
        self._attempts[client] += 1

    def _message(self, client: int) -> Envelope:
        request, memory = self.request, self.memories[client]
        base, fresh = (0, True) if client in self.lost else self._versions.get(client, (0, True))
        if next(leaves(memory), None) is None:  # nothing to remember
            base = 0
        sent = memory if base == 0 else memory._replace(notes=RecordList()) if fresh else None
        probes = request.probes
        values = {
            "protocol": PROTOCOL,
            "fedkeel": __version__,
            "run": self.engine.run_id,
            "client": client,
            "round": request.round,
            "stage": request.stage,
            "lr": request.lr,
            "mean_samples": self.engine.settings.federation.mean_size,
            "rate_factor": request.rate_factor,
            "base": base,
            "fresh": fresh,
            "due": None if probes is None else list(probes.due),
        }
        briefs = None if probes is None else probes.briefs
        tensors = packed(down=request.down, buffers=request.buffers, memory=sent, briefs=briefs)
        return Envelope(values, tensors)

    def _outcome(self, client: int, reply: Envelope | LinkError) -> ClientOutcome | None:
        """Return what a reply comes to; None where the client is asked again."""
        if isinstance(reply, LinkError):
            self._last_error[client] = reply.reason
            if self._attempts[client] > self.engine.options.retries:
                return self._failed(client, f"its node did not answer ({reply.reason})")
            self._asked_at.pop(client, None)
            return None
        request = self.request
        try:
            return self.engine.runner.outcome(
                request, client, self.memories[client], partial(self._read, reply)
            )
        except _Lost:
            if client in self.lost:
                return self._failed(client, "it says again that its memory is lost")
            self.lost.add(client)
            if self.engine.options.on_loss == "restart":
                self.engine.restarted = request.round
                raise MemoriesLost([client]) from None
            self._attempts[client] = 0
            self._asked_at.pop(client, None)
            return None

    def _read(
        self, reply: Envelope, request: RoundRequest, client: int, _memory: ClientMemory
    ) -> ClientResult:
        settings, run = self.engine.settings, self.engine.run_id
        try:
            return read_reply(settings, request, reply, client=client, form=self._form, run=run)
        except LostMemory as problem:
            raise _Lost from problem

    def _why_silent(self, client: int) -> str:
        limit = f"{self.engine.options.round_seconds:g} seconds (deploy.round_seconds)"
        if self.engine.registry.node_of(client) is None:
            return f"its node was offline at the end of {limit}"
        told = f" ({self._last_error[client]})" if client in self._last_error else ""
        return f"its node did not answer within {limit}{told}"

    def _failed(self, client: int, reason: str) -> ClientOutcome:
        def refuse(*_round: object) -> ClientResult:
            raise UnusableClient(reason)

        return self.engine.runner.outcome(self.request, client, self.memories[client], refuse)


class _Lost(BaseException):
    """Carries `LostMemory` past what takes every exception for a client's failure."""


def committed_versions(history: Sequence[Row], stages: Stages, stage: int) -> dict[int, tuple[int, bool]]:
    """Return for each client the version of its memory that counts, and whether the method's part is new.

    A client's version is the number of rounds up to the last that it took part in. A stage that begins afresh
    makes the method's part of it void, a restart all of it.
    """
    found: dict[int, tuple[int, int]] = {}
    for row in history:
        if row.get(RESTARTED):
            found.clear()
        skipped = {failure["client"] for failure in row.get(SKIPPED, ())}
        found |= {
            client: (row["round"] + 1, row["stage"]) for client in row["cohort"] if client not in skipped
        }
    renewed = max((one + 1 for one in range(stage) if not stages.carries(one)), default=0)
    return {client: (version, then < renewed) for client, (version, then) in found.items()}
