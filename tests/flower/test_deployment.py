"""A deployment, its nodes in this process: equal to the simulation, and proof against nodes that fail."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flower_nodes import (
    CLIENTS,
    SETTINGS,
    WORK,
    Change,
    FakeClock,
    FakeLink,
    deployment,
    federation,
    simulation,
)
from variants import SHAPED_WORK

import fedkeel as fk
from fedkeel.flower import Deployment
from fedkeel.flower.envelope import Envelope
from fedkeel.flower.nodes import LinkError
from fedkeel.flower.options import RunConfig
from fedkeel.flower.serve import serve
from fedkeel.flower.status import read_status
from fedkeel.running.run_directory import read_rows

pytestmark = pytest.mark.slow


def configured(tmp_path: Path, method: str, **options: Any) -> dict[str, Any]:
    return {**SETTINGS, "method": method, "deploy.run_dir": str(tmp_path / "run"), **options}


def deploy(tmp_path: Path, method: str, change: Change | None = None, **options: Any) -> fk.Result:
    config = configured(tmp_path, method, **options)
    link = FakeLink(deployment(), config, tmp_path / "nodes", change)
    return serve(link.made, link, config, FakeClock().clock())


def rows(result: fk.Result, *without: str) -> list[dict[str, Any]]:
    left_out = ("seconds", *without)
    return [{name: value for name, value in row.items() if name not in left_out} for row in result.history]


def assert_same_model(one: fk.Result, other: fk.Result) -> None:
    pairs = zip(one.model.state_dict().items(), other.model.state_dict().items(), strict=True)
    for (name, mine), (_, theirs) in pairs:
        assert torch.equal(mine, theirs), name


def assert_same(one: fk.Result, other: fk.Result, *without: str) -> None:
    assert rows(one, *without) == rows(other, *without)
    assert_same_model(one, other)


METHODS = (
    "fedavg",
    "scaffold",
    "feddyn(0.1)",
    "feddyn(0.1, by_size=True)",
    "feddyn(0.1, last_models=True)",
    "fedinit(0.1)",
    "fedsagd",
    "relaxed(scaffold, beta=0.1)",
    "stages((feddyn(0.1), 2), fedavg)",
    "stages((scaffold, 1), (feddyn(0.1), 2), scaffold)",
)


@pytest.mark.parametrize("method", METHODS)
def test_a_deployment_equals_the_simulation_to_the_bit(tmp_path: Path, method: str) -> None:
    assert_same(deploy(tmp_path, method), simulation(method))


def test_local_momentum_and_rates_within_a_round_are_those_of_the_simulation(tmp_path: Path) -> None:
    shaped = {
        "work.epochs": SHAPED_WORK.epochs,
        "work.batch_size": SHAPED_WORK.batch_size,
        "work.lr": SHAPED_WORK.lr,
        "work.lr_decay": SHAPED_WORK.lr_decay,
        "work.weight_decay": SHAPED_WORK.weight_decay,
        "work.momentum": SHAPED_WORK.momentum,
        "work.nesterov": SHAPED_WORK.nesterov,
        "work.schedule": "DecayPerEpoch(0.9, 2)",
        "work.clip": SHAPED_WORK.clip,
        "work.clip_on": SHAPED_WORK.clip_on,
    }
    deployed = deploy(tmp_path, "scaffold", **shaped)
    assert_same(deployed, simulation("scaffold", SHAPED_WORK))
    plain = replace(SHAPED_WORK, momentum=0.0, nesterov=False, schedule=None)
    assert rows(deployed) != rows(simulation("scaffold", plain))


def test_weights_by_samples_are_those_that_nodes_announce(tmp_path: Path) -> None:
    assert_same(deploy(tmp_path, "fedavg", weighting="samples"), simulation("fedavg", weighting="samples"))


def test_probes_at_clients_report_the_same(tmp_path: Path) -> None:
    probes = [fk.probes.Divergence(), fk.probes.Drift(), fk.probes.Diversity(of="c_i")]
    text = 'probes=["divergence", "drift", "diversity(of=\'c_i\')"]'
    assert_same(deploy(tmp_path, "scaffold", set=text), simulation("scaffold", probes=probes))


def test_a_method_of_ones_own_and_batchnorm_are_deployed_too(tmp_path: Path) -> None:
    def net() -> torch.nn.Module:
        layers = torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 10)
        return torch.nn.Sequential(torch.nn.Flatten(), *layers)

    config = configured(tmp_path, "fedavg", **{"work.last_batch": "drop"})
    made = deployment(method=fk.relaxed(fk.FedDyn(0.1), beta=0.05))
    made._task = lambda: fk.Task(net)
    deployed = serve(made, FakeLink(made, config, tmp_path / "nodes"), config, FakeClock().clock())
    work = fk.Work(epochs=1, batch_size=20, lr=0.1, lr_decay=0.9, weight_decay=1e-3, last_batch="drop")
    simulated = fk.train(
        fk.Task(net),
        federation(),
        fk.relaxed(fk.FedDyn(0.1), beta=0.05),
        rounds=3,
        cohort=3,
        seed=5,
        work=work,
        execution=fk.Execution("serial", threads=1),
    )
    assert_same(deployed, simulated)


def test_a_clients_memory_never_leaves_its_node(tmp_path: Path) -> None:
    config = configured(tmp_path, "scaffold", cohort=CLIENTS)
    link = FakeLink(deployment(), config, tmp_path / "nodes")
    result = serve(link.made, link, config, FakeClock().clock())
    trained = [(client, message) for client, kind, message in link.sent if kind == "train"]
    assert [message.values["base"] for _, message in trained] == [0] * 4 + [1] * 4 + [2] * 4
    for _, message in trained[4:]:
        assert not [name for name in message.tensors if name.startswith("memory")]
    assert len(result.client_states) == 0
    checkpoints = [path.name for path in (tmp_path / "run").rglob("*.safetensors")]
    assert "client_states.safetensors" not in checkpoints


def spoilt(client: int, round: int, spoil: Callable[[Envelope], Envelope | LinkError]) -> Change:
    """Let one client's reply in one round be spoilt."""

    def change(who: int, reply: Envelope) -> Envelope | LinkError:
        return spoil(reply) if (who, reply.values.get("round")) == (client, round) else reply

    return change


