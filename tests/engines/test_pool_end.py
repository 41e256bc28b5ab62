"""Scripts that use worker processes: however they end, nothing stays behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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

    def plan(self, down, client, facts):
        return super().plan(down, client, facts)._replace(decay=0.01)

def show(row):
    if row["round"] == 0:
        print("begun", flush=True)

def main():
    clients = [(torch.randn(6, 3), torch.arange(6) % 2) for _ in range(8)]
    fk.train(
        fk.Task(Net()), fk.Federation.from_arrays(clients), Mine(), rounds=10**7, cohort=4,
        work=fk.Work(steps=1), execution=fk.Execution("processes", workers=2),
        evaluation=fk.Evaluation(10**7), callbacks=show,
    )
'''
EVALUATING = '''
import os
import threading

import fedkeel as fk
import torch
from fedkeel.engines.jobs import engine as job_engine
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

job_engine.WORTH_SENDING = 0.0
client, test = ((torch.randn(n, 3), torch.arange(n) % 2) for n in (6, 2500))
task = fk.Task(nn.Linear(3, 2), metrics={"endless": fk.mean_over_samples(Endless())})
fk.train(
    task, fk.Federation.from_arrays([client], test), fk.FedAvg(),
    rounds=1, cohort=1, work=fk.Work(steps=1), execution=fk.Execution("processes", workers=2),
)
'''
STARTING = '''
import threading

import fedkeel as fk
import torch
from torch import nn

class Endless:
    """A transform that a worker never comes to an end reading."""

    def __call__(self, x):
        return x

    def __reduce__(self):
        return wait, ()

def wait():
    print("begun", flush=True)
    threading.Event().wait()

client = torch.randn(6, 3), torch.arange(6) % 2
fk.train(
    fk.Task(nn.Linear(3, 2)), fk.Federation.from_arrays([client], transform=Endless()),
    fk.FedAvg(), rounds=1, cohort=1, work=fk.Work(steps=1), execution=fk.Execution("processes", workers=2),
)
'''
AT_ONCE = (
    SCRIPT
    + '''
@fk.method
class Mine(fk.FedAvg):
    """Its state is made when the fork server has just begun to import torch."""

    def init(self, x):
        print("begun", flush=True)
        return super().init(x)

main()
'''
)
GUARDED = SCRIPT + '\nif __name__ == "__main__":\n    main()\n'
UNGUARDED = SCRIPT + "\nmain()\n"
NOTEBOOKS = {"interrupted while evaluating"}  # run without a file, as notebooks are
DEADLINE = 120


class Script(NamedTuple):
    """A script that runs, and where its temporary files lie."""

    process: subprocess.Popen[str]
    directory: Path


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> Iterator[dict[str, Script]]:
    """Start all scripts at once: they spend most of their time importing."""
    texts = {
        "interrupted": UNGUARDED,
        "killed": GUARDED,
        "interrupted while evaluating": EVALUATING,
        "killed while evaluating": EVALUATING,
        "interrupted while starting": STARTING,
        "interrupted at once": AT_ONCE,
    }
    started = {}
    for name, text in texts.items():
        directory = tmp_path_factory.mktemp("script")
        (directory / "script.py").write_text(text)
        process = subprocess.Popen(
            [sys.executable, *(["-c", text] if name in NOTEBOOKS else [str(directory / "script.py")])],
            preexec_fn=interruptible,  # noqa: PLW1509
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(directory)},
            start_new_session=True,
        )
        started[name] = Script(process, directory)
    yield started
    for script in started.values():
        script.process.kill()
        script.process.communicate()


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


def failures(told: str) -> int:
    """Count the exceptions that processes ended with, each with those it came from as one."""
    chained = "During handling of the above exception", "was the direct cause of the following exception"
    return told.count("Traceback") - sum(map(told.count, chained))


@pytest.mark.slow(23)
@pytest.mark.parametrize(
    "name",  # that of the start first: it has a time limit
    ["interrupted while starting", "interrupted", "interrupted while evaluating"],
)
def test_an_interrupt_ends_all_processes(name, scripts):
    """All processes of the terminal get it, as after Ctrl-C, and one tells."""
    script = scripts[name].process
    for _ in range(2 if name == "interrupted while starting" else 1):  # each of the workers tells
        assert script.stdout.readline() == "begun\n"
    family = descendants(script.pid)
    assert len(family) == 4  # the resource tracker of multiprocessing, the fork server, two workers
    handles = [os.pidfd_open(pid) for pid in family]
    os.killpg(script.pid, signal.SIGINT)
    _, told = script.communicate(timeout=DEADLINE)
    assert ended(handles)
    assert "Stopped: stopped after" in told
    assert failures(told) == 1


@pytest.mark.slow(4)
def test_an_interrupt_while_the_fork_server_starts_ends_it_too(scripts):
    script = scripts["interrupted at once"].process
    assert script.stdout.readline() == "begun\n"
    handles = [os.pidfd_open(pid) for pid in descendants(script.pid)]
    os.killpg(script.pid, signal.SIGINT)
    _, told = script.communicate(timeout=DEADLINE)
    assert ended(handles)
    assert failures(told) == 1


@pytest.mark.slow(8)
@pytest.mark.parametrize("name", ["killed", "killed while evaluating"])
def test_nothing_outlives_a_main_process_that_is_killed(name, scripts):
    script, directory = scripts[name]
    assert script.stdout.readline() == "begun\n"
    handles = [os.pidfd_open(pid) for pid in descendants(script.pid)]
    assert len(handles) == 4
    script.kill()
    assert ended(handles)
    assert [path.name for path in directory.iterdir()] == ["script.py"]
