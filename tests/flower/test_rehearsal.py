"""What a rehearsal is made of, without Flower: processes, keys, the app that is written, wrong lines."""

from __future__ import annotations

import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import fedkeel as fk
from fedkeel.flower.envelope import HELLO, Envelope, WrongTensors, packed, unpacked
from fedkeel.flower.node import answer
from fedkeel.flower.options import RunConfig, flattened
from fedkeel.flower.rehearsal import app_files, processes
from fedkeel.flower.rehearsal.app_files import write_app
from fedkeel.flower.rehearsal.ports import check_port, free_ports
from fedkeel.flower.rehearsal.rehearsal import read_app

CHILD = "subprocess.Popen(['sleep', '99'], start_new_session={})"
SLEEPER = f"import subprocess, time; {CHILD.format(False)}; print('up', flush=True); time.sleep(99)"


def started(tmp_path: Path, code: str = SLEEPER) -> processes.Process:
    log = tmp_path / "log"
    made = processes.start(
        "one", [sys.executable, "-c", code], folder=tmp_path, log=log, env={"PATH": "/usr/bin:/bin"}
    )
    while made.alive and "up" not in log.read_text():
        pass
    return made


@pytest.mark.parametrize("own_session", [False, True])
def test_a_process_is_ended_with_all_that_it_started(tmp_path: Path, own_session: bool) -> None:
    one = started(tmp_path, SLEEPER.replace("=False", f"={own_session}"))
    assert one.alive
    assert len(one.members()) == 2
    assert processes.stop([one]) == []
    assert not one.alive
    assert not one.members()


@pytest.mark.parametrize("own_session", [False, True])
def test_so_are_children_of_one_that_has_ended(tmp_path: Path, own_session: bool) -> None:
    one = started(tmp_path, SLEEPER.replace("=False", f"={own_session}").replace("time.sleep(99)", "0"))
    while one.alive:
        pass
    assert len(one.members()) == 1
    assert processes.stop([one]) == []
    assert not one.members()


def test_what_does_not_listen_is_ended_too(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)"
    one = started(tmp_path, f"{deaf}; time.sleep(99)")
    processes.kill(one)
    assert not one.members()


@pytest.mark.slow
def test_a_stranger_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    one = started(tmp_path)
    stranger = one._replace(started="1", mark="another")
    assert not stranger.alive
    processes.stop([stranger])
    assert one.alive
    processes.stop([one])


def test_a_port_in_use_is_named_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(fk.ConfigError, match=f"port {port} on 127.0.0.1: .*: choose another with --port"):
            check_port(port)
    assert len(set(free_ports(5))) == 5


@pytest.mark.parametrize("method", ["scaffold", "stages((feddyn(0.1), 0.5), fedavg)"])
def test_the_app_that_is_written_is_complete(tmp_path: Path, method: str) -> None:
    folder = tmp_path / "My Hospitals"
    files = write_app(folder, method=method, model="mlp", nodes=3, rounds=7)
    config = RunConfig.read(flattened(read_app(folder)))
    assert (config.experiment.method, config.experiment.rounds, config.options.clients) == (method, 7, 3)
    assert config.experiment.skips_failed
    table = tomllib.loads((folder / "pyproject.toml").read_text())
    assert table["tool"]["flwr"]["app"]["components"]["clientapp"] == "my_hospitals.app:client"
    code = files[2].read_text()
    assert files[2] == folder / "my_hospitals" / "app.py"
    names: dict[str, object] = {}
    exec(compile(code.partition("server = ")[0], "app.py", "exec"), names)
    made = names["deployment"]
    assert isinstance(made, fk.flower.Deployment)
    assert len(made.at_server(config, [10, 20, 30]).federation) == 3


@pytest.mark.parametrize("model", ["mlp", "mlp(12, 7)", "logistic", "cnn", "resnet20"])
def test_an_app_with_another_model_fits_its_data(tmp_path: Path, model: str) -> None:
    files = write_app(tmp_path / "app", method="fedavg", model=model, nodes=2, rounds=2)
    names: dict[str, Any] = {}
    exec(compile(files[2].read_text().partition("server = ")[0], "app.py", "exec"), names)
    config = flattened(read_app(tmp_path / "app"))
    reply = answer(names["deployment"], HELLO, Envelope({}), config, {"client": 1, "state": str(tmp_path)})
    assert reply.values.get("samples") == 788, reply.values


def test_every_model_is_offered_but_those_for_text() -> None:
    assert {*app_files._MODELS} == {*fk.models.names()} - {"char_lstm"}


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("here")
    with pytest.raises(fk.StorageError, match="is there already and not empty"):
        write_app(tmp_path, method="fedavg", model="mlp", nodes=2, rounds=2)


def test_tensors_that_do_not_fit_a_record_are_refused() -> None:
    record = fk.SCAFFOLD().init(torch.zeros(3))
    wire = packed(down=record)
    assert set(wire) == {"down.x", "down.c"}
    back = unpacked(record, wire, "down", torch.device("cpu"))
    assert type(back) is type(record)
    with pytest.raises(WrongTensors, match=r"down\.c is missing"):
        unpacked(record, {"down.x": wire["down.x"]}, "down", torch.device("cpu"))
    with pytest.raises(fk.ConfigError, match="x is bfloat16, which Flower cannot send"):
        packed(x=torch.zeros(2, dtype=torch.bfloat16))


def test_a_message_comes_through_flowers_records_to_the_bit() -> None:
    pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedkeel[flower]"')
    from fedkeel.flower.adapter import unwrap, wrap

    tensors = {
        "x": torch.randn(3, 2),
        "n": torch.tensor([2**60]),
        "none": torch.empty(0),
        "d": torch.ones(1).double(),
    }
    sent = Envelope({"lr": 0.1 + 0.2, "due": [True, None], "text": "π"}, tensors)
    back = unwrap(wrap(sent))
    assert back.values == sent.values
    assert back.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back.tensors[name].dtype == tensor.dtype
        assert back.tensors[name].equal(tensor)


@pytest.mark.slow
def test_without_flower_the_line_that_installs_it_is_printed() -> None:
    code = "import sys; sys.modules['flwr'] = None; import fedkeel.flower; import fedkeel.flower.adapter"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'a deployment needs Flower: pip install "fedkeel[flower]"' in done.stderr
