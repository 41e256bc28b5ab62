"""Working in Python with runs: compare, sweep, load, evaluate, and the choice of the engine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import flat
import pytest
import torch
from pages import block, document_in
from problems import half_square, tiny_net
from torch import nn

import fedkeel as fk
from fedkeel import probes
from fedkeel.experiments.experiment import Experiment
from fedkeel.report import Trial, find_verdict, parse_measure
from fedkeel.report.tables import models_of, score

PROBLEM = tiny_net([3, 8, 5, 11])
OPTIONS: dict[str, Any] = {"cohort": 2, "work": fk.Work(epochs=1, batch_size=3, lr=0.1), "engine": "serial"}


def train(method: Any = None, seed: int = 0, **options: Any) -> fk.Result:
    given = {"rounds": 3, **OPTIONS, **options}
    return flat.train(PROBLEM.task, PROBLEM.federation, method or fk.FedAvg(), seed=seed, **given)


def weights(model: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(model.parameters())


def test_compare_makes_a_table_and_a_verdict_of_a_function() -> None:
    found = fk.compare(train, [fk.FedAvg(), fk.SCAFFOLD()], seeds=2)
    assert [line.label for line in found.table] == ["FedAvg(lr=1.0)", repr(fk.SCAFFOLD())]
    assert [line.seeds for line in found.table] == [2, 2]
    trials = [
        Trial(repr(method), seed, train(method, seed).history)
        for method in (fk.FedAvg(), fk.SCAFFOLD())
        for seed in (0, 1)
    ]
    assert found.verdict == find_verdict(trials)
    assert repr(found.best) == found.verdict.winner
    assert len(found.results) == 4
    one = found.results[repr(fk.SCAFFOLD()), 1]
    assert torch.equal(weights(one.model), weights(train(fk.SCAFFOLD(), 1).model))
    assert "final accuracy" in str(found)
    assert found.verdict.sentence in str(found)
    assert "<table>" in found._repr_html_()
    assert "data:image/svg" in found._repr_html_()


def test_a_comparison_writes_its_page(tmp_path: Path) -> None:
    found = fk.compare(train, {"plain": fk.FedAvg(), "steered": fk.SCAFFOLD()}, seeds=[4])
    page = found.save_page(tmp_path / "new" / "page.html").read_text()
    assert {run.method for run in document_in(page).runs} == {"plain", "steered"}
    assert set(found.results) == {("plain", 4), ("steered", 4)}


def test_a_comparison_has_the_columns_that_are_asked_for(tmp_path: Path) -> None:
    found = fk.compare(train, [fk.FedAvg()], seeds=2, target=1.0, columns="top,gradients_to_target")
    assert " ".join(str(found).split()).startswith("method top accuracy gradient steps to 100 %")
    steps = sum(row["gradients"] for row in found.results["FedAvg(lr=1.0)", 0].history)
    assert found.table[0].missed == 2
    assert found.table[0].limits["gradients"] <= steps
    assert f"{found.table[0].limits['gradients']}+" in str(found)
    other = found.with_columns(["last:2", "final of norm (min)"])
    assert "final norm" in str(other)
    assert "final norm" in other._repr_html_()
    page = document_in(other.save_page(tmp_path / "page.html"))
    assert block(page, "scores").headings[-1] == "final norm"
    assert other.verdict == found.verdict
    with pytest.raises(fk.ConfigError, match=r"the history has no column 'nrm'; did you mean 'norm'"):
        found.with_columns("final of nrm (min)")


def test_a_measure_may_name_its_column() -> None:
    found = fk.sweep(scored({}), [1e-9, 0.1], seeds=1, measure="mean:0.5:1 of loss (min)")
    assert found.measure == "mean:0.5:1 of loss (min)"
    assert found.best == 0.1


def test_a_run_that_diverges_is_a_result_of_a_comparison() -> None:
    wild = fk.FedAvg(lr=1e200)
    found = fk.compare(train, {"wild": wild, "tame": fk.FedAvg()}, seeds=2)
    assert found.best == fk.FedAvg()
    assert [line.failed for line in found.table] == [2, 0]
    assert len(found.results["wild", 0].history) < 3


def test_what_ends_a_comparison_carries_the_runs_before() -> None:
    def run(method: Any, seed: int) -> fk.Result:
        if seed == 1:
            raise fk.Stopped("stopped")
        return train(method, seed)

    with pytest.raises(fk.Stopped) as caught:
        fk.compare(run, [fk.FedAvg(), fk.SCAFFOLD()], seeds=2)
    assert len(caught.value.comparison.results) == 2


def test_sweep_goes_over_the_values_of_anything() -> None:
    def run(lr: float, seed: int) -> fk.Result:
        return train(seed=seed, work=fk.Work(epochs=1, batch_size=3, lr=lr))

    found = fk.sweep(run, [1e-9, 0.5], seeds=2)
    assert [line.label for line in found.table] == ["1e-09", "0.5"]
    assert found.best in {1e-9, 0.5}
    assert str(found).startswith("value")
    assert found.results["0.5", 1].history[0]["lr"] == 0.5


def test_a_comparison_shows_one_display(capsys: pytest.CaptureFixture[str]) -> None:
    fk.compare(train, [fk.FedAvg(), fk.SCAFFOLD()], seeds=1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "FedAvg(lr=1.0), seed 0",
        f"{fk.SCAFFOLD()}, seed 0",
    ]
    assert "round 3/3" in err
    fk.compare(
        lambda method, seed: train(method, seed, progress=True), [fk.FedAvg()], seeds=1, progress=False
    )
    assert capsys.readouterr() == ("", "")


def scored(metrics: Any, federation: fk.Federation = PROBLEM.federation) -> Any:
    """Return what trains with a learning rate; the first moves the model less than the second."""
    task = fk.Task(PROBLEM.task.model, metrics=metrics)

    def run(lr: float, seed: int) -> fk.Result:
        work = fk.Work(epochs=2, batch_size=3, lr=lr)
        given = {**OPTIONS, "work": work, "rounds": 3, "seed": seed}
        return flat.train(task, federation, fk.FedAvg(), **given)

    return run


def lateness(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A metric of which less is better."""
    return 100 * nn.functional.cross_entropy(output, target)


