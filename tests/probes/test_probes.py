"""Every probe equals a direct computation, written from its formula over the slow reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from problems import expect, play, quadratic, runner_of, settings_of, tiny_net
from safetensors.torch import save_file
from torch import nn

import fedkeel as fk
from fedkeel.probes import (
    ClientAccuracy,
    Cosine,
    Divergence,
    Diversity,
    Drift,
    ExcessRisk,
    Layers,
    Losses,
    Switching,
    Update,
)
from fedkeel.probes.cosine import sketch

SIZES = [3, 8, 5, 11, 4, 7]
WORK = fk.Work(epochs=2, batch_size=3, lr=0.08, lr_decay=0.9, weight_decay=0.02)
ROUNDS, COHORT = 6, 3


def rows(algorithm: Any, probes: list[Any], problem: Any = None, **options: Any) -> list[dict[str, Any]]:
    problem = tiny_net(SIZES) if problem is None else problem
    given = {"rounds": ROUNDS, "cohort": COHORT, "work": WORK, "probes": probes} | options
    return [after.row for after in play(problem, algorithm, **given)]


def reference(name: str, **knobs: Any) -> list[dict[str, Any]]:
    return expect(tiny_net(SIZES), name, rounds=ROUNDS, cohort=COHORT, work=WORK, **knobs)


def column(found: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in found]


def test_divergence_over_all_clients_counts_x0_for_those_never_drawn() -> None:
    found = rows(fk.FedInit(0.1), [Divergence(), Divergence("cohort")])
    w = dict.fromkeys(range(len(SIZES)), tiny_net(SIZES).x0)
    for row, told in zip(found, reference("FedInit", beta=0.1), strict=True):
        w |= told["ends"]
        everyone = np.mean([np.sum((w_i - told["x"]) ** 2) for w_i in w.values()])
        cohort = np.mean([np.sum((end - told["x"]) ** 2) for end in told["ends"].values()])
        assert row["divergence"] == pytest.approx(everyone, rel=1e-9)
        assert row["divergence/cohort"] == pytest.approx(cohort, rel=1e-9)


@pytest.mark.parametrize("options", [{"weighting": "samples"}, {"reducer": fk.Median()}], ids=str)
def test_measures_are_plain_means_whatever_the_methods_weights(options: Any) -> None:
    """Δ over the cohort from the clients' own last ends, with samples as weights or a median as reducer."""
    problem = tiny_net(SIZES)
    kept = play(
        problem, fk.FedInit(0.1), rounds=3, cohort=4, work=WORK, probes=[Divergence("cohort")], **options
    )
    for after in kept:
        ends = [after.memories[i].last.numpy() for i in after.row["cohort"]]
        expected = np.mean([np.sum((end - after.models["x"]) ** 2) for end in ends])
        assert after.row["divergence/cohort"] == pytest.approx(expected, rel=1e-9)


def test_v1_v2_and_drift_over_the_points_that_steps_are_taken_at() -> None:
    """FedInit walked by hand: start at x + β(x − w_i), y ← y − lr·(g + wd·y)."""
    problem, beta = tiny_net(SIZES), 0.2
    found = rows(fk.FedInit(beta), [Drift()])
    settings = settings_of(
        problem.task, problem.federation, fk.FedAvg(), rounds=ROUNDS, cohort=COHORT, work=WORK
    )
    x, w = problem.x0, dict.fromkeys(range(len(SIZES)), problem.x0)
    for r, row in enumerate(found):
        lr, paths, ends = WORK.lr * WORK.lr_decay**r, [], []
        for i in row["cohort"]:
            y, path = x + beta * (x - w[i]), []
            X, Y = problem.clients[i]
            for batch in runner_of(settings).minibatches(r, i):
                path.append(np.sum((y - x) ** 2))
                y = y - lr * (problem.reference.grad(y, X[batch], Y[batch]) + WORK.weight_decay * y)
            paths.append(path)
            ends.append(y)
            w[i] = y
        assert row["local_updates"] == pytest.approx(np.mean([sum(path) for path in paths]), rel=1e-9)
        assert row["drift"] == pytest.approx(np.mean(np.concatenate(paths)), rel=1e-9)
        assert row["global_update"] == pytest.approx(np.sum((np.mean(ends, 0) - x) ** 2), rel=1e-9)
        x = np.mean(ends, 0)


@pytest.mark.parametrize(("algorithm", "name"), [(fk.FedAvg(), "FedAvg"), (fk.FedACG(), "FedACG")])
def test_diversity_of_moves(algorithm: Any, name: str) -> None:
    for row, told in zip(rows(algorithm, [Diversity()]), reference(name), strict=True):
        moves = [end - told["broadcast"] for end in told["ends"].values()]
        expected = sum(np.sum(D**2) for D in moves) / np.sum(sum(moves) ** 2)
        assert row["diversity"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "of"),
    [(fk.FedDyn(0.3), "h_i"), (fk.SCAFFOLD(), "c_i"), (fk.relaxed(fk.SCAFFOLD(), 0.1), "c_i")],
    ids=str,
)
def test_diversity_of_all_clients_memories(algorithm: Any, of: str) -> None:
    played = play(tiny_net(SIZES), algorithm, rounds=ROUNDS, cohort=COHORT, work=WORK, probes=[Diversity(of)])
    for after in played:
        memories = [getattr(getattr(m, "inner", m), of).numpy() for m in after.memories.values()]
        expected = sum(np.sum(h**2) for h in memories) / np.sum(sum(memories) ** 2)
        assert after.row[f"diversity/{of}"] == pytest.approx(expected, rel=1e-8)