def with_tensor(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Envelope], Envelope]:
    return lambda reply: reply._replace(tensors={**reply.tensors, name: make(reply.tensors["up.delta"])})


def with_value(name: str, value: Any) -> Callable[[Envelope], Envelope]:
    return lambda reply: reply._replace(values={**reply.values, name: value})


def without(name: str) -> Callable[[Envelope], Envelope]:
    return lambda reply: reply._replace(
        tensors={key: value for key, value in reply.tensors.items() if key != name}
    )


BAD = {
    "NaN": (with_tensor("up.delta", lambda t: t * torch.nan), "NaN or infinite"),
    "one infinity": (
        with_tensor("up.delta_c", lambda t: t.index_fill(0, torch.tensor([3]), torch.inf)),
        "NaN or",
    ),
    "shape that broadcasts": (with_tensor("up.delta", lambda t: t[:1]), "up.delta has shape (1,), not"),
    "other dtype": (with_tensor("up.delta", torch.Tensor.double), "up.delta is float64, not float32"),
    "extra tensor": (with_tensor("up.more", torch.clone), "up.more is not expected"),
    "extra part": (with_tensor("gift", torch.clone), "it sent gift, which nobody asked for"),
    "missing tensor": (without("up.delta_c"), "up.delta_c is missing"),
    "negative count": (with_value("samples", -30), "its samples is -30, not"),
    "absurd count": (with_value("samples", 10**30), "its samples is 1000000000"),
    "fractional count": (with_value("samples", 30.0), "its samples is 30.0, not"),
    "absurd gradients": (with_value("gradients", 10**12), "its number of gradients is 1000000000000, not"),
    "NaN loss": (with_value("loss", float("nan")), "its loss is nan, not a finite number"),
    "another client": (with_value("client", 0), "its client is 0, not"),
    "another round": (with_value("round", 7), "its round is 7, not 1"),
    "another run": (with_value("run", "x"), "its run is x, not"),
    "another version": (with_value("fedkeel", "0.0.9"), "its node runs fedkeel 0.0.9, the server"),
    "an error of the app": (
        lambda reply: Envelope({**reply.values, "failed": "OSError: gone"}),
        "OSError: gone",
    ),
    "rubbish": (lambda reply: Envelope({"unreadable": "KeyError: 'json'"}), "its reply cannot be read"),
}


