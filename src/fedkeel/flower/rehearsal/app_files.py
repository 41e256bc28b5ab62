"""The app that `fedkeel deploy init` writes: complete, commented, and run as it is."""

from __future__ import annotations

import re
from pathlib import Path

from fedkeel.common.errors import ConfigError, StorageError, did_you_mean
from fedkeel.common.files import storage_errors
from fedkeel.experiments.expression import parse_model

_PYPROJECT = """\
# A Flower app that trains with fedkeel. `fedkeel deploy up` rehearses it on this machine.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "Federated training with fedkeel"
license = "Apache-2.0"
dependencies = ["fedkeel[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "{package}"

[tool.flwr.app.components]
serverapp = "{package}.app:server"
clientapp = "{package}.app:client"

# What decides the run: the keys of a fedkeel experiment file. `fedkeel deploy up --set work.lr=0.05` and
# `flwr run . -c "rounds=50"` change them for one run.
[tool.flwr.app.config]
method = "{method}"
rounds = {rounds}
cohort = 1.0                    # clients per round: a count, or a fraction of them
seed = 0
weighting = "uniform"           # or "samples": clients count by their number of samples
on_client_error = "skip"   # a round skips a client that fails; "stop" ends the run
min_clients = 0.5               # fewer answers than this end the run, which can be resumed
set = ""                        # further settings, one per line, as --set takes them

[tool.flwr.app.config.work]     # what a client does in a round
epochs = 1
batch_size = 20
lr = 0.1
lr_decay = 1.0
weight_decay = 0.0

[tool.flwr.app.config.deploy]
clients = {nodes}                     # each on a node of its own, numbered from 0
run_dir = "runs/deployment"     # where the server keeps the run: history, checkpoints, model
on_loss = "restart"             # a node that lost its disk: all start afresh; "carry": only its client
round_seconds = 600.0           # time limit of a round
retries = 2                     # how often a silent client is asked again within that time
wait_seconds = 300.0            # how long nodes are waited for before the first round
"""

_APP = '''\
"""The app: what is trained, and on which data. Everything else is in pyproject.toml."""

from typing import Any
{imports}
import fedkeel as fk
from fedkeel.flower import Deployment, Node, client_app, server_app


def task() -> fk.Task:
    """Return model, loss and metrics: the same on every machine."""
    return fk.Task({model})


def data(node: Node) -> Any:
    """Return this node's data, (x, y) or a torch Dataset. It is called on the node and never leaves it.

    In a rehearsal each node takes its own part of the digits. On a real node read what lies there:
    `node.config` holds what its SuperNode was told, as in --node-config 'client=0 path="/data/mine.npz"'.
    """
    return _digits(node.clients).samples(node.client)


def test() -> Any:
    """Return what the server evaluates the model on, or None where it has no data."""
    return _digits(1).test


def _digits(clients: int) -> fk.Federation:
    return fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=clients, seed=0)


{transform}deployment = Deployment(task, data, test=test, classes=10{argument})
server = server_app(deployment)
client = client_app(deployment)
'''

_PICTURES = '''\
def pictures(x: torch.Tensor) -> torch.Tensor:
    """Make a batch of digits, 64 numbers each, the pictures that the model takes."""
    return torch.nn.functional.interpolate(x.reshape(-1, 1, 8, 8), size=({size}, {size}))


'''

# What a model is given for the digits, and the size of the pictures that it takes, if it does.
_MODELS: dict[str, tuple[dict[str, int], int | None]] = {
    "mlp": ({}, None),
    "logistic": ({"inputs": 64}, None),
    "cnn": ({"channels": 1, "size": 16}, 16),
    "lenet": ({"channels": 1, "size": 16}, 16),
    "vgg11": ({"channels": 1}, 32),
    "resnet18": ({"channels": 1}, 8),
    "resnet18_gn": ({"channels": 1}, 8),
    "resnet20": ({"classes": 10, "channels": 1}, 8),
    "resnet34": ({"classes": 10, "channels": 1}, 8),
}

_README = """\
# {name}

A Flower app that trains with fedkeel. Your part is in `{package}/app.py`: `task()` and `data(node)`.

    fedkeel deploy up .          # a rehearsal on this machine, with TLS and a key for every node
    fedkeel deploy status .      # from another terminal
    fedkeel deploy down .        # ends what a killed rehearsal left running
    fedkeel show runs/deployment

On real machines: fedkeel's docs/deployment.md.
"""

_IGNORED = ".deploy/\nruns/\nfedkeel-state/\n__pycache__/\n"


def write_app(folder: Path, *, method: str, model: str, nodes: int, rounds: int) -> list[Path]:
    """Write an app into a new or empty directory; return its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(f"{folder}: is there already and not empty: choose a new directory")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not name or not name[0].isalpha():
        raise ConfigError(
            f"{folder}: an app is named after its directory: give one that begins with a letter"
        )
    code = _code(model)
    package = name.replace("-", "_")
    values = {"name": name, "package": package, "nodes": nodes, "rounds": rounds}
    files = {
        folder / "pyproject.toml": _PYPROJECT.format(method=method.replace('"', '\\\\"'), **values),
        folder / package / "__init__.py": '"""A Flower app that trains with fedkeel."""\n',
        folder / package / "app.py": code,
        folder / "README.md": _README.format(**values),
        folder / ".gitignore": _IGNORED,
    }
    with storage_errors(folder):
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    return list(files)


def _code(model: str) -> str:
    """Return the app's program for a model: a name, or a name with arguments of its own."""
    name = model.partition("(")[0].strip()
    if name not in _MODELS:
        raise ConfigError(
            f"--model {model}: an app learns the digits at first; {did_you_mean(name, _MODELS)}"
        )
    fixed, size = _MODELS[name]
    own = parse_model(model).options if "(" in model else {}
    options = ", ".join(f"{key}={value!r}" for key, value in {**own, **fixed}.items())
    made = f"lambda: fk.models.{name}({options})" if options else f"fk.models.{name}"
    if size is None:
        return _APP.format(model=made, imports="", transform="", argument="")
    transform, argument = _PICTURES.format(size=size), ", transform=pictures"
    return _APP.format(model=made, imports="\nimport torch\n", transform=transform, argument=argument)
