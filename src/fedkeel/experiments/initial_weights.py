"""The initial weights of a run: from a file, from a finished run, or from pre-training on other data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from fedkeel.common.errors import ConfigError, DataError
from fedkeel.experiments import COMPARISON_FILE, STUDY_FILE
from fedkeel.experiments.expression import parse_init, parse_model
from fedkeel.experiments.pretraining import pretrained, pretraining_of, tell
from fedkeel.experiments.sections import is_init_expression
from fedkeel.running.ending import MODEL_FILE
from fedkeel.running.run_directory import read_end_file, read_manifest, read_rows

_INSTEAD = (
    "give a file of weights (the model.safetensors of a run), the directory of a finished run, or "
    'Pretrain("cifar10", epochs=5)'
)


class InitialWeights(NamedTuple):
    """Weights that fit a model: those that are taken, and the names of those that the model keeps.

    `source` is the text that asked for them, `sha256` the hash of the file they are from.
    """

    source: str
    sha256: str
    taken: dict[str, Tensor]
    kept: tuple[str, ...]

    def put_into(self, module: nn.Module) -> None:
        """Give the model its weights; what counts steps (BatchNorm) stays as it is."""
        module.load_state_dict(self.taken, strict=False)

    def describe(self) -> dict[str, Any]:
        """Return what a run's manifest says of them."""
        return {"from": self.source, "sha256": self.sha256, "kept_by_model": list(self.kept)}


class _Fit(NamedTuple):
    """Names of weights that are taken, and of those of the last layer that are for other classes."""

    taken: tuple[str, ...]
    kept: tuple[str, ...]


def find_initial_weights(source: str, module: nn.Module, model: str, device: str) -> InitialWeights:
    """Read or make what `source` asks for, for the model of that name; a mistake is told with it.

    The last layer keeps its own weights where those are for another number of classes, which a line on the
    standard error says.
    """
    with _told_with(source):
        if is_init_expression(source):
            file = _pretrained_file(source, module, model, device)
        else:
            file = _given_file(source)
        content, found = _read(file)
        fit = _compare(module, found, model)
        broken = next((name for name in fit.taken if not found[name].isfinite().all()), None)
        if broken is not None:
            raise ConfigError(f"{broken} holds numbers that are not finite: give the weights of another run")
        if fit.kept:
            there, here = found[fit.kept[0]].shape[0], module.state_dict()[fit.kept[0]].shape[0]
            _tell_once(
                f"model.init = {source!r}: {' and '.join(fit.kept)} keep their own initial weights, for they "
                f"are of {there} classes there and of {here} here"
            )
        taken = {name: found[name] for name in fit.taken}
        return InitialWeights(source, hashlib.sha256(content).hexdigest(), taken, fit.kept)


@contextmanager
def _told_with(source: str) -> Iterator[None]:
    try:
        yield
    except (ConfigError, DataError) as problem:
        raise type(problem)(f"model.init = {source!r}: {problem}") from None


@cache
def _tell_once(text: str) -> None:
    """Say something once per process: the runs of a comparison share it."""
    tell(text)


def _pretrained_file(source: str, module: nn.Module, model: str, device: str) -> Path:
    asked = parse_init(source)
    settings = pretraining_of(asked, parse_model(model), next(module.parameters()).dtype)
    _compare(module, settings.task.module.state_dict(), model)  # now: training may take long
    return pretrained(asked, model, settings, device)


def _given_file(source: str) -> Path:
    path = Path(source).expanduser()
    if path.is_dir():
        file = _model_of_run(path)
        read_end_file(path, file.name)  # or it was damaged
        return file
    if not path.exists():
        raise ConfigError(f"there is no such file: {_INSTEAD}")
    return path


def _model_of_run(path: Path) -> Path:
    if not (path / "manifest.json").exists():
        several = any((path / name).exists() for name in (COMPARISON_FILE, STUDY_FILE))
        runs = sorted(one.parent for one in path.rglob("manifest.json")) if several else []
        if runs:
            raise ConfigError(f"the directory holds {len(runs)} runs: give one of them, as {runs[0]}")
        raise ConfigError(f"the directory holds no run: {_INSTEAD}")
    manifest, rows = read_manifest(path), read_rows(path)
    end = manifest.get("end") or {"rounds": manifest["rounds"]}
    if end["rounds"] != len(rows) or not (path / MODEL_FILE).exists():
        raise ConfigError(
            f"the run is not finished, it has {len(rows)} of {manifest['rounds']} rounds: go on with it "
            f"(`fedkeel resume {path}`), or give another one"
        )
    return path / MODEL_FILE


def _read(file: Path) -> tuple[bytes, dict[str, Tensor]]:
    try:
        content = file.read_bytes()
        return content, load(content)
    except OSError as problem:
        raise ConfigError(f"{file} cannot be read: {problem.strerror or problem}: {_INSTEAD}") from None
    except SafetensorError as problem:
        raise ConfigError(
            f"{file} does not hold weights as .safetensors ({problem}): {_INSTEAD}; weights of PyTorch are "
            "written so by safetensors.torch.save_file(model.state_dict(), FILE)"
        ) from None


def _compare(module: nn.Module, found: Mapping[str, Tensor], model: str) -> _Fit:
    """Return which weights fit; refuse those of another model, or of one for other samples."""
    own, there = _weights(module.state_dict()), _weights(found)
    other = next((name for name in (*own, *there) if name not in own or name not in there), None)
    if other is not None:
        lacks = f"there is no {other!r}" if other in own else f"it has {other!r}, which {model} does not have"
        raise ConfigError(f"{lacks}: give weights of the same model, or set model.name to theirs")
    last, kept = _last_layer(module), []
    for name, weight in own.items():
        if there[name].shape == weight.shape:
            continue
        if name not in last or there[name].shape[1:] != weight.shape[1:]:
            raise ConfigError(
                f"{name} has shape {tuple(there[name].shape)} there and {tuple(weight.shape)} in this run: "
                f"give weights of {model} that were trained on samples of the same shape"
            )
        kept.append(name)
    if len(kept) == len(own):
        raise ConfigError(
            f"all of {model} depends on the number of classes ({kept[0]} has shape "
            f"{tuple(there[kept[0]].shape)} there and {tuple(own[kept[0]].shape)} in this run), so nothing "
            "could be taken: give weights for the same classes, or a model with more layers"
        )
    return _Fit(tuple(name for name in own if name not in kept), tuple(kept))


def _weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if torch.is_floating_point(tensor)}


def _last_layer(module: nn.Module) -> set[str]:
    """Return the names of the weights of the last layer: as many rows as there are classes."""
    layers = [
        name
        for name, layer in module.named_modules()
        if next(layer.parameters(recurse=False), None) is not None
    ]
    return {f"{layers[-1]}.{name}" for name, _ in module.get_submodule(layers[-1]).named_parameters()}