def test_a_task_without_accuracy_is_compared_by_its_loss() -> None:
    found = fk.sweep(scored({}), [1e-9, 0.1], seeds=2)
    assert found.best == 0.1
    ends = [found.results["0.1", seed].history[-1]["loss"] for seed in (0, 1)]
    assert f"{sum(ends) / 2:.4g} ±" in str(found)
    assert "final loss" in str(found)
    assert (
        " better than 1e-09" in found.verdict.sentence or "No difference resolved" in found.verdict.sentence
    )
    assert found._repr_html_()


def test_any_metric_is_compared_by_its_mode(tmp_path: Path) -> None:
    run = scored({"accuracy": fk.accuracy, "lateness": lateness})
    for mode, best in (("min", 0.1), ("max", 1e-9)):
        found = fk.sweep(run, [1e-9, 0.1], seeds=2, metric="lateness", mode=mode)
        assert found.best == best
        assert found.verdict.winner == str(best)
        assert found.measure == f"final of lateness ({mode})"
        assert "% " not in found.verdict.sentence.replace("95 % ", "")
        page = document_in(found.save_page(tmp_path / "page.html"))
        assert block(page, "explorer").metrics[0] == "lateness"
    least = fk.sweep(run, [0.1], seeds=1, metric="lateness", mode="min", measure="top", target=50.0)
    lowest = min(row["lateness"] for row in least.results["0.1", 0].history)
    assert least.table[0].score == pytest.approx(lowest)
    assert "lowest lateness" in str(least)
    assert "rounds to lateness 50" in str(least)