@pytest.fixture(scope="module")
def bad_client() -> tuple[int, int]:
    """A client that takes part in rounds 1 and 2 of SCAFFOLD's run."""
    cohorts = [row["cohort"] for row in simulation("scaffold").history]
    return next(one for one in cohorts[1] if one in cohorts[2] and one != 0), 1


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory, bad_client: tuple[int, int]) -> fk.Result:
    """The run in which that client does not answer at all in round 1."""
    path = tmp_path_factory.mktemp("silent")
    return deploy(path, "scaffold", spoilt(*bad_client, lambda reply: LinkError("gone")))


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_left_out_and_its_memory_rolled_back(
    tmp_path: Path, kind: str, bad_client: tuple[int, int], silent: fk.Result
) -> None:
    spoil, reason = BAD[kind]
    result = deploy(tmp_path, "scaffold", spoilt(*bad_client, spoil))
    (told,) = result.history[1]["skipped"]
    assert told["client"] == bad_client[0]
    assert reason in told["reason"]
    assert_same(result, silent, "skipped")


def test_an_upload_that_is_too_large_is_left_out(tmp_path: Path, bad_client: tuple[int, int]) -> None:
    huge = with_tensor("up.delta", lambda t: t * 1e9)
    result = deploy(tmp_path, "scaffold", spoilt(*bad_client, huge), max_upload_norm=1e3)
    assert "max_upload_norm = 1000" in result.history[1]["skipped"][0]["reason"]


def test_where_every_client_must_answer_a_bad_one_ends_the_run(tmp_path: Path, bad_client: Any) -> None:
    spoil = spoilt(*bad_client, BAD["missing tensor"][0])
    with pytest.raises(fk.TooFewClients, match=f"round 1, client {bad_client[0]}: its reply does not fit"):
        deploy(tmp_path, "scaffold", spoil, on_client_error="stop")
    status = read_status(tmp_path / "run")
    assert status is not None
    assert (status.state, status.exit_code) == ("failed", 5)


def test_a_client_that_diverges_is_left_out_with_the_simulations_reason(tmp_path: Path) -> None:
    """One client's samples are huge; the others learn."""
    whole = federation()
    clients = [whole.samples(client) for client in range(CLIENTS)]
    clients = [(x.float() * (1e30 if n == 1 else 1), y) for n, (x, y) in enumerate(clients)]
    test = (whole.test.part(0, 50)[0].float(), whole.test.part(0, 50)[1])
    made = Deployment(
        lambda: fk.Task(fk.models.mlp), lambda node: clients[node.client], test=lambda: test, classes=10
    )
    config = configured(tmp_path, "scaffold", cohort=CLIENTS)
    deployed = serve(made, FakeLink(made, config, tmp_path / "nodes"), config, FakeClock().clock())
    simulated = fk.train(
        fk.Task(fk.models.mlp),
        fk.Federation.from_arrays(clients, test=test, classes=10),
        fk.SCAFFOLD(),
        rounds=3,
        cohort=CLIENTS,
        seed=5,
        work=WORK,
        execution=fk.Execution("serial", threads=1),
        failures=fk.Failures("skip"),
    )
    assert [one["client"] for one in deployed.history[0]["skipped"]] == [1]
    assert_same(deployed, simulated)


def test_a_client_that_is_silent_is_asked_again(tmp_path: Path, bad_client: tuple[int, int]) -> None:
    swallowed: list[int] = []

    def change(client: int, reply: Envelope) -> Envelope | LinkError | None:
        if (client, reply.values["round"]) == bad_client and len(swallowed) < 2:
            swallowed.append(client)
            return None if len(swallowed) == 1 else LinkError("the process was killed")
        return reply

    assert_same(deploy(tmp_path, "scaffold", change), simulation("scaffold"))
    assert len(swallowed) == 2


def test_a_client_that_stays_silent_is_left_out_at_the_rounds_end(tmp_path: Path, bad_client: Any) -> None:
    def change(client: int, reply: Envelope) -> Envelope | None:
        return None if (client, reply.values["round"]) == bad_client else reply

    result = deploy(tmp_path, "scaffold", change)
    told = "its node did not answer within 600 seconds (deploy.round_seconds)"
    assert result.history[1]["skipped"] == [{"client": bad_client[0], "reason": told}]


