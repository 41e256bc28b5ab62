"""`import fedkeel` imports nothing heavy; its names are there for `dir`, for checkers and on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fedkeel


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys\n{code}"], check=True)


def test_the_package_and_what_needs_no_tensor_import_without_torch() -> None:
    python(
        "import fedkeel\n"
        "assert 'train' in dir(fedkeel)\n"
        "assert fedkeel.__version__ and fedkeel.ConfigError and fedkeel.Work(epochs=1)\n"
        "import fedkeel.experiments.experiment, fedkeel.running.run_directory\n"
        "assert 'torch' not in sys.modules"
    )


FIRST_USES = (
    "import fedkeel as fk\nassert fk.data.load and fk.models.mlp and fk.probes.PROBES and fk.FedAvg()",
    "from fedkeel import data, models, probes, train\nassert data.load and callable(train)",
    "from fedkeel import *\nassert relaxed(SCAFFOLD(), beta=0.1)",
)


@pytest.mark.slow
def test_names_and_subpackages_are_imported_on_first_use() -> None:
    """Each in a process that knows nothing of fedkeel; torch is imported once for all of them."""
    python(
        "import os, torch\n"
        f"for code in {FIRST_USES}:\n"
        "    if os.fork() == 0:\n"
        "        exec(code, {})\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0, code"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fedkeel' has no attribute 'FedAverage'"):
        fedkeel.FedAverage  # noqa: B018


def test_checkers_see_the_names_that_are_there() -> None:
    """The imports under TYPE_CHECKING are `__all__`, and give the objects that users get."""
    tree = ast.parse(Path(fedkeel.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert sorted(seen) == sorted(fedkeel.__all__)
    for name, module in seen.items():
        home = import_module(module)
        expected = getattr(home, name, None) or import_module(f"{module}.{name}")
        assert getattr(fedkeel, name) is expected
