"""Who drives a run may be killed: the run goes on later to the same bit, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import interruptible

pytest.importorskip("ray", reason='needs Ray: pip install "fedkeel[ray]", or `make ray`')

RUN = '''
import sys

import fedkeel as fk
import torch
from torch import nn

torch.set_num_threads(1)
engine, address, directory, wait = sys.argv[1:]
generator = torch.Generator().manual_seed(1)
data = [(torch.randn(8, 3, generator=generator), torch.arange(8) % 2) for _ in range(12)]


class Net(nn.Linear):
    """A model of the script's own."""

    def forward(self, x):
        return super().forward(x).tanh()


def told(row):
    print(f"round {row['round']}", flush=True)
    if row["round"] == 2 and wait == "wait":
        input()


fk.train(
    fk.Task(lambda: Net(3, 2)), fk.Federation.from_arrays(data), fk.SCAFFOLD(), rounds=5, cohort=9,
    work=fk.Work(epochs=2, batch_size=4), run_dir=directory, resume=True, callbacks=told,
    execution=fk.Execution(
        engine, address=address or None, workers=1 if engine == "ray" and not address else None,
        threads=1, checkpoint_every=1, keep_client_states=True,
    ),
)
'''


def start(script: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(script), *words], **pipes, **options)


def end_of(process: subprocess.Popen[str]) -> int:
    """Wait for its end, and close what leads to it."""
    process.communicate(timeout=150)
    return process.returncode


def until_round(process: subprocess.Popen[str], number: int) -> None:
    while (line := process.stdout.readline()).strip() != f"round {number}":
        assert line, "it has ended"


def ended(marker: str) -> bool:
    """Wait until no process with a word in its command or environment is left; tell whether that came."""
    for _ in range(1200):
        if not alive(marker):
            return True
        time.sleep(0.1)
    return False


def alive(marker: str) -> int:
    """Return how many processes have a word in their command or environment."""
    return sum(marker in text for text in _processes())


def _processes() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            text = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:  # it has just ended
            continue
        if state != "Z":
            found.append(text.decode(errors="replace"))
    return found


def left(directory: Path) -> tuple[str, bytes]:
    return (directory / "metrics.jsonl").read_text(), (directory / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("driver") / "script.py"
    path.write_text(RUN)
    return path


@pytest.fixture(scope="module")
def whole(script, tmp_path_factory) -> tuple[str, bytes]:
    """What the run leaves where nothing happens to it, by serial."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    assert end_of(start(script, "serial", "", str(directory), "go")) == 0
    return left(directory)


def test_a_killed_driver_resumes_on_the_cluster_to_the_same_bit(nodes, script, whole, tmp_path):
    marked = {**os.environ, "FEDKEEL_TEST_MARK": tmp_path.name}
    process = start(script, "ray", nodes.address, str(tmp_path / "run"), "wait", env=marked)
    until_round(process, 2)
    process.kill()
    end_of(process)
    process = start(script, "ray", nodes.address, str(tmp_path / "run"), "go", env=marked)
    assert end_of(process) == 0
    assert left(tmp_path / "run") == whole
    assert ended(tmp_path.name)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, None], ids=str)
def test_a_ray_of_our_own_ends_with_the_run_however_that_ends(script, whole, tmp_path, number):
    mark = f"mark-{tmp_path.name}"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"FEDKEEL_TEST_MARK": mark, "TMPDIR": "/tmp"}
    wait = "go" if number is None else "wait"
    process = start(script, "ray", "", str(tmp_path / "run"), wait, env=environment, preexec_fn=interruptible)
    if number is not None:
        until_round(process, 2)
        assert alive(mark) > 5, "Ray is running"
        process.send_signal(number)
    assert end_of(process) == {None: 0, signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 1}[number]
    assert ended(mark)
    if number is None:
        assert left(tmp_path / "run") == whole
