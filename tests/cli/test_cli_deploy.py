"""`fedkeel deploy` where nothing can start: what, where, the next step, and nothing left running."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from fedkeel.flower.status import ServerStatus, write_status

flower_is_installed = pytest.mark.skipif(
    shutil.which("flower-superlink", path=str(Path(sys.executable).parent)) is None,
    reason='Flower is not installed: pip install "fedkeel[flower]"',
)


@pytest.fixture
def hospitals(fedkeel) -> Path:
    fedkeel("deploy", "init", "hospitals", "--method", "scaffold", "--nodes", "2")
    return Path("hospitals")


def test_init_says_where_ones_own_part_is_and_how_to_go_on(fedkeel) -> None:
    told = fedkeel("deploy", "init", "hospitals").stdout
    assert "your part: hospitals/hospitals/app.py" in told
    assert "fedkeel deploy up hospitals" in told


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("init", "new", "--method", "scafold"), 2, "did you mean 'SCAFFOLD'"),
        (("init", "new", "--model", "mpl"), 2, "mlp"),
        (("init", "new", "--nodes", "0"), 2, "--nodes"),
        (("init", "new", "--model", "char_lstm"), 2, "an app learns the digits at first"),
        (("init", "1st"), 2, "begins with a letter"),
        (("init", "hospitals"), 6, "is there already and not empty"),
        (("up", "nowhere"), 2, "fedkeel deploy init DIR"),
        (("up", "hospitals", "--set", "rouns=3"), 2, "rounds"),
        (("up", "hospitals", "--set", "method=nothing"), 2, "nothing"),
        (("up", "hospitals", "--set", "deploy.retires=3"), 2, "retries"),
        (("up", "hospitals", "--set", "engine=serial"), 2, "engine: a deployment takes it from its code"),
        (("status", "nowhere"), 2, "there is no app"),
        (("down", "nowhere"), 2, "there is no app"),
    ],
)
def test_a_wrong_line_is_refused_with_the_way_out(
    fedkeel, hospitals: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    result = fedkeel("deploy", *words, code=code)
    assert told in result.stderr
    assert not (hospitals / ".deploy").exists()


def test_status_and_down_before_anything_was_up(fedkeel, hospitals: Path) -> None:
    assert "nothing is running" in fedkeel("deploy", "status", hospitals).stdout
    assert json.loads(fedkeel("deploy", "status", hospitals, "--json").stdout)["processes"] == []
    assert "nothing is running" in fedkeel("deploy", "down", hospitals).stdout


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_status_says_how_to_go_on_where_nothing_runs_any_more(fedkeel, hospitals: Path, state: Any) -> None:
    write_status(hospitals / "runs/deployment", ServerStatus(state, clients=2, round=4, rounds=10))
    told = fedkeel("deploy", "status", hospitals).stdout
    assert "the run stopped after 4 of 10 rounds; go on with it: fedkeel deploy up hospitals" in told


@flower_is_installed
@pytest.mark.slow
def test_a_port_in_use_is_named_and_nothing_is_left(fedkeel, hospitals: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = fedkeel("deploy", "up", hospitals, "--port", str(port), code=2)
    assert f"port {port} on 127.0.0.1" in result.stderr
    assert "choose another with --port" in result.stderr
    assert "nothing is running" in fedkeel("deploy", "status", hospitals).stdout


@flower_is_installed
@pytest.mark.slow
def test_code_that_does_not_load_is_named_before_anything_starts(fedkeel, hospitals: Path) -> None:
    code = hospitals / "hospitals/app.py"
    code.write_text(code.read_text() + "\nimport nosuchmodule\n")
    told = fedkeel("deploy", "up", hospitals, code=2).stderr
    assert "hospitals: its code does not load: ModuleNotFoundError: No module named 'nosuchmodule'" in told
    assert "app.py" in told
    assert not (hospitals / ".deploy").exists()


@flower_is_installed
@pytest.mark.slow
def test_a_certificate_of_another_authority_is_named_and_nothing_is_left(fedkeel, hospitals: Path) -> None:
    from fedkeel.flower.rehearsal.keys import make_certificates

    keys = hospitals / ".deploy/keys"
    for folder in (keys, Path("others")):
        folder.mkdir(parents=True)
        make_certificates(folder, ["127.0.0.1"])
    shutil.copy("others/ca.crt", keys)
    result = fedkeel("deploy", "up", hospitals, code=2)
    assert "server.pem: is not signed by the authority in ca.crt beside it: remove" in result.stderr
    assert "nothing is running" in fedkeel("deploy", "status", hospitals).stdout


def test_without_flower_the_line_that_installs_it_is_printed(
    fedkeel, hospitals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    result = fedkeel("deploy", "up", hospitals, code=2)
    assert 'a deployment needs Flower: pip install "fedkeel[flower]"' in result.stderr
    assert not (hospitals / ".deploy").exists()
