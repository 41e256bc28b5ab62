"""What trackers are given of a run, read back with their own packages, which `make trackers` installs."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flat
import pytest
from problems import tiny_net

import fedkeel as fk
from fedkeel.trackers.base import Tracker, numbers_of

pytestmark = [  # of the packages, on each other
    pytest.mark.filterwarnings(f"ignore::{kind}")
    for kind in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning", "ResourceWarning")
]
WORK = fk.Work(epochs=1, batch_size=3, lr=0.1)
Points = dict[int, float]  # by round


def train(tracker: Any, path: Path | None = None, **options: Any) -> fk.Result:
    problem = tiny_net([3, 8, 5, 11, 4, 7])
    given: dict[str, Any] = {
        "rounds": 6,
        "cohort": 3,
        "work": WORK,
        "engine": "serial",
        "checkpoint_every": 2,
    }
    given |= {"run_dir": path, "resume": path is not None, "callbacks": tracker} | options
    return flat.train(problem.task, problem.federation, fk.SCAFFOLD(), **given)


def points(listed: list[tuple[int, float]]) -> Points:
    """Return a curve; no round may be in it twice."""
    assert len(dict(listed)) == len(listed), "a round was logged twice"
    return dict(listed)


class TensorBoardReader:
    package = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tracker(self) -> Tracker:
        return fk.trackers.TensorBoard(self.folder / "logs")

    def _events(self) -> Any:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        (where,) = {file.parent for file in (self.folder / "logs").rglob("events.*")}
        return EventAccumulator(str(where), size_guidance={"scalars": 0}).Reload()

    def curve(self, column: str) -> Points:
        return points([(event.step, event.value) for event in self._events().Scalars(column)])

    def settings(self) -> str:
        (event,) = self._events().Tensors("settings/text_summary")
        return event.tensor_proto.string_val[0].decode()

    def ended(self) -> str:
        return self._events().Tensors("end/text_summary")[-1].tensor_proto.string_val[0].decode()


class MLflowReader:
    package = "mlflow"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tracker(self) -> Tracker:
        return fk.trackers.MLflow(self.folder / "mlflow.db")

    def _run(self) -> Any:
        from mlflow import MlflowClient

        self.client = MlflowClient(f"sqlite:///{self.folder}/mlflow.db")
        (group,) = [one for one in self.client.search_experiments() if one.name == "fedkeel"]
        (run,) = self.client.search_runs([group.experiment_id])
        return run

    def curve(self, column: str) -> Points:
        run = self._run()
        history = self.client.get_metric_history(run.info.run_id, column)
        return points([(one.step, one.value) for one in history])

    def settings(self) -> str:
        return str(self._run().data.params)

    def ended(self) -> str:
        run = self._run()
        return f"{run.info.status} {run.data.tags}"


def parts_of(content: bytes) -> Iterator[bytes]:
    """Yield the records of W&B's file: LevelDB's log format (blocks of 32 KiB) after a head of 7 bytes."""
    place, begun = 7, b""
    while place + 7 <= len(content):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        begun += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # whole, or the last piece
            yield begun
            begun = b""


class WandBReader:
    package = "wandb"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tracker(self) -> Tracker:
        return fk.trackers.WandB(directory=self.folder)

    def _records(self) -> list[Any]:
        """Return all records; W&B's own process writes the last ones a moment after a run is closed."""
        from wandb.proto.wandb_internal_pb2 import Record

        end = time.monotonic() + 30
        while time.monotonic() < end:
            files = sorted(self.folder.rglob("*.wandb"))
            lists = [[*map(Record.FromString, parts_of(file.read_bytes()))] for file in files]
            if all(found and found[-1].WhichOneof("record_type") == "exit" for found in lists):
                return [record for found in lists for record in found]
            time.sleep(0.05)
        raise AssertionError("a run was not closed")

    def curve(self, column: str) -> Points:
        found = []
        for record in self._records():
            if record.WhichOneof("record_type") == "history":
                items = {one.key or "/".join(one.nested_key): one.value_json for one in record.history.item}
                if column in items:
                    found.append((record.history.step.num, json.loads(items[column])))
        return points(found)

    def settings(self) -> str:
        records = [r.run for r in self._records() if r.WhichOneof("record_type") == "run"]
        assert len({run.run_id for run in records}) == 1
        return str([(one.key, one.value_json) for one in records[0].config.update])

    def ended(self) -> str:
        records = self._records()
        summary = {
            one.key or "/".join(one.nested_key): one.value_json
            for record in records
            if record.WhichOneof("record_type") == "summary"
            for one in record.summary.update
        }
        return str(summary)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new file of MLflow: to make one takes it seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(params=[TensorBoardReader, MLflowReader, WandBReader], ids=lambda kind: kind.package)