def test_too_few_answers_end_the_run_and_it_goes_on_when_they_are_back(tmp_path: Path) -> None:
    def change(client: int, reply: Envelope) -> Envelope | None:
        return None if reply.values["round"] == 1 else reply

    with pytest.raises(fk.TooFewClients, match="round 1: 0 of 3 clients answered"):
        deploy(tmp_path, "scaffold", change)
    assert_same(deploy(tmp_path, "scaffold"), simulation("scaffold"))


def test_a_server_that_is_stopped_says_how_far_it_was(tmp_path: Path) -> None:
    def stopped(client: int, reply: Envelope) -> Envelope:
        if reply.values["round"] == 1:
            raise SystemExit(0)  # so does Flower at SIGTERM
        return reply

    with pytest.raises(SystemExit):
        deploy(tmp_path, "scaffold", stopped)
    status = read_status(tmp_path / "run")
    assert status is not None
    assert (status.state, status.round, status.rounds) == ("stopped", 1, 3)


@pytest.mark.parametrize("method", ["scaffold", "stages((feddyn(0.1), 2), fedavg)"])
@pytest.mark.parametrize("at", [1, 3, 4, 6, 8])
def test_a_server_killed_at_any_message_and_resumed_ends_in_the_same_model(
    tmp_path: Path, method: str, at: int
) -> None:
    seen: list[int] = []

    class Killed(BaseException):
        pass

    def change(client: int, reply: Envelope) -> Envelope:
        seen.append(client)
        if len(seen) == at:
            raise Killed
        return reply

    with pytest.raises(Killed):
        deploy(tmp_path, method, change)
    assert_same(deploy(tmp_path, method), simulation(method))


def lose(tmp_path: Path, client: int, damage: bool = False) -> Change:
    """Let a node lose its memory after round 1: all of its disk, or one bit."""

    def change(who: int, reply: Envelope) -> Envelope:
        if reply.values.get("round") == 1 and who == client:
            folder = tmp_path / "nodes" / f"node{client}"
            if not damage:
                shutil.rmtree(folder)
            for file in folder.rglob("*.safetensors"):
                content = bytearray(file.read_bytes())
                content[-1] ^= 1
                file.write_bytes(content)
        return reply

    return change


@pytest.mark.parametrize("damage", [False, True])
def test_a_lost_memory_starts_the_method_afresh(tmp_path: Path, damage: bool, bad_client: Any) -> None:
    client = bad_client[0]
    result = deploy(tmp_path, "scaffold", lose(tmp_path, client, damage))
    assert result.history[2]["state_lost"] == [client]
    assert result.history[2]["restarted"] is True
    afresh = fk.stages((fk.SCAFFOLD(), 2), fk.SCAFFOLD(), memory="fresh")
    assert_same_model(result, simulation(afresh))


def test_or_only_the_clients_own_part_of_it(tmp_path: Path, bad_client: Any) -> None:
    client = bad_client[0]
    whole = deploy(tmp_path / "whole", "scaffold")
    path = tmp_path / "carried"
    result = deploy(path, "scaffold", lose(path, client), **{"deploy.on_loss": "carry"})
    assert result.history[2]["state_lost"] == [client]
    assert "restarted" not in result.history[2]
    assert rows(result)[:2] == rows(whole)[:2]
    assert result.history[2]["loss"] != whole.history[2]["loss"]


def test_a_run_directory_is_that_of_a_simulation(tmp_path: Path) -> None:
    result = deploy(tmp_path, "scaffold")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["engine"] == "flower"
    assert manifest["end"]["rounds"] == 3
    assert len(read_rows(tmp_path / "run")) == 3
    assert fk.load(tmp_path / "run").history == result.history


def test_without_a_test_set_the_server_evaluates_nothing(tmp_path: Path) -> None:
    config = configured(tmp_path, "fedavg")
    made = deployment(test=None)
    result = serve(made, FakeLink(made, config, tmp_path / "nodes"), config, FakeClock().clock())
    assert [row["loss"] for row in result.history] == [None] * 3
    assert [row["norm"] for row in result.history] == [row["norm"] for row in simulation("fedavg").history]


def test_a_probe_that_needs_the_clients_data_at_the_server_says_so(tmp_path: Path) -> None:
    with pytest.raises(fk.DataError, match="the clients' samples stay on their nodes"):
        deploy(tmp_path, "fedavg", set='probes=["losses"]')


