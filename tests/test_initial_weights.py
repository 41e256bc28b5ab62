"""`model.init`: a run that begins with weights from a file, from another run, or from pre-training."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from selecting import slow
from torch import Tensor, nn

import fedkeel as fk
from fedkeel.experiments import initial_weights, pretraining
from fedkeel.experiments.experiment import Experiment
from fedkeel.experiments.expression import parse_model
from fedkeel.experiments.initial_weights import find_initial_weights
from fedkeel.experiments.pretraining import Pretrain, pretrained, pretraining_of

SMALL = ("rounds=3", "cohort=2", "data.clients=4", "work.epochs=1", "engine=serial", "checkpoint_every=1")
PRETRAIN = "Pretrain('digits', epochs=2, lr=0.05, batch_size=100, weight_decay=0.001, seed=3)"


def small(*settings: str) -> Experiment:
    return Experiment().with_settings([*SMALL, *settings])


def weights(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.state_dict())


def initial(experiment: Experiment) -> dict[str, Tensor]:
    """Return the weights that a run of the experiment begins with."""
    return weights(experiment.settings().task.module)


def assert_same(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def rows(result: fk.Result) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in result.history]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run; nobody may change it."""
    path = tmp_path_factory.mktemp("before") / "run"
    small("rounds=1").train(path)
    return path


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedkeel" / "pretrained"


def test_weights_come_from_a_file_or_from_the_run_that_wrote_it(finished: Path) -> None:
    trained = load_file(finished / "model.safetensors")
    assert_same(initial(small(f"model.init={finished}")), trained)
    assert_same(initial(small(f"model.init={finished / 'model.safetensors'}", "seed=5")), trained)


def test_a_run_says_in_its_files_where_its_weights_are_from(finished: Path, tmp_path: Path) -> None:
    experiment = small(f"model.init={finished}")
    result = experiment.train(tmp_path / "run")
    assert Experiment.load(tmp_path / "run") == experiment
    told = result.manifest["initial_weights"]
    assert (told["from"], told["kept_by_model"]) == (str(finished), [])
    assert told["sha256"] == hashlib.sha256((finished / "model.safetensors").read_bytes()).hexdigest()


def test_a_text_for_nothing_clears_it(finished: Path) -> None:
    assert small(f"model.init={finished}").with_settings(["model.init=none"]) == small()
    assert "init" not in small().table()["model"]


def test_a_file_with_a_path_that_holds_brackets_is_a_file(finished: Path, tmp_path: Path) -> None:
    shutil.copy(finished / "model.safetensors", tmp_path / "model (1).safetensors")
    experiment = small(f"model.init={tmp_path / 'model (1).safetensors'}")
    assert_same(initial(experiment), load_file(finished / "model.safetensors"))


def test_pretraining_is_a_run_with_one_client_that_has_all_samples(own_cache: Path) -> None:
    central = Experiment().with_settings(
        [
            *("data.clients=1", "data.split=IID", "cohort=1", "rounds=2", "engine=serial", "threads=1"),
            *("work.epochs=1", "work.lr=0.05", "work.batch_size=100", "work.weight_decay=0.001", "seed=3"),
        ]
    )
    assert_same(initial(small(f"model.init={PRETRAIN}")), weights(central.train().model))


def test_pretraining_is_written_with_all_its_arguments() -> None:
    text = small("model.init=pretrain('digits')").table()["model"]["init"]
    assert text == repr(Pretrain("digits"))
    assert small(f"model.init={text}") == small("model.init=Pretrain(data='digits', epochs=5)")


def test_pretraining_is_done_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    real = pretraining.run

    def counted(*given: Any, **options: Any) -> fk.Result:
        done.append("once more")
        return real(*given, **options)

    monkeypatch.setattr(pretraining, "run", counted)
    first = initial(small(f"model.init={PRETRAIN}"))
    assert_same(initial(small(f"model.init={PRETRAIN}", "seed=7", "engine=processes", "threads=2")), first)
    assert len(done) == 1
    initial(small(f"model.init={PRETRAIN.replace('seed=3', 'seed=4')}"))
    assert len(done) == 2


@pytest.mark.slow
def test_pretraining_is_kept_by_all_that_it_depends_on(own_cache: Path) -> None:
    def folder(model: str = "mlp", dtype: torch.dtype = torch.float32, **changed: Any) -> str:
        asked = Pretrain(**{"data": "digits", "epochs": 1, "batch_size": 500, **changed})
        settings = pretraining_of(asked, parse_model(model), dtype)
        return pretrained(asked, model, settings, "cpu").parent.name

    changes: list[dict[str, Any]] = [{"epochs": 2}, {"lr": 0.2}, {"batch_size": 400}, {"weight_decay": 0.1}]
    changes += [{"seed": 1}, {"data": "synthetic"}, {"model": "logistic"}, {"dtype": torch.float64}]
    names = [folder(), *(folder(**change) for change in changes)]
    assert len(set(names)) == len(names)
    assert folder() == names[0]


