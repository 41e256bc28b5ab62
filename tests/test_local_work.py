"""Local momentum, what is clipped, and schedules within a round: what `Work` adds to every method."""

from __future__ import annotations

import dataclasses
import math
import warnings
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pytest
import torch
from problems import expect, play, quadratic, settings_of, tiny_net
from torch import nn

import fedkeel as fk
from fedkeel.core.algorithm import Plan
from fedkeel.core.walk import StepSettings, length_of, unit_move_of, with_local_momentum
from fedkeel.engines import build
from fedkeel.engines.contract import Choice
from fedkeel.engines.stopwatch import timer
from fedkeel.experiments.experiment import Experiment
from fedkeel.explain import explain

SIZES = [3, 8, 5, 11, 4]


def norms(work: fk.Work, method: Any) -> list[float]:
    played = play(tiny_net([8] * 4), method, rounds=30, cohort=4, work=work)
    return [float(np.linalg.norm(after.models["x"])) for after in played]


def test_a_clip_of_the_corrected_direction_does_not_drag_the_model_to_zero_and_one_of_the_direction_warns():
    work = fk.Work(steps=5, batch_size=4, lr=0.1, clip=0.1, clip_on="direction")
    with pytest.warns(UserWarning, match=r"FedProx\(mu=1.0.*pulls by 1,.*> 0.1.*clip_on='corrected'"):
        dragged = norms(work, fk.FedProx(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = norms(dataclasses.replace(work, clip_on="corrected"), fk.FedProx(1.0))
    assert dragged[-1] < 0.2 * dragged[0]
    assert abs(kept[-1] / kept[0] - 1) < 0.5


def test_the_warning_counts_the_smallest_client_s_pull_where_it_goes_by_size():
    """α/w_i of one sample beside twenty: sixteen times as strong as of the mean client."""
    problem, work = tiny_net([1, 20, 20, 20, 20]), fk.Work(steps=1, lr=1e-3, clip_on="direction")
    size = float(np.linalg.norm(problem.x0))
    options = {"rounds": 1, "cohort": 1, "work": dataclasses.replace(work, clip=3 * size)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(problem, fk.FedDyn(1.0), **options)
    with pytest.warns(UserWarning, match=r"by_size=True\) pulls by 16\.2"):
        play(problem, fk.FedDyn(1.0, by_size=True), **options)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("engine", ["serial", "stacked-uncompiled"])
def test_local_momentum_is_that_of_a_new_torch_optimizer_in_every_round(nesterov, engine):
    problem = tiny_net([6])
    x, y = (torch.as_tensor(part) for part in problem.clients[0])
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    nn.utils.vector_to_parameters(torch.from_numpy(problem.x0.copy()), model.parameters())
    for _ in range(3):
        optimizer = torch.optim.SGD(
            model.parameters(), lr=0.1, momentum=0.8, weight_decay=0.01, nesterov=nesterov
        )
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    work = fk.Work(steps=4, lr=0.1, momentum=0.8, nesterov=nesterov, weight_decay=0.01)
    *_, last = play(problem, fk.FedAvg(), rounds=3, cohort=1, work=work, engine=engine)
    theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(last.server.x, theirs, rtol=1e-12, atol=1e-12)


def test_with_momentum_the_mean_of_all_control_variates_stays_the_servers_and_each_is_a_mean_gradient():
    problem, work = quadratic([8] * 4), fk.Work(steps=3, lr=0.05, momentum=0.7)
    *_, last = play(problem, fk.SCAFFOLD(), rounds=4, cohort=4, work=work)
    mean = torch.stack([memory.c_i for memory in last.memories.values()]).mean(0)
    assert torch.allclose(mean, last.server.c, rtol=1e-12, atol=1e-12)
    # with rates near zero every gradient of a walk is that at x, and so is their weighted mean
    tiny = fk.Work(steps=3, lr=1e-7, momentum=0.7)
    (after,) = play(problem, fk.SCAFFOLD(), rounds=1, cohort=4, work=tiny)
    for client, memory in after.memories.items():
        gradient = problem.reference.grad(problem.x0, *problem.clients[client])
        np.testing.assert_allclose(memory.c_i.numpy(), gradient, rtol=1e-4, atol=1e-5)


def reach(steps: int, mu: float = 0.0, **work: Any) -> float:
    step_settings = StepSettings.of(fk.Work(steps=steps, lr=0.1, **work), 0.1)
    plan = with_local_momentum(Plan(start=torch.zeros(1), pull=mu), step_settings)
    found = unit_move_of(plan, step_settings, steps)
    return length_of(step_settings, steps) if found is None else found


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_reach_of_a_walk_is_fednovas_norm_of_a(steps):
    rho, mu, lr = 0.9, 0.5, 0.1
    momentum = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
    assert math.isclose(reach(steps, momentum=rho), lr * momentum, rel_tol=1e-12)
    prox = (1 - (1 - lr * mu) ** steps) / (lr * mu)
    assert math.isclose(reach(steps, mu), lr * prox, rel_tol=1e-12)
    assert reach(steps) == lr * steps


def test_the_printed_form_of_fedlnag_is_the_plain_one_at_a_rate_that_is_damped():
    def run(lr: float, damped: bool) -> Any:
        work = fk.Work(epochs=2, batch_size=3, lr=lr, weight_decay=0.01)
        return play(tiny_net(SIZES), fk.FedLNAG(0.8, damped=damped), rounds=3, cohort=3, work=work)[-1].server

    plain, printed = run(0.02, False), run(0.1, True)
    assert torch.allclose(plain.x, printed.x, rtol=1e-12, atol=1e-12)
    assert torch.allclose(0.2 * plain.m, printed.m, rtol=1e-12, atol=1e-12)


def growing(round: int, rounds: int, step: int, steps: int) -> float:
    return (1 + step) / steps


WALKS = {
    "momentum": fk.Work(epochs=2, batch_size=3, lr=0.1, momentum=0.6),
    "Nesterov, scheduled": fk.Work(epochs=2, batch_size=3, momentum=0.6, nesterov=True, schedule=growing),
    "corrected": fk.Work(epochs=2, batch_size=3, clip=0.3, clip_on="corrected", weight_decay=0.02),
}


@pytest.mark.parametrize("way", WALKS)
@pytest.mark.parametrize("method", [fk.FedNova(0.3), fk.SCAFFOLD(), fk.FedDyn(0.4)], ids=repr)
@pytest.mark.parametrize("make", [tiny_net, quadratic])
def test_the_stacked_engine_walks_as_the_serial_one(way, method, make):
    ends = [
        play(make(SIZES), method, rounds=2, cohort=4, work=WALKS[way], engine=engine)[-1].models["x"]
        for engine in ("serial", "stacked-uncompiled")
    ]
    np.testing.assert_allclose(*ends, rtol=1e-10, atol=1e-10)


@pytest.mark.slow(34)
def test_a_compiled_walk_with_momentum_and_a_schedule_is_the_serial_one():
    problem, work = tiny_net(SIZES), WALKS["Nesterov, scheduled"]
    serial, stacked = (
        play(problem, fk.FedNova(0.3), rounds=2, cohort=4, work=work, engine=engine)[-1].models["x"]
        for engine in ("serial", "stacked")
    )
    np.testing.assert_allclose(serial, stacked, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: fk.Work(steps=1, nesterov=True), r"nesterov = True: it needs a momentum"),
        (lambda: fk.Work(steps=1, momentum=0.9, optimizer=fk.AdamW()), r"momentum = 0.9: AdamW has moments"),
        (lambda: fk.Work(steps=1, momentum=1.0), r"momentum = 1.0"),
        (lambda: fk.Work(steps=1, schedule=fk.Drop), r"that is a class"),
        (lambda: fk.Work(steps=1, schedule=0.5), r"give one of Drop, .* or a function"),
        (lambda: fk.Work(steps=1, schedule=lambda round: 1.0), r"must be a function of \(round, rounds"),
        (lambda: fk.Work(epochs=2, schedule=fk.DecayPerEpoch(0.9, 3)), r"epochs = 2: both must name"),
    ],
)
def test_what_makes_no_sense_is_refused(make, told):
    with pytest.raises(fk.ConfigError, match=told):
        make()


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf, None])
def test_a_factor_that_is_no_rate_is_refused_by_name(factor):
    def wild(round: int, rounds: int, step: int, steps: int) -> Any:
        return factor

    with pytest.raises(fk.ConfigError, match=r"schedule = .*wild: it gives .* in round 0, step 0"):
        play(tiny_net(SIZES), fk.FedAvg(), rounds=1, cohort=2, work=fk.Work(steps=2, schedule=wild))