def test_without_a_test_set_values_are_compared_by_validation_data() -> None:
    held = fk.Federation.from_arrays(PROBLEM.clients).with_validation(0.4)
    found = fk.sweep(scored({}, held), [1e-9, 0.1], seeds=2)
    assert found.chosen.column == "validation_loss"
    means = [
        sum(found.results[value, seed].history[-1]["validation_loss"] for seed in (0, 1))
        for value in ("1e-09", "0.1")
    ]
    assert found.best == (1e-9 if means[0] < means[1] else 0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fk.compare(train, ["fedavg"]), "'fedavg' is not a method: give one, as in FedAvg()"),
        (lambda: fk.compare(train, []), "nothing to run"),
        (lambda: fk.compare(train, [fk.FedAvg()], seeds=0), "nothing to run"),
        (lambda: fk.compare(train, [fk.FedAvg(), fk.FedAvg()]), "FedAvg(lr=1.0) is given twice"),
        (lambda: fk.compare(train, [fk.FedAvg()], measure="best"), "best"),
        (
            lambda: fk.sweep(scored({}), [0.1], seeds=1, metric="acuracy", mode="max"),
            "metric = 'acuracy': the history has no such column; did you mean 'accuracy'",
        ),
        (lambda: fk.sweep(scored({}), [0.1], metric="f1"), "metric = 'f1': say which is better"),
        (
            lambda: fk.sweep(scored({}), [0.1], measure="top of loss (min)", metric="loss"),
            "measure = 'top of loss (min)' and metric = 'loss': both name a column: leave one out",
        ),
        (lambda: fk.compare(train, [fk.FedAvg()], columns="tops"), "no column 'tops'; did you mean 'top'?"),
        (
            lambda: fk.sweep(scored({}), [0.1], seeds=1, columns="final of los (min)"),
            "final of los (min): the history has no column 'los'; did you mean 'loss'?",
        ),
        (lambda: fk.compare(fk.FedAvg(), [fk.FedAvg()]), "run = FedAvg(lr=1.0): give a function of a method"),
        (lambda: fk.compare(train, fk.FedAvg()), "methods = FedAvg(lr=1.0): give several in a list"),
        (lambda: fk.sweep(train, 0.1), "values = 0.1: give several in a list, as in [0.1]"),
        (lambda: fk.sweep(train, "abc"), "values = 'abc': give several in a list, as in ['abc']"),
        (lambda: fk.compare(train, [fk.FedAvg()], seeds=1.5), "seeds = 1.5: give several in a list"),
        (lambda: fk.sweep(lambda value, seed: None, [1]), "1, seed 0: the function returned NoneType"),
    ],
)
def test_mistakes_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(fk.ConfigError, match=re.escape(message)):
        make()


def test_the_trained_model_is_in_evaluation_mode() -> None:
    assert not train().model.training
    assert PROBLEM.task.model.training


def test_a_result_evaluates_other_data() -> None:
    result = train()
    x, y = PROBLEM.clients[1]
    with torch.no_grad():
        output = result.model(torch.as_tensor(x))
    expected = float(nn.functional.cross_entropy(output, torch.as_tensor(y)))
    for data in ((x, y), torch.utils.data.TensorDataset(torch.as_tensor(x), torch.as_tensor(y))):
        assert result.evaluate(data)["loss"] == pytest.approx(expected)
    last = {name: result.history[-1][name] for name in ("loss", "accuracy")}
    assert result.evaluate(PROBLEM.federation) == pytest.approx(last)


def test_other_data_goes_through_the_runs_transform() -> None:
    clients = [(torch.full((4, 3), 200, dtype=torch.uint8), torch.arange(4)) for _ in range(2)]
    federation = fk.Federation.from_arrays(clients, transform=lambda x: x.double() / 255)
    result = flat.train(PROBLEM.task, federation, fk.FedAvg(), rounds=2, evaluate_on="clients", **OPTIONS)
    assert result.evaluate(clients[0])["loss"] == pytest.approx(result.history[-1]["loss"])


def test_words_are_the_runs_classes_in_other_data_too(tmp_path: Path) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
    words = ["ant", "bee", "cat", "dog", "cat", "dog"]
    federation = fk.Federation.from_arrays([(x, words)] * 2, test=(x[2:], words[2:]))
    result = flat.train(PROBLEM.task, federation, fk.FedAvg(), rounds=1, run_dir=tmp_path, **OPTIONS)
    for one in (result, fk.load(tmp_path, PROBLEM.task)):
        assert one.evaluate((x[2:], words[2:]))["loss"] == pytest.approx(result.history[-1]["loss"])
    with pytest.raises(fk.DataError, match="no class of the run is 'emu'; known"):
        result.evaluate((x, ["emu", *words[1:]]))
    assert "ant" not in str(federation)


def test_a_result_says_which_engine_ran_it_and_why(tmp_path: Path) -> None:
    assert (train().choice.engine, train().choice.reason) == ("serial", "as asked")
    result = train(engine="auto", run_dir=tmp_path)
    told = result.manifest["engine_choice"]
    assert result.choice.engine == result.manifest["engine"]
    assert result.choice.reason == told["reason"] != "as asked"
    again = train(engine="auto", run_dir=tmp_path, resume=True)
    assert again.choice.reason == told["reason"]
    assert fk.load(tmp_path).choice == result.choice


def test_a_run_is_read_back_with_its_models(tmp_path: Path) -> None:
    result = train(run_dir=tmp_path, rounds=6, callbacks=fk.KeepBest("norm", "min"))
    loaded = fk.load(tmp_path, PROBLEM.task)
    assert loaded.history == result.history
    assert torch.equal(weights(loaded.model), weights(result.model))
    assert loaded.best.round == result.best.round
    assert torch.equal(weights(loaded.best.model), weights(result.best.model))
    assert not loaded.model.training
    assert loaded.evaluate(PROBLEM.federation) == result.evaluate(PROBLEM.federation)
    assert str(loaded) == str(result)