def test_pretraining_that_was_stopped_goes_on(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = initial(small(f"model.init={PRETRAIN}"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    real = pretraining.tell

    def interrupting(text: str) -> None:
        real(text)
        if "epoch 1 of 2" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(pretraining, "tell", interrupting)
    with pytest.raises(KeyboardInterrupt):
        initial(small(f"model.init={PRETRAIN}"))
    assert "is stopped: the next run goes on with it" in capsys.readouterr().err
    monkeypatch.setattr(pretraining, "tell", real)
    assert_same(initial(small(f"model.init={PRETRAIN}")), whole)
    told = capsys.readouterr().err
    assert "goes on after epoch 1" in told
    assert "epoch 1 of 2" not in told


def test_two_that_ask_for_the_same_wait_for_each_other(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock belongs to an open file: two threads contend for it as two processes do."""
    asked = Pretrain("digits", epochs=1)
    begun, waiting, found = threading.Event(), threading.Event(), list[Path]()
    real, runs = pretraining.run, list[str]()

    def held(*given: Any, **options: Any) -> fk.Result:
        runs.append("run")
        begun.set()
        assert waiting.wait(60)
        return real(*given, **options)

    def heard(text: str) -> None:
        if text == "waiting for another process that is pre-training mlp on digits":
            waiting.set()

    def ask() -> None:
        found.append(
            pretrained(asked, "mlp", pretraining_of(asked, parse_model("mlp"), torch.float32), "cpu")
        )

    monkeypatch.setattr(pretraining, "run", held)
    monkeypatch.setattr(pretraining, "tell", heard)
    one, other = threading.Thread(target=ask), threading.Thread(target=ask)
    one.start()
    assert begun.wait(60)
    other.start()
    one.join()
    other.join()
    assert runs == ["run"]
    assert found[0] == found[1]


def test_a_cache_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(fk.StorageError, match="XDG_CACHE_HOME names where pre-trained weights are kept"):
        initial(small(f"model.init={PRETRAIN}"))


def test_a_last_layer_for_other_classes_keeps_its_own_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "seven.safetensors"
    save_file(weights(fk.models.mlp(64, classes=7)), file)
    result = small(f"model.init={file}").train(tmp_path / "run")
    told = f"model.init = {str(file)!r}: head.weight and head.bias keep their own initial weights, for they "
    assert told + "are of 7 classes there and of 10 here" in " ".join(capsys.readouterr().err.split())
    assert result.manifest["initial_weights"]["kept_by_model"] == ["head.weight", "head.bias"]
    begun, drawn, given = initial(small(f"model.init={file}")), initial(small()), load_file(file)
    assert_same({name: begun[name] for name in ("head.weight", "head.bias")},
                {name: drawn[name] for name in ("head.weight", "head.bias")})  # fmt: skip
    assert torch.equal(begun["fc1.weight"], given["fc1.weight"])
    assert capsys.readouterr().err == ""  # it was said


def test_batchnorm_statistics_are_taken_and_its_counters_are_not(tmp_path: Path) -> None:
    def net(seed: int) -> nn.Module:
        return fk.models.build("resnet20", shape=(3, 8, 8), classes=10, seed=seed)

    given = weights(net(1))
    given["norm.running_mean"] += 1
    given["norm.num_batches_tracked"] += 5
    save_file(given, tmp_path / "weights.safetensors")
    module = net(0)
    find_initial_weights(str(tmp_path / "weights.safetensors"), module, "resnet20", "cpu").put_into(module)
    assert torch.equal(module.get_buffer("norm.running_mean"), given["norm.running_mean"])
    assert module.get_buffer("norm.num_batches_tracked") == 0


def test_weights_are_converted_to_the_precision_of_the_run(finished: Path) -> None:
    begun = initial(small(f"model.init={finished}", "model.dtype=float64"))
    assert_same(begun, {name: t.double() for name, t in load_file(finished / "model.safetensors").items()})


@pytest.mark.parametrize("engine", slow("stacked-uncompiled", "processes"))
def test_every_engine_begins_with_the_same_weights(engine: str, finished: Path, tmp_path: Path) -> None:
    def begun(engine: str) -> str:
        made = small(f"model.init={finished}", f"engine={engine}", "rounds=1", "workers=1")
        identity = made.train(tmp_path / engine).manifest["identity"]
        return str(identity["task"]["initial"])

    assert begun(engine) == begun("serial")


class Interrupted(Exception):
    pass


def interrupt_after(rounds: int) -> Any:
    def interrupt(row: dict[str, Any]) -> None:
        if row["round"] + 1 == rounds:
            raise Interrupted

    return interrupt


@pytest.mark.parametrize("kind", ["file", *slow("pretraining")])
def test_a_run_with_a_checkpoint_goes_on_without_the_file(
    kind: str, finished: Path, own_cache: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "before")
    experiment = small(f"model.init={tmp_path / 'before' if kind == 'file' else PRETRAIN}")
    whole = experiment.train()
    with pytest.raises(Interrupted):
        experiment.train(tmp_path / "run", callbacks=interrupt_after(1))
    shutil.rmtree(tmp_path / "before")
    shutil.rmtree(own_cache, ignore_errors=True)
    resumed = experiment.train(tmp_path / "run", resume=True)
    assert rows(resumed) == rows(whole)
    assert_same(weights(resumed.model), weights(whole.model))
    assert "initial_weights" in resumed.manifest
    assert_same(weights(fk.load(tmp_path / "run").model), weights(whole.model))


def test_a_run_without_a_checkpoint_refuses_a_file_that_has_changed(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    shutil.copy(finished / "model.safetensors", file)
    experiment = small(f"model.init={file}")
    with pytest.raises(Interrupted):
        experiment.train(tmp_path / "run", callbacks=interrupt_after(1))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    save_file(weights(fk.models.mlp()), file)
    with pytest.raises(fk.StorageError, match=r"begun with other initial weights.*restore what model.init"):
        experiment.train(tmp_path / "run", resume=True)
    shutil.copy(finished / "model.safetensors", file)
    assert rows(experiment.train(tmp_path / "run", resume=True)) == rows(experiment.train())


def write(path: Path, **changed: Tensor | None) -> Path:
    found = {**weights(fk.models.mlp()), **{name.replace("__", "."): t for name, t in changed.items()}}
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, path)
    return path


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"fc1__weight": torch.zeros(64, 30)},
         r"fc1.weight has shape \(64, 30\) there and \(64, 64\) in this run: give weights of mlp"),
        ({"head__weight": torch.zeros(10, 8)}, r"head.weight has shape \(10, 8\) there and \(10, 64\)"),
        ({"fc1__weight": None}, r"there is no 'fc1.weight': give weights of the same model"),
        ({"conv__weight": torch.zeros(3)}, r"it has 'conv.weight', which mlp does not have: give weights"),
        ({"fc1__bias": torch.full((64,), torch.nan)}, r"fc1.bias holds numbers that are not finite"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    file = write(tmp_path / "weights.safetensors", **changed)
    with pytest.raises(fk.ConfigError, match=f"model.init = '.*weights.safetensors': {told}"):
        initial(small(f"model.init={file}"))


def test_where_nothing_could_be_taken_it_is_refused(tmp_path: Path) -> None:
    save_file(weights(fk.models.logistic(64, 7)), tmp_path / "weights.safetensors")
    with pytest.raises(fk.ConfigError, match="all of logistic depends on the number of classes"):
        initial(small("model.name=logistic", f"model.init={tmp_path / 'weights.safetensors'}"))


def test_what_is_no_file_of_weights_is_refused(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "empty").mkdir()
    (tmp_path / "sweep" / "a").mkdir(parents=True)
    (tmp_path / "sweep" / "study.json").write_text("{}")
    (tmp_path / "sweep" / "a" / "manifest.json").write_text("{}")
    shutil.copytree(finished, tmp_path / "cut")
    for name in ("metrics.jsonl", "metrics.jsonl.gz"):
        (tmp_path / "cut" / name).write_text("")
    shutil.rmtree(tmp_path / "cut" / "checkpoints")
    for name, told in {
        "absent": "there is no such file: give a file of weights",
        "notes.txt": "does not hold weights as .safetensors",
        "empty": "the directory holds no run: give a file of weights",
        "sweep": "the directory holds 1 runs: give one of them, as .*sweep/a",
        "cut": r"the run is not finished, it has 0 of 1 rounds: go on with it \(`fedkeel resume .*cut`\)",
    }.items():
        with pytest.raises(fk.ConfigError, match=f"model.init = '.*{name}': .*{told}"):
            initial(small(f"model.init={tmp_path / name}"))


def test_pretraining_on_other_samples_is_refused_before_the_work(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial_weights, "pretrained", lambda *given: pytest.fail("it was begun"))
    with pytest.raises(fk.ConfigError, match=r"fc1.weight has shape \(64, 30\) there and \(64, 64\)"):
        initial(small("model.init=Pretrain('synthetic')"))


def test_pretraining_that_diverges_says_what_to_change(own_cache: Path) -> None:
    with pytest.raises(fk.ConfigError, match="pre-training diverged in epoch 1: lower its learning rate"):
        initial(small("model.init=Pretrain('digits', lr=1e30)"))