def test_fedlnag_refuses_a_second_momentum_with_reason_and_fix():
    with pytest.raises(fk.ConfigError, match=r"momentum = 0.9: FedLNAG.* of its own.*leave momentum out"):
        play(tiny_net(SIZES), fk.FedLNAG(), rounds=1, cohort=2, work=fk.Work(steps=2, momentum=0.9))


def test_files_and_lines_give_momentum_and_schedules():
    settings = ["work.momentum=0.9", "work.nesterov=true", "work.epochs=3"]
    given = Experiment().with_settings([*settings, "work.schedule=DecayPerEpoch(0.9, 3)"])
    assert (given.work.momentum, given.work.nesterov) == (0.9, True)
    assert given.work.schedule == fk.DecayPerEpoch(0.9, 3)


def test_a_decay_per_epoch_begins_anew_in_every_round_and_one_per_round_goes_on():
    work = fk.Work(epochs=2, lr=1.0, schedule=fk.DecayPerEpoch(0.5, 2))
    assert work.rates(7, 10, 5) == (1.0, 1.0, 1.0, 0.5, 0.5)
    per_round = fk.Work(epochs=2, lr=1.0, schedule=fk.DecayPerRound(0.5))
    assert (per_round.rates(2, 10, 5), per_round.rate(2, 10)) == (None, 0.25)