def test_a_task_that_makes_its_model_reads_a_run_back_too(tmp_path: Path) -> None:
    task = fk.Task(lambda: nn.Linear(3, 4).double())
    result = flat.train(task, PROBLEM.federation, fk.FedAvg(), rounds=2, seed=5, run_dir=tmp_path, **OPTIONS)
    loaded = fk.load(tmp_path, task)
    assert torch.equal(weights(loaded.model), weights(result.model))
    assert loaded.evaluate(PROBLEM.federation) == result.evaluate(PROBLEM.federation)


def test_without_its_task_a_run_made_in_python_has_all_but_its_model(tmp_path: Path) -> None:
    result = train(run_dir=tmp_path)
    loaded = fk.load(tmp_path)
    assert loaded.history == result.history
    assert loaded.best.round == result.best.round
    for ask in (lambda: loaded.model, lambda: loaded.best.model, lambda: loaded.evaluate(PROBLEM.federation)):
        with pytest.raises(fk.ConfigError, match=r"fk\.load\(run_dir, task\)"):
            ask()
    other = fk.Task(nn.Linear(4, 2), half_square, {})
    with pytest.raises(fk.ConfigError, match="does not fit Linear: give the task that was trained"):
        fk.load(tmp_path, other)


def test_a_run_from_a_file_knows_its_model(tmp_path: Path) -> None:
    experiment = Experiment().with_settings(["rounds=2", "data.clients=10", "work.epochs=1", "engine=serial"])
    result = experiment.train(tmp_path)
    loaded = fk.load(tmp_path)
    assert torch.equal(weights(loaded.model), weights(result.model))
    assert loaded.evaluate(experiment.federation()) == pytest.approx(result.evaluate(experiment.federation()))


def test_a_run_that_was_stopped_has_its_history(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(fk.Stopped):
        train(run_dir=tmp_path, callbacks=stop)
    loaded = fk.load(tmp_path, PROBLEM.task)
    assert len(loaded.history) == 2
    with pytest.raises(fk.ConfigError, match="not finished: go on with it"):
        loaded.model  # noqa: B018
    train(run_dir=tmp_path, resume=True)
    assert fk.load(tmp_path, PROBLEM.task).model is not None
    with pytest.raises(fk.Stopped):
        train(run_dir=tmp_path, resume=True, rounds=9, callbacks=lambda row: stop({"round": 1}))
    with pytest.raises(fk.ConfigError, match="not finished"):  # the model on disk is of an earlier round
        fk.load(tmp_path, PROBLEM.task).model  # noqa: B018


def test_a_result_is_not_evaluated_where_there_is_no_device() -> None:
    torch.manual_seed(0)
    data = torch.randn(6, 3), torch.arange(6) % 2
    options: dict[str, Any] = {"rounds": 1, "cohort": 1, "work": fk.Work(steps=1), "engine": "serial"}
    result = flat.train(
        fk.Task(torch.nn.Linear(3, 2)), fk.Federation.from_arrays([data]), fk.FedAvg(), **options
    )
    with pytest.raises(fk.ConfigError, match=r"device = 'cuda:77': PyTorch cannot compute there"):
        result.evaluate(data, device="cuda:77")


def test_every_column_of_every_probe_has_a_score() -> None:
    """The names are those of the history's rows; a method's further models are no matter of probes."""
    asked = [make() for make in probes.PROBES]
    once = [replace(probe, every=1) for probe in asked if not isinstance(probe, probes.Cosine)]
    history = train(fk.FedDyn(), rounds=4, probes=[*once, probes.Cosine(exact=(2,), every=1)]).history
    reported = [name for name, value in history[-1].items() if isinstance(value, float) and name != "lr"]
    assert {"diversity", "divergence", "drift", "local_updates", "cosine/round-2", "losses/gap"} <= {
        *reported
    }
    trial = Trial("FedDyn", 0, history)
    for column in reported:
        values = [row[column] for row in history[2:] if row[column] is not None]
        found = score(trial, parse_measure(f"mean:0.5:1 of {column} (min)"))
        assert found == pytest.approx(sum(values) / len(values)), column
        if column not in ("loss", "accuracy"):
            assert models_of([trial], column) == ["x"]