def test_cosine_with_the_last_with_all_earlier_and_with_a_chosen_round() -> None:
    earlier: dict[int, list[np.ndarray]] = {}
    marked: dict[int, np.ndarray] = {}
    for r, (row, told) in enumerate(
        zip(rows(fk.SCAFFOLD(), [Cosine(exact=(1,))]), reference("SCAFFOLD"), strict=True)
    ):
        last, every, mark = [], [], []
        for i, end in told["ends"].items():
            D = end - told["broadcast"]
            cosines = [D @ E / np.linalg.norm(D) / np.linalg.norm(E) for E in earlier.get(i, [])]
            if cosines:
                last.append(cosines[-1])
                every.append(np.mean(cosines))
            if i in marked:
                mark.append(D @ marked[i] / np.linalg.norm(D) / np.linalg.norm(marked[i]))
            earlier.setdefault(i, []).append(D)
        if r == 1:
            marked = {i: moves[-1] for i, moves in earlier.items() if i in told["ends"]}
        for name, cosines in (("previous", last), ("earlier", every), ("round-1", mark)):
            expected = pytest.approx(np.mean(cosines), abs=1e-6) if cosines else None
            assert row[f"cosine/{name}"] == expected
        assert row["cosine/error"] == 0


def test_the_last_rounds_move_against_that_of_each_earlier_one() -> None:
    """Rethinking's Figure 1c to the letter, over the clients of the last cohort that took part then too."""
    found = rows(fk.SCAFFOLD(), [Cosine(each_round=True)])
    told = reference("SCAFFOLD")
    moves = [{i: end - one["broadcast"] for i, end in one["ends"].items()} for one in told]
    expected = []
    for earlier in moves[:-1]:
        both = [(moves[-1][i], earlier[i]) for i in moves[-1] if i in earlier]
        cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in both]
        expected.append(pytest.approx(np.mean(cosines), abs=1e-6) if cosines else None)
    assert found[-1]["cosine/last_round_with"] == expected
    assert [row["cosine/last_round_with"] for row in found[:-1]] == [None] * (ROUNDS - 1)


def test_a_sketch_keeps_cosines_up_to_its_stated_error() -> None:
    generator = torch.Generator().manual_seed(0)
    off = []
    for _ in range(40):
        a, noise = torch.randn(2, 20_000, generator=generator, dtype=torch.float64)
        b = a + 2 * noise
        whole = torch.cosine_similarity(a, b, dim=0)
        off.append(float(torch.cosine_similarity(sketch(a, 4096), sketch(b, 4096), dim=0) - whole))
    assert np.sqrt(np.mean(np.square(off))) < 1.5 / math.sqrt(4096)
    found = rows(fk.FedAvg(), [Cosine(size=8)])
    assert column(found, "cosine/error")[-1] == 1 / math.sqrt(8)


def test_losses_gaps_and_excess_risk() -> None:
    problem = tiny_net(SIZES)
    federation = problem.federation.hold_out(2)
    result = fk.train(
        problem.task,
        federation,
        fk.FedAvg(),
        rounds=4,
        cohort=2,
        work=WORK,
        probes=[Losses(every=2), ExcessRisk(every=1), ClientAccuracy(every=4, share=0.3)],
    )
    x = result.server.x.numpy()
    losses = [problem.reference.loss(x, X, Y) for X, Y in problem.clients]
    pooled = (
        np.concatenate([X for X, _ in problem.clients[:4]]),
        np.concatenate([Y for _, Y in problem.clients[:4]]),
    )
    train, test = problem.reference.loss(x, *pooled), losses[0]
    row = result.history[-1]
    expected = {
        "losses/train": train,
        "losses/test": test,
        "losses/gap": test - train,
        "losses/participating": np.mean(losses[:4]),
        "losses/held_out": np.mean(losses[4:]),
        "losses/participation_gap": np.mean(losses[4:]) - np.mean(losses[:4]),
        "excess/generalisation": test - train,
    }
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-9), name
    assert column(result.history, "losses/train")[::2] == [None, None]
    assert row["excess/optimisation"] >= 0
    accuracies = sorted(
        np.mean(problem.reference.logits(x, X).argmax(1) == Y) for X, Y in problem.clients[:4]
    )
    assert row["clients/accuracy"] == pytest.approx(np.mean(accuracies))
    assert row["clients/worst"] == pytest.approx(np.mean(accuracies[:2]))