class TestTheStart:
    """Nodes are asked who they are before the first round."""

    def begin(self, tmp_path: Path, change: Callable[[int, Envelope], Envelope], **options: Any) -> fk.Result:
        config = configured(tmp_path, "fedavg", **options)
        link = FakeLink(deployment(), config, tmp_path / "nodes")
        answered, link.replies = link.send, {}

        def send(node: int, kind: str, message: Envelope, seconds: float) -> str:
            number = answered(node, kind, message, seconds)
            reply = link.replies[number]
            if kind == "query" and isinstance(reply, Envelope):
                link.replies[number] = change(node - 100, reply)
            return number

        link.send = send  # type: ignore[method-assign]
        return serve(link.made, link, config, FakeClock().clock())

    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("samples", -30, "its samples = -30 is not a whole number from 1"),
            ("samples", 10**30, "is not a whole number from 1"),
            ("samples", True, "its samples = True is not a whole number"),
            ("client", 9, "its client = 9 is not a whole number from 0 to 3"),
            ("client", 0, "it says that it has client 0, which node 100 has"),
            ("fedkeel", "0.0.9", "its node runs fedkeel 0.0.9, the server"),
            ("failed", "DataError: no file", "DataError: no file"),
        ],
    )
    def test_a_node_that_makes_no_sense_is_named(
        self, tmp_path: Path, name: str, value: Any, told: str
    ) -> None:
        def change(client: int, reply: Envelope) -> Envelope:
            return with_value(name, value)(reply) if client == 2 else reply

        with pytest.raises(fk.DataError, match="node 102 cannot take part") as caught:
            self.begin(tmp_path, change)
        assert told in str(caught.value)

    def test_so_is_one_with_other_settings(self, tmp_path: Path) -> None:
        with pytest.raises(fk.ConfigError, match="client 3 has another task, method or initial weights"):
            self.begin(tmp_path, lambda who, reply: with_value("settings", "x")(reply) if who == 3 else reply)

    def test_a_node_that_does_not_answer_is_asked_again(self, tmp_path: Path) -> None:
        config = configured(tmp_path, "fedavg")
        link = FakeLink(deployment(), config, tmp_path / "nodes")
        answered, swallowed = link.send, list[int]()

        def send(node: int, kind: str, message: Envelope, seconds: float) -> str:
            number = answered(node, kind, message, seconds)
            if (node, kind) == (102, "query") and not swallowed:
                swallowed.append(node)
                del link.replies[number]
            return number

        link.send = send  # type: ignore[method-assign]
        assert_same(serve(link.made, link, config, FakeClock().clock()), simulation("fedavg"))
        assert swallowed == [102]

    def test_missing_clients_are_named(self, tmp_path: Path) -> None:
        config = configured(tmp_path, "fedavg")
        link = FakeLink(deployment(), config, tmp_path / "nodes")
        link.online -= {101, 103}
        with pytest.raises(fk.TooFewClients, match=r"these have none: 1, 3; start their nodes"):
            serve(link.made, link, config, FakeClock().clock())

    def test_data_that_does_not_fit_the_model_is_found_on_the_node(self, tmp_path: Path) -> None:
        config = configured(tmp_path, "fedavg")
        made = deployment()
        made._data = lambda node: (torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64))
        link = FakeLink(made, config, tmp_path / "nodes")
        with pytest.raises(fk.DataError, match="cannot take part"):
            serve(made, link, config, FakeClock().clock())


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("deploy.clients", 0, "clients = 0"),
        ("deploy.on_loss", "forget", "on_loss = 'forget'"),
        ("deploy.clint", 3, "clint"),
        ("engine", "serial", "engine: a deployment takes it from its code"),
        ("set", "data.name=mnist", "data: a deployment takes it from its code"),
        ("work.lerning", 3, "there is no key 'work.lerning'"),
        ("method", "fedavgg", "did you mean"),
        ("evaluate_on", "clients", "their samples stay on their nodes"),
    ],
)
def test_a_wrong_setting_is_named(key: str, value: Any, told: str) -> None:
    with pytest.raises(fk.ConfigError) as caught:
        RunConfig.read({**SETTINGS, key: value})
    assert told in str(caught.value)


def test_private_updates_are_not_deployed_as_nodes_could_subtract_the_noise(tmp_path: Path) -> None:
    config = {**SETTINGS, "method": "private(fedavg, clip=1.0, noise=1.0, delta=0.01)"}
    made = deployment()
    with pytest.raises(fk.ConfigError, match="every node knows the run's seed"):
        serve(made, FakeLink(made, config, tmp_path), config, FakeClock().clock())