def test_a_schedule_of_a_users_own_goes_by_source_and_values_when_a_run_is_resumed(tmp_path: Path):
    def scaled(factor: float) -> Any:
        return lambda round, rounds, step, steps: factor

    problem = tiny_net(SIZES)

    def run(factor: float, **options: Any) -> fk.Result:
        work = fk.Work(steps=2, batch_size=3, schedule=scaled(factor))
        given = {"rounds": 2, "cohort": 2, "run_dir": tmp_path, "engine": "serial"}
        return flat.train(problem.task, problem.federation, fk.FedAvg(), work=work, **given, **options)

    first = run(0.5)
    assert torch.equal(run(0.5, resume=True).server.x, first.server.x)
    with pytest.raises(fk.FedkeelError, match="work"):
        run(0.6, resume=True)


def test_a_schedule_of_a_users_own_class_goes_by_its_source(tmp_path: Path):
    def schedule(half: bool) -> Any:
        """Two classes of one name that print the same and differ in their source alone."""
        if half:

            @dataclasses.dataclass(frozen=True)
            class Own:
                a: float = 1.0

                def __call__(self, round: int, rounds: int, step: int, steps: int) -> float:
                    return self.a / 2
        else:

            @dataclasses.dataclass(frozen=True)
            class Own:  # type: ignore[no-redef]
                a: float = 1.0

                def __call__(self, round: int, rounds: int, step: int, steps: int) -> float:
                    return self.a

        return Own()

    assert repr(schedule(half=True)) == repr(schedule(half=False))
    problem = tiny_net(SIZES)

    def run(half: bool, **options: Any) -> fk.Result:
        given = {"rounds": 1, "cohort": 2, "run_dir": tmp_path / "run", "engine": "serial", **options}
        work = fk.Work(steps=2, batch_size=3, schedule=schedule(half))
        return flat.train(problem.task, problem.federation, fk.FedAvg(), work=work, **given)

    run(half=False)
    run(half=False, resume=True)
    with pytest.raises(fk.FedkeelError, match="its work is"):
        run(half=True, resume=True)


def test_own_schedules_and_momentum_give_the_same_bits_in_processes():
    problem, work = tiny_net(SIZES), WALKS["Nesterov, scheduled"]
    ends = [
        play(problem, fk.FedNova(0.3), rounds=2, cohort=4, work=work, engine=engine, workers=2, threads=1)[-1]
        for engine in ("serial", "processes")
    ]
    np.testing.assert_array_equal(*(end.models["x"] for end in ends))


