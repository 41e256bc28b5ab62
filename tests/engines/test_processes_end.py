"""Scripts that use worker processes: however they end, nothing stays behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import interruptible

SCRIPT = '''
import fedkeel as fk
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        return self.inner(x)

@fk.method
class Mine(fk.SCAFFOLD):
    """A user's own method with a lambda's worth of change."""

    def plan(self, down, client):
        return super().plan(down, client)._replace(decay=0.01)

def show(row):
    if row["round"] == 0:
        print("begun", flush=True)

def main():
    clients = [(torch.randn(6, 3), torch.arange(6) % 2) for _ in range(8)]
    fk.train(
        fk.Task(Net()), fk.Federation.from_arrays(clients), Mine(), rounds=10**7, cohort=4,
        work=fk.Work(steps=1), engine="processes", workers=2, eval_every=10**7, callback=show,
    )
'''
JUDGING = '''
import os
import threading

import fedkeel as fk
import torch
from fedkeel.engines.processes import engine
from torch import nn

class Endless:
    """A metric that a worker never comes to an end with."""

    def __init__(self):
        self.parent = os.getpid()

    def __call__(self, output, target):
        if os.getpid() != self.parent:
            print("begun", flush=True)
            threading.Event().wait()
        return output.mean()

def main():
    engine._SENDING = 0.0
    client, test = ((torch.randn(n, 3), torch.arange(n) % 2) for n in (6, 2500))
    fk.train(
        fk.Task(nn.Linear(3, 2), metrics={"endless": Endless()}), fk.Federation.from_arrays([client], test),
        fk.FedAvg(), rounds=1, cohort=1, work=fk.Work(steps=1), engine="processes", workers=2,
    )

if __name__ == "__main__":
    main()
'''
GUARDED = SCRIPT + '\nif __name__ == "__main__":\n    main()\n'
UNGUARDED = SCRIPT + "\nmain()\n"
DEADLINE = 120


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start all scripts at once: they spend most of their time importing."""
    folder = tmp_path_factory.mktemp("scripts")
    started = {}
    texts = {
        "interrupted": GUARDED,
        "killed": GUARDED,
        "interrupted judging": JUDGING,
        "killed judging": JUDGING,
        "unguarded": UNGUARDED,
    }
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
        started[name] = subprocess.Popen(
            [sys.executable, str(folder / f"{name}.py")],
            preexec_fn=interruptible,  # noqa: PLW1509
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


def ended(handles: list[int]) -> bool:
    """Wait until all processes have ended, or the deadline."""
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(DEADLINE * 1000):
            return False
        os.close(handle)
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("interrupted", signal.SIGINT),
        ("killed", signal.SIGKILL),
        ("interrupted judging", signal.SIGINT),
        ("killed judging", signal.SIGKILL),
    ],
)
def test_no_process_outlives_its_parent(name, number, scripts):
    script = scripts[name]
    assert script.stdout.readline() == "begun\n"
    family = descendants(script.pid)
    assert len(family) == 3  # where workers come from, and two of them
    handles = [os.pidfd_open(pid) for pid in family]
    os.killpg(script.pid, number)
    _, told = script.communicate(timeout=DEADLINE)
    assert ended(handles)
    if number == signal.SIGINT:
        assert "Stopped: stopped after" in told
        assert told.count("Traceback") == 1
    else:
        assert script.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_script_that_trains_when_imported_is_told_what_is_missing(scripts):
    _, told = scripts["unguarded"].communicate(timeout=DEADLINE)
    assert scripts["unguarded"].returncode == 1
    assert "ConfigError" in told
    assert 'put the training under  if __name__ == "__main__":' in told
    assert told.count("Traceback") == 1