def reader(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip(request.param.package, reason="`make trackers` installs it")
    monkeypatch.chdir(tmp_path)
    if request.param is MLflowReader:
        shutil.copy(request.getfixturevalue("empty_store"), tmp_path)
    return request.param(tmp_path)


def test_every_round_settings_and_summary_are_there(reader: Any, tmp_path: Path) -> None:
    result = train(reader.tracker(), tmp_path / "runs" / "a")
    for column in ("loss", "train_loss", "accuracy", "bytes_up", "clients"):
        assert list(reader.curve(column)) == list(range(6)), column
    assert reader.curve("loss") == pytest.approx({row["round"]: row["loss"] for row in result.history})
    assert set(reader.curve("clients").values()) == {3}
    assert "SCAFFOLD" in reader.settings()
    assert "finished" in reader.ended().lower()
    assert "best_round" in reader.ended()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_a_resumed_run_logs_no_round_twice(reader: Any, tmp_path: Path, interruption: type) -> None:
    """It is interrupted after a round that the checkpoint does not have; as a kill would leave it."""
    path = tmp_path / "runs" / "a"

    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise interruption("on purpose")

    with pytest.raises((fk.Stopped, RuntimeError)):
        train([reader.tracker(), interrupt], path)
    assert list(reader.curve("loss")) == [0, 1, 2, 3]
    assert "finished" not in reader.ended().lower()
    result = train(reader.tracker(), path)
    assert reader.curve("loss") == pytest.approx({row["round"]: row["loss"] for row in result.history})


def test_a_killed_run_that_plays_rounds_again_logs_none_twice(reader: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a"
    first = reader.tracker()

    class Killed(BaseException):
        """Leaves no checkpoint behind, as a kill."""

    def kill(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise Killed

    with pytest.raises(Killed):
        train([first, kill], path)
    result = train(reader.tracker(), path)
    assert reader.curve("loss") == pytest.approx({row["round"]: row["loss"] for row in result.history})


def test_a_tracker_that_comes_late_is_given_the_rounds_before(reader: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a"
    train(None, path, rounds=3, keep_client_states=True)
    train(reader.tracker(), path, rounds=5, keep_client_states=True)
    assert list(reader.curve("train_loss")) == list(range(5))


def test_several_runs_of_one_tracker_are_kept_apart(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="`make trackers` installs it")
    tracker = fk.trackers.TensorBoard(tmp_path / "logs")
    for name in ("a", "b"):
        train(tracker, tmp_path / "runs" / name)
    train(tracker)
    assert len({file.parent for file in (tmp_path / "logs").rglob("events.*")}) == 3


def test_the_command_line_and_files_track_too(reader: Any, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from fedkeel.cli import app

    tiny = ["--clients", "4", "--cohort", "2", "--steps", "1", "--batch-size", "8", "--rounds", "3"]
    where = {"tensorboard": "=logs"}.get(reader.package, "")
    line = ["run", *tiny, "--track", f"{reader.package}{where}", "--keep-client-states", "--out", "runs/x"]
    for words in (line, ["resume", "runs/x", "--rounds", "5"]):
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 0, told.output
    assert list(reader.curve("loss")) == list(range(5))
    assert "digits" in reader.settings()


def offline(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that cannot open a connection to another machine."""
    guard = (
        "import socket\n"
        "real = socket.socket.connect\n"
        "def connect(self, address):\n"
        "    if self.family != socket.AF_UNIX and address[0] not in ('127.0.0.1', 'localhost', '::1'):\n"
        "        print('PHONES HOME', address, flush=True)\n"
        "    return real(self, address)\n"
        "socket.socket.connect = connect\n"
        "def refuse(host, *a, **k):\n"
        "    if host not in (None, 'localhost', '127.0.0.1', '::1', ''):\n"
        "        print('PHONES HOME', host, flush=True)\n"
        "    return before(host, *a, **k)\n"
        "before, socket.getaddrinfo = socket.getaddrinfo, refuse\n"
    )
    return subprocess.run(
        [sys.executable, "-c", guard + code],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )


@pytest.mark.slow(10)
def test_nothing_phones_home(reader: Any, tmp_path: Path) -> None:
    made = repr(reader.tracker())
    code = (
        "import fedkeel as fk, torch\n"
        "from torch import nn\n"
        "clients = [(torch.randn(6, 3), torch.arange(6) % 2) for _ in range(4)]\n"
        "federation = fk.Federation.from_arrays(clients)\n"
        "fk.train(fk.Task(nn.Linear(3, 2)), federation, fk.FedAvg(), rounds=3, cohort=2,\n"
        f"    work=fk.Work(epochs=1), execution=fk.Execution('serial'), callbacks=[fk.trackers.{made}])\n"
    )
    told = offline(code, tmp_path)
    assert told.returncode == 0, told.stderr
    assert "PHONES HOME" not in told.stdout


def test_numbers_of_a_row_are_its_numbers_and_lengths() -> None:
    row = {
        "round": 3,
        "cohort": [1, 2],
        "loss": 0.5,
        "accuracy": None,
        "skipped": [{"client": 1, "reason": "NaN"}],
    }
    assert numbers_of(row) == {"clients": 2, "loss": 0.5, "skipped": 1}


MISSING: list[tuple[str, Callable[[], Tracker]]] = [
    ("tensorboard", fk.trackers.TensorBoard),
    ("mlflow", fk.trackers.MLflow),
    ("wandb", fk.trackers.WandB),
]


@pytest.mark.parametrize(("package", "make"), MISSING)
def test_a_missing_package_says_what_to_install(
    package: str, make: Callable[[], Tracker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(fk.ConfigError, match=rf'pip install "fedkeel\[{package}\]"'):
        train(make())