def test_excess_risk_is_against_the_best_known() -> None:
    seen = rows(fk.FedAvg(), [ExcessRisk(every=1), Losses(every=1)])
    best = np.minimum.accumulate(column(seen, "losses/train"))
    np.testing.assert_allclose(
        column(seen, "excess/optimisation"), np.array(column(seen, "losses/train")) - best, atol=1e-12
    )
    given = rows(fk.FedAvg(), [ExcessRisk(best=0.01, every=1), Losses(every=1)])
    assert given[-1]["excess/optimisation"] == pytest.approx(given[-1]["losses/train"] - 0.01)


def test_update_norms_by_layer_make_up_the_global_update() -> None:
    found = rows(fk.FedAvg(), [Layers()])
    told = reference("FedAvg")
    step = told[0]["x"] - tiny_net(SIZES).x0
    assert found[0]["layers/0.weight"] == pytest.approx(np.linalg.norm(step[:15]))
    assert found[0]["layers/2.bias"] == pytest.approx(np.linalg.norm(step[-4:]))
    for row in found:
        layers = [value for name, value in row.items() if name.startswith("layers/")]
        assert len(layers) == 4
        assert sum(value**2 for value in layers) == pytest.approx(row["global_update"])


@pytest.mark.slow
def test_costs_count_passes_bytes_and_memory() -> None:
    d = len(tiny_net(SIZES).x0)
    steps = lambda row: sum(2 * math.ceil(SIZES[i] / 3) for i in row["cohort"])  # noqa: E731
    total = 0
    for row in rows(fk.FedSAM(), []):
        assert row["costs/gradients"] == row["costs/forwards"] == 2 * steps(row) == row["gradients"]
        total += row["bytes_down"] + row["bytes_up"]
        assert row["costs/total_bytes"] == total
        assert (row["costs/client_memory"], row["costs/server_memory"]) == (0, 8 * d)
    for row in rows(fk.MOON(), []):
        assert row["costs/gradients"] == steps(row)
        assert row["costs/forwards"] == 3 * steps(row)
        assert row["costs/client_memory"] >= 8 * d
    for row in rows(fk.MimeLite(), []):
        assert row["costs/gradients"] == steps(row) + 3  # and a full gradient a client
    broadcast = rows(fk.FedSAGD(), [fk.probes.Costs("broadcast")])[0]
    once, up = broadcast["bytes_down"] // 3, broadcast["bytes_up"]
    assert broadcast["costs/bytes"] == once + up


def test_the_switching_rule_reports_the_curve_of_proposition_1() -> None:
    problem, alpha, L = quadratic(SIZES), 0.3, 2.0
    played = play(
        problem,
        fk.FedDyn(alpha),
        rounds=8,
        cohort=COHORT,
        work=WORK,
        probes=[Switching(zeta=1.0, warm_up=2, L=L)],
    )
    C = [0.0] + [float(after.server.h.numpy() @ after.server.h.numpy()) for after in played]
    eta = 1 / (2 * alpha) + L / (2 * alpha**2)
    met = None
    for T, after in enumerate(played, start=1):
        gain = T * eta * (C[T] - np.mean(C[:T]))
        assert after.row["switching/C"] == pytest.approx(C[T])
        assert after.row["switching/gain"] == pytest.approx(gain)
        assert after.row["switching/D"] == pytest.approx((1.0 + eta * sum(C[:T])) / T)
        met = T if met is None and T > 2 and gain >= 1.0 else met
        assert after.row["switching/round"] == met
    assert met is not None


def test_the_switching_rule_against_a_given_optimum(tmp_path: Any) -> None:
    problem = quadratic(SIZES)
    best, grad = problem.reference.optimum(problem.clients), problem.reference.grad
    model = nn.Linear(4, 2).double()
    nn.utils.vector_to_parameters(torch.from_numpy(best), model.parameters())
    save_file(model.state_dict(), tmp_path / "best.safetensors")
    probe = Switching(reference=str(tmp_path / "best.safetensors"))
    played = play(problem, fk.FedDyn(0.3), rounds=5, cohort=COHORT, work=WORK, probes=[probe])
    told = expect(problem, "FedDyn", rounds=5, cohort=COHORT, work=WORK, alpha=0.3)
    ends: dict[int, np.ndarray] = {}
    for after, one in zip(played, told, strict=True):
        ends |= one["ends"]
        gaps = [
            np.sum((grad(w, *problem.clients[i]) - grad(best, *problem.clients[i])) ** 2)
            for i, w in ends.items()
        ]
        assert after.row["switching/C"] == pytest.approx(np.mean(gaps), rel=1e-8)


def test_a_probe_looks_when_its_period_says_and_after_the_last_round() -> None:
    found = rows(fk.FedAvg(), [Drift(every=4), Divergence(every=4), Update(every=4)])
    for name in ("drift", "local_updates", "divergence", "global_update"):
        assert [row[name] is not None for row in found] == [False, False, False, True, False, True]
    assert found[3]["divergence"] == rows(fk.FedAvg(), [Divergence()])[3]["divergence"]
