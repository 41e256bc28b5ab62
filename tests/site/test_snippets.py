"""Every Python snippet in README and docs/ runs, with fewer rounds; scripts in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented import PAGES, ROOT, name, python

# pages whose Python has tests of its own that look at what comes out
ELSEWHERE = {"docs/python.md", "docs/tasks.md", "CONTRIBUTING.md"}
METHODS = [page for page in PAGES if page.parent.name == "methods"]
OTHERS = [page for page in PAGES if python(page) and page not in METHODS and name(page) not in ELSEWHERE]
_INTERRUPTED = """
import fedkeel as fk
train = fk.train
def stop(row):
    if row["round"] == 1:
        raise KeyboardInterrupt
fk.train = lambda *args, **more: train(*args, callbacks=stop, **more)
"""


def short(text: str) -> str:
    """Return a snippet with few rounds."""
    return re.sub(r"rounds=(\d+)", lambda found: f"rounds={min(int(found[1]), 4)}", text)


@pytest.mark.parametrize("page", OTHERS, ids=name)
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(python(page))
    sets = Path(os.environ.get("FEDKEEL_DATA", "/nowhere"))
    for real in re.findall(r'data\.load\("(cifar10|cifar100|mnist)"', text):
        if not list(sets.glob(f"{real}*")):
            pytest.skip(f"needs {real} in FEDKEEL_DATA")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "snippet"}
    for index, block in enumerate(python(page)):
        exec(compile(short(block), f"{name(page)}, block {index}", "exec", dont_inherit=True), names)


def test_the_snippets_of_the_methods_run() -> None:
    for page in METHODS:
        for block in python(page):
            names: dict[str, object] = {}
            exec(compile(block, name(page), "exec", dont_inherit=True), names)
            assert type(names["method"]).__module__.startswith("fedkeel.methods")


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_script_that_resumes_goes_on_in_a_new_process(page: str, tmp_path: Path) -> None:
    """Interrupted in one process, finished in a second, read in a third; the model is that of one run."""
    script = next(block for block in python(ROOT / page) if "resume=True" in block)
    script = short(script) + "\nprint('rounds', len(result.history), float(result.history[-1]['loss']))\n"
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "stopped.py").write_text(_INTERRUPTED + script)
    (tmp_path / "whole.py").write_text(re.sub(r'run_dir="[^"]*"', 'run_dir="runs/whole"', script))

    def run(file: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    stopped = run("stopped.py")
    assert "Stopped" in stopped.stderr, stopped.stderr
    resumed, again, whole = run("train.py"), run("train.py"), run("whole.py")
    assert resumed.returncode == 0, resumed.stderr
    last = whole.stdout.splitlines()[-1]
    assert last.startswith("rounds 4 ")
    assert resumed.stdout.splitlines()[-1] == again.stdout.splitlines()[-1] == last