def test_a_rollback_scales_the_rate_of_every_step():
    problem = tiny_net([8] * 4)

    def end(lr: float, **options: Any) -> fk.Result:
        work = fk.Work(steps=3, batch_size=4, lr=lr, schedule=growing)
        given = {"rounds": 1, "cohort": 4, "engine": "serial", **options}
        return flat.train(problem.task, problem.federation, fk.FedAvg(), work=work, **given)

    rolled = end(1e300, on_divergence="rollback", rollback_factor=1e-301)
    assert len(rolled.history[0]["rolled_back"]) == 1
    assert torch.allclose(rolled.server.x, end(rolled.history[0]["lr"] * 3).server.x, rtol=1e-9)


def test_the_column_lr_is_the_rate_of_the_first_step():
    work = fk.Work(steps=4, lr=0.2, lr_decay=0.5, schedule=growing)
    rows = [after.row["lr"] for after in play(tiny_net(SIZES), fk.FedAvg(), rounds=2, cohort=2, work=work)]
    assert rows == [0.2 / 4, 0.1 / 4]


def test_adamw_takes_the_rates_of_the_steps():
    optimizer = fk.AdamW(0.8, 0.95, 1e-6, 0.1)
    work = fk.Work(epochs=2, batch_size=3, lr=0.05, schedule=growing, optimizer=optimizer)
    given = tiny_net(SIZES)
    played = play(given, fk.FedProx(0.3), rounds=2, cohort=3, work=work)
    expected = expect(given, "FedProx", rounds=2, cohort=3, work=work, mu=0.3)
    np.testing.assert_allclose(played[-1].models["x"], expected[-1]["x"], rtol=1e-10, atol=1e-10)


def test_what_is_not_asked_for_is_not_written_so_that_runs_keep_their_names():
    assert not {"momentum", "nesterov"} & Experiment().table()["work"].keys()
    assert "momentum" not in repr(fk.Work(steps=1))
    given = Experiment().with_settings(["work.momentum=0.9", "work.nesterov=true"])
    assert Experiment.from_table(given.table()).work == given.work
    assert "momentum=0.9, nesterov=True" in repr(given.work)


def test_an_experiment_refuses_a_schedule_that_no_file_can_hold():
    with pytest.raises(fk.ConfigError, match=r"work.schedule = growing: .*fedkeel.train"):
        Experiment(work=fk.Work(epochs=1, schedule=growing))


def test_a_schedule_says_whether_it_needs_all_rounds_or_varies_within_one():
    found = {
        repr(schedule): (work.needs_horizon, work.varies_within_round)
        for schedule in (fk.Drop(5), fk.Drop(0.5), fk.InverseRoot(), fk.DecayPerRound(0.9), growing)
        for work in [fk.Work(epochs=1, schedule=schedule)]
    }
    assert list(found.values()) == [
        (False, False),
        (True, False),
        (True, False),
        (False, False),
        (True, True),
    ]
    assert not fk.Work(epochs=1, schedule=fk.DecayPerEpoch(0.9, 1)).varies_within_round


def test_explain_prints_the_damped_momentum_and_the_reach():
    damped = explain(fk.FedLNAG(0.8, damped=True)).equations["step"]
    assert damped[1:] == [
        "b ← beta·b + (1 − beta)·(g + wd·y)",
        "y ← y − η·((1 − beta)·(g + wd·y) + beta·b)",
    ]
    assert explain(fk.FedNova(0.3)).equations["up"] == ["(end − x)/reach", "reach"]
    assert "reach is how far" in str(explain(fk.FedNova(0.3)))
    assert explain(fk.FedNova()).equations["up"] == ["(end − x)/length", "length"]


def warming(round: int, rounds: int, step: int, steps: int) -> float:
    return step / steps


def test_engines_are_timed_with_rates_that_are_never_zero():
    problem, work = tiny_net(SIZES), fk.Work(steps=4, batch_size=3, schedule=warming)
    settings = settings_of(problem.task, problem.federation, fk.SCAFFOLD(), rounds=2, cohort=3, work=work)
    with timer(settings, torch.device("cpu"), Choice("serial", 1), build) as measure:
        assert measure() > 0


def test_a_round_without_any_rate_is_refused():
    still = fk.Work(steps=1, batch_size=3, schedule=warming)
    with pytest.raises(fk.ConfigError, match=r"schedule = warming: it gives 0 in every step of round 0"):
        play(tiny_net(SIZES), fk.FedAvg(), rounds=1, cohort=2, work=still)
