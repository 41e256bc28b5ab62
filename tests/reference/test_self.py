"""The reference checked against itself: identities, fixed points, equations of the papers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from selecting import slow

from .local import Local, weighted_mean
from .methods import METHODS, simulate
from .problems import LeastSquares, TinyNet

pytestmark = pytest.mark.slow(5)  # the reference changes seldom

SIZES = [7, 12, 5, 9, 16]
WEIGHTS = [0.5, 1.0, 2.0, 1.5, 1.0]
NET = TinyNet(3, 4, 3)
NET_CLIENTS = NET.sample(SIZES, np.random.default_rng(0))
NET_X0 = 0.5 * np.random.default_rng(1).normal(size=NET.size)
PARTIAL = [list(np.random.default_rng(r).choice(5, 3, replace=False)) for r in range(40)]
EVERYONE = [list(range(5))] * 1000


def minibatches(sizes, batch_size=4, epochs=2, seed=0):
    """A function of (round, client): shuffled minibatches, the last short one kept."""

    def batches(r, i):
        rng = np.random.default_rng([seed, r, i])
        orders = [rng.permutation(sizes[i]) for _ in range(epochs)]
        return [order[at : at + batch_size] for order in orders for at in range(0, sizes[i], batch_size)]

    return batches


def whole(sizes, steps):
    """Full-gradient steps."""
    return lambda r, i: [np.arange(sizes[i])] * steps


def run(method, rounds=4, cohorts=PARTIAL, batches=None, **options):
    options = {"lr": 0.1, "lr_decay": 0.9, "weight_decay": 0.01} | options
    batches = batches or minibatches(SIZES)
    return simulate(method, NET, NET_CLIENTS, NET_X0, rounds, cohorts, batches, **options)


def xs(history):
    return np.array([row["x"] for row in history])


def population_mean(by_client, weights):
    return sum(weights[i] * v for i, v in by_client.items()) / sum(weights)


AS_FEDAVG = [
    ("FedProx", {"mu": 0.0}),
    ("FedDyn", {"regularize": False, "compensate": False}),
    ("FedSAGD", {"beta": 0.0, "lam": 0.0, "mu": 0.0}),
    ("FedCM", {"alpha": 1.0}),
    ("FedANAG", {"beta": 0.0}),
    ("MimeLite", {"beta": 0.0}),
    ("FedAvgM", {"beta": 0.0}),
    ("FedACG", {"lam": 0.0, "beta": 0.0}),
    ("FedLNAG", {"beta": 0.0}),
    ("FedSAM", {"rho": 0.0}),
    ("FedNTD", {"beta": 0.0}),
    ("MOON", {"mu": 0.0}),
    ("FedInit", {"beta": 0.0}),
    ("FedAvg", {"sharp": 0.0}),
    ("Lookahead", {"alpha": 1.0}),
    ("FedAvg", {"relaxed": {"beta": 0.0, "aggregate": "walk"}}),
]


@pytest.mark.parametrize("clip_on", ["gradient", "direction"])
@pytest.mark.parametrize(("method", "knobs"), AS_FEDAVG)
def test_equals_fedavg(method, knobs, clip_on):
    """Bit for bit, with ragged clients, weights, decayed rates, weight decay and clipping."""
    shared = {"clip": 0.3, "clip_on": clip_on, "weights": WEIGHTS}
    assert_array_equal(xs(run(method, **shared, **knobs)), xs(run("FedAvg", **shared)))


def test_fednova():
    """FedAvg where all take as many steps; not otherwise."""
    same = lambda r, i: minibatches(SIZES)(r, i)[:3]  # noqa: E731
    assert_allclose(xs(run("FedNova", batches=same)), xs(run("FedAvg", batches=same)), atol=1e-13)
    row = run("FedNova", rounds=1)[0]
    moves = [(row["ends"][i] - NET_X0) / row["lengths"][i] for i in PARTIAL[0]]
    want = NET_X0 + np.mean(list(row["lengths"].values())) * np.mean(moves, axis=0)
    assert_allclose(row["x"], want, atol=1e-14)
    assert len(set(row["lengths"].values())) > 1


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("extra", [{}, {"option": "I"}, {"sharp": 0.05}, {"relaxed": {"beta": 0.1}}])
def test_scaffold_mean_of_c_i_is_c(weights, extra):
    for row in run("SCAFFOLD", weights=weights, **extra):
        assert_allclose(population_mean(row["c_i"], weights or [1.0] * 5), row["c"], atol=1e-14)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("method", ["FedDyn", "FedSMOO"])
@pytest.mark.parametrize("aggregate", ["model", "walk"])
def test_feddyn_mean_of_h_i_is_h(method, weights, aggregate):
    for row in run(method, weights=weights, relaxed={"beta": 0.1, "aggregate": aggregate}):
        assert_allclose(population_mean(row["h_i"], weights or [1.0] * 5), row["h"], atol=1e-14)


def test_scaffold_options_agree_for_one_full_step():
    one = {"batches": whole(SIZES, 1), "weight_decay": 0.0}
    first, second = run("SCAFFOLD", option="I", **one), run("SCAFFOLD", option="II", **one)
    assert_allclose(xs(first), xs(second), atol=1e-13)


def test_scaffold_direction_counts_from_the_start():
    """One full step from a relaxed start: option II's c_i is the gradient at that start."""
    for relaxed in ({"beta": 0.3}, {"beta": 0.3, "aggregate": "walk"}):
        for row in run("SCAFFOLD", relaxed=relaxed, batches=whole(SIZES, 1), weight_decay=0.0):
            for i, start in row["starts"].items():
                assert_allclose(row["c_i"][i], NET.grad(start, *NET_CLIENTS[i]), atol=1e-13)


def test_proximal_terms_agree():
    """FedSAGD(0, λ, 0) and FedACG(0, λ) are FedProx(λ); FedSAGD(0, 0, μ) is FedAvg with more weight decay."""
    prox = xs(run("FedProx", mu=0.3))
    assert_allclose(xs(run("FedSAGD", beta=0.0, lam=0.3, mu=0.0)), prox, atol=1e-14)
    assert_allclose(xs(run("FedACG", lam=0.0, beta=0.3)), prox, atol=1e-14)
    decayed = xs(run("FedAvg", weight_decay=0.31))
    assert_allclose(xs(run("FedSAGD", beta=0.0, lam=0.0, mu=0.3)), decayed, atol=1e-14)


def test_fedsmoo_shift():
    """With one full step, μ_i moves by e − s, e along g(x) − μ_i − s; s has length ρ."""
    s, mu = 0.0, {}
    for row in run("FedSMOO", rho=0.5, batches=whole(SIZES, 1)):
        for i in row["ends"]:
            q = NET.grad(row["broadcast"], *NET_CLIENTS[i]) - mu.get(i, 0.0) - s
            e = row["mu_i"][i] - mu.get(i, 0.0) + s
            assert_allclose(e, 0.5 * q / (np.linalg.norm(q) + 1e-7), atol=1e-14)
        s, mu = row["s"], row["mu_i"]
        assert_allclose(np.linalg.norm(s), 0.5, rtol=1e-5)


def test_fedinit_equation_10():
    """x_{t+1} − w_i = β(w_prev − x_t) + (x_{t+1} − x_t) + Σ lr·dir, the sum walked again by hand."""
    beta, last, x, wd = 0.1, {}, NET_X0, 0.01
    for r, row in enumerate(run("FedInit", beta=beta)):
        for i in PARTIAL[r]:
            X, Y = NET_CLIENTS[i]
            previous = last.get(i, NET_X0)
            y, total, rate = x + beta * (x - previous), 0.0, 0.1 * 0.9**r
            for k in minibatches(SIZES)(r, i):
                step = rate * (NET.grad(y, X[k], Y[k]) + wd * y)
                y, total = y - step, total + step
            w = row["ends"][i]
            assert_allclose(row["x"] - w, beta * (previous - x) + (row["x"] - x) + total, atol=1e-14)
        last |= row["ends"]
        x = row["x"]


@pytest.mark.parametrize("extra", [{}, {"relaxed": {"beta": 0.1}}])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_fedacg_is_the_mean_end_model(extra, weights):
    for r, row in enumerate(run("FedACG", weights=weights, **extra)):
        chosen = [(weights or [1.0] * 5)[i] for i in PARTIAL[r]]
        mean = weighted_mean([{"end": row["ends"][i]} for i in PARTIAL[r]], chosen)["end"]
        assert_allclose(row["x"], mean, atol=1e-14)


def test_fedanag_recovers_the_mean_gradient():
    """With one step and no weight decay, m⁺ − βm is the cohort's mean gradient at x."""
    beta, m, x = 0.8, 0.0, NET_X0
    history = run("FedANAG", beta=beta, batches=whole(SIZES, 1), weight_decay=0.0)
    for r, row in enumerate(history):
        want = np.mean([NET.grad(x, *NET_CLIENTS[i]) for i in PARTIAL[r]], axis=0)
        assert_allclose(row["m"] - beta * m, want, atol=1e-13)
        m, x = row["m"], row["x"]


def test_one_full_step_makes_fedcm_mimelite():
    one = {"batches": whole(SIZES, 1), "weight_decay": 0.0, "cohorts": EVERYONE}
    cm, mime = run("FedCM", alpha=0.3, **one), run("MimeLite", beta=0.7, **one)
    assert_allclose(xs(cm), xs(mime), atol=1e-13)
    assert_allclose(cm[-1]["M"], mime[-1]["m"], atol=1e-13)


def test_fedlnag_alone_is_nesterov():
    """One client, buffer carried: centralised Nesterov SGD over all the rounds."""
    beta, y, b = 0.9, NET_X0, 0.0
    X, Y = NET_CLIENTS[1]
    alone = [[1]] * 4
    carried = run("FedLNAG", beta=beta, cohorts=alone)
    for r, row in enumerate(carried):
        for k in minibatches(SIZES)(r, 1):
            g = NET.grad(y, X[k], Y[k]) + 0.01 * y
            b = beta * b + g
            y = y - 0.1 * 0.9**r * (g + beta * b)
        assert_allclose(row["x"], y, atol=1e-13)
    reset = run("FedLNAG", beta=beta, cohorts=alone, carry=False)
    assert_array_equal(reset[0]["x"], carried[0]["x"])
    assert abs(reset[1]["x"] - carried[1]["x"]).max() > 1e-4


def test_fedspeed_is_sharp_feddyn_when_all_take_part():
    dyn = run("FedDyn", alpha=0.3, sharp=0.05, cohorts=EVERYONE)
    speed = run("FedSpeed", alpha=0.3, rho=0.05, cohorts=EVERYONE)
    assert_allclose(xs(dyn), xs(speed), atol=1e-12)
    unlike = run("FedSpeed", alpha=0.3, rho=0.05)
    assert abs(xs(unlike) - xs(run("FedDyn", alpha=0.3, sharp=0.05))).max() > 1e-4


@pytest.mark.parametrize("clip_on", ["gradient", "direction"])
def test_sharp_aliases(clip_on):
    clip = {"clip": 0.3, "clip_on": clip_on}
    assert_array_equal(xs(run("FedSAM", rho=0.05, **clip)), xs(run("FedAvg", sharp=0.05, **clip)))
    assert_array_equal(xs(run("MoFedSAM", rho=0.05)), xs(run("FedCM", sharp=0.05)))
    assert_array_equal(xs(run("FedGamma", rho=0.05)), xs(run("SCAFFOLD", sharp=0.05)))
    assert_array_equal(xs(run("FedSMOO", rho=0.0, **clip)), xs(run("FedDyn", **clip)))
    assert_array_equal(xs(run("FedSpeed", blend=0.0)), xs(run("FedSpeed", rho=0.0)))


def test_first_rounds_by_hand():
    """Two clients with loss (y − 1)²/2 and (y + 3)²/2, x0 = 0, lr = 1/2, two steps: worked on paper."""
    problem = LeastSquares(1)
    one = np.ones((1, 1))
    clients = [(one, one), (one, -3 * one)]

    def last(method, rounds=1, cohorts=EVERYONE, **knobs):
        both = [[i for i in cohort if i < 2] for cohort in cohorts]
        args = (problem, clients, [0.0], rounds, both, whole([1, 1], 2), 0.5)
        return simulate(method, *args, **knobs)[-1]

    # the walks end at 3/4 and −9/4; length 1
    assert last("FedAvg")["x"] == -0.75
    assert last("FedAvg", server_lr=2.0)["x"] == -1.5
    assert last("FedAvg", weights=[3.0, 1.0])["x"] == 0.0
    # with weight decay 1: y ← y/2 + 1/2 − y/2, so both steps give (1/2, −3/2)
    assert last("FedAvg", weight_decay=1.0)["x"] == -0.5
    # c_i = −3/4 and 9/4, c = 3/4; then y ← y/2 − 3/8 for both clients' means
    row = last("SCAFFOLD")
    assert (row["c_i"][0], row["c_i"][1], row["c"]) == (-0.75, 2.25, 0.75)
    row = last("SCAFFOLD", cohorts=[[1], [0]], rounds=2)
    # round 1: client 1 alone, c_1 = 9/4, c = 9/8, x = −9/4. round 2: client 0, y ← y/2 + 1/2 − 9/16:
    # −9/4 → −19/16 → −21/32; W = −9/4 + 21/32 = −51/32; c_0 = −9/8 − 51/32 = −87/32; c = 9/8 − 87/64
    assert_allclose([row["x"], row["c_i"][0], row["c"]], [[-21 / 32], [-87 / 32], [-15 / 64]], rtol=1e-15)
    # FedDyn(1): y ← y/2 + a/2 − y/2 = a/2: ends 1/2, −3/2; h_i = −1/2, 3/2; h = 1/2; γ = −1/2; x = −1
    row = last("FedDyn", alpha=1.0)
    assert (row["h_i"][0], row["h_i"][1], row["h"], row["gamma"], row["x"]) == (-0.5, 1.5, 0.5, -0.5, -1.0)
    # FedCM(1/2): y ← 3y/4 + a/4: ends 7/16·a; M = −x = 7/16. Round 2 adds −(1/2)(1/2)(7/16)·(1 + 3/4)
    assert last("FedCM", alpha=0.5)["M"] == 7 / 16
    assert last("FedCM", alpha=0.5, rounds=2)["x"] == 9 / 16 * -7 / 16 - 7 / 16 - 7 / 64 * 7 / 4
    # FedAvgM(1/2): v = −3/4; round 2 from −3/4: mean D = (−1 + 3/4)·3/4 = −3/16, v = −9/16
    assert last("FedAvgM", beta=0.5, rounds=2)["x"] == -0.75 - 9 / 16
    # FedACG(1/2, 0): m = −3/4, z = −9/8; mean D = 3/4·(−1 + 9/8) = 3/32, m = −3/8 + 3/32
    assert last("FedACG", lam=0.5, beta=0.0, rounds=2)["x"] == -0.75 - 9 / 32
    # FedInit(1/3): from x = −3/4: starts −3/4 − 1/3·3/2 = −5/4 and −3/4 + 1/3·3/2 = −1/4, mean −3/4
    row = last("FedInit", beta=1 / 3, rounds=2)
    assert_allclose([row["starts"][0], row["starts"][1]], [[-1.25], [-0.25]], rtol=1e-15)
    assert_allclose(row["x"], -0.75 / 4 - 0.75, rtol=1e-15)
    # FedAdam: m = −3/40, v = 1e-6·0.99 + 0.01·9/16
    row = last("FedAdam")
    assert_allclose(row["x"], -0.1 * 0.075 / (np.sqrt(0.99e-6 + 0.005625) + 1e-3), rtol=1e-14)
    # FedYogi: v − D² < 0, so v = 1e-6 + 0.01·9/16; FedAdagrad: m = −3/4, v = 1e-6 + 9/16
    assert_allclose(last("FedYogi")["v"], 1e-6 + 0.005625, rtol=1e-14)
    row = last("FedAdagrad")
    assert_allclose(row["x"], -0.1 * 0.75 / (np.sqrt(1e-6 + 0.5625) + 1e-3), rtol=1e-14)
    # FedSAGD(1/2, 0, 0): v = 3/4 / (3/2) = 1/2; round 2: y ← y/2 − 1/2 − 1/8 on the mean: −3/4 → −1 → −9/8
    row = last("FedSAGD", beta=0.5, lam=0.0, mu=0.0, rounds=2)
    assert_allclose(row["x"], -9 / 8, rtol=1e-15)
    assert_allclose(row["v"], 1 / 6 + (3 / 8) / 1.5, rtol=1e-15)


def test_sharp_and_clipping_by_hand():
    """One client with loss (y − 1)²/2, lr = 1/2, two steps; the guard 1e-7 is within the tolerance."""
    one = np.ones((1, 1))

    def last(method, x0, rounds=1, **knobs):
        args = (LeastSquares(1), [(one, one)], [x0], rounds, [[0]] * rounds, whole([1], 2), 0.5)
        return simulate(method, *args, **knobs)[-1]

    def near(got, want):
        assert_allclose(got, want, atol=1e-5)

    # round 1: q −1, e −1/4, g −5/4, y 5/8; q −3/8 + 1/4, e −1/4, g −5/8 + pull 5/8, y 5/8; μ −1/2
    row = last("FedSMOO", 0.0, alpha=1.0, rho=0.25)
    near([row["mu_i"][0][0], row["h"][0], row["s"][0], row["x"][0]], [-1 / 2, -5 / 8, -1 / 4, 5 / 4])
    # round 2: q 1/4 + 1/2 + 1/4, e 1/4, μ 0, g 1/2 + 5/8, y 11/16; q −5/16 + 1/4, e −1/4, μ 0,
    # g −9/16 + 5/8 − 9/16, y 15/16; D −5/16
    row = last("FedSMOO", 0.0, rounds=2, alpha=1.0, rho=0.25)
    near([row["mu_i"][0][0], row["h"][0], row["x"][0]], [0, -5 / 16, 5 / 4])
    # g (−1 − 5/4)/2, y 9/16; g (−7/16 − 11/16)/2 + pull 9/16 = 0; ĝ −9/16
    row = last("FedSpeed", 0.0, alpha=1.0, rho=0.25, blend=0.5)
    near([row["g_i"][0][0], row["x"][0]], [-9 / 16, 9 / 8])
    # gradients cut to 1/2: 2 → 7/4 → 13/8; directions: (1 − 2 → −1/2) + 2, 5/4, (1/4 − 2 → −1/2) + 5/4
    clip = {"mu": 1.0, "clip": 0.5, "clip_eps": 0.0}
    assert last("FedProx", 2.0, **clip)["x"] == 13 / 8
    assert last("FedProx", 2.0, clip_on="direction", **clip)["x"] == 7 / 8


def test_extra_objectives_begin_at_zero():
    """A teacher that is the student teaches nothing; MOON pushes nothing before it has a last model."""
    one = {"batches": whole(SIZES, 1)}
    assert_allclose(xs(run("FedNTD", **one)), xs(run("FedAvg", **one)), atol=1e-15)
    assert abs(xs(run("FedNTD"))[0] - xs(run("FedAvg"))[0]).max() > 1e-5
    moon, plain = run("MOON"), run("FedAvg")
    assert_array_equal(moon[0]["x"], plain[0]["x"])
    assert abs(moon[-1]["x"] - plain[-1]["x"]).max() > 1e-5
    for i, end in moon[-1]["ends"].items():
        assert_array_equal(moon[-1]["last_i"][i], end)


def test_relaxed_aggregates():
    """The server's two averages differ by the mean offset; γ = "end" is the mean end model."""
    model = run("FedAvg", relaxed={"beta": 0.3})
    walk = run("FedAvg", relaxed={"beta": 0.3, "aggregate": "walk"})
    first = next(r for r in range(4) if abs(model[r]["x"] - walk[r]["x"]).max() > 1e-12)
    offset = np.mean([s - model[first]["broadcast"] for s in model[first]["starts"].values()], axis=0)
    assert_allclose(model[first]["x"] - walk[first]["x"], offset, atol=1e-14)
    options = {"beta": 0.3, "aggregate": "walk", "gamma": "end"}
    for row in run("FedDyn", relaxed=options):
        assert_allclose(row["gamma"], np.mean(list(row["ends"].values()), axis=0), atol=1e-14)
        assert_allclose(row["x"], row["gamma"] - row["h"] / 0.1, atol=1e-13)
    for method in ("FedSpeed", "FedSMOO"):
        here, there = run(method, relaxed=options), run(method, relaxed=options | {"gamma": "walk"})
        assert abs(here[3]["x"] - there[3]["x"]).max() > 1e-4


def test_gamma_makes_no_difference_under_model():
    for method in ("FedDyn", "FedSpeed", "FedSMOO"):
        end, walk = (run(method, relaxed={"beta": 0.1, "gamma": gamma}) for gamma in ("end", "walk"))
        assert_allclose(xs(end), xs(walk), atol=1e-12)


def test_relaxed_first_and_beta():
    initial, none = (run("FedInit", beta=0.2, first=first) for first in ("initial", "none"))
    new = [(r, i) for r in range(4) for i in PARTIAL[r] if all(i not in PARTIAL[q] for q in range(r))]
    for r, i in new:
        x = initial[r]["broadcast"]
        assert_allclose(initial[r]["starts"][i], x + 0.2 * (x - NET_X0), atol=1e-15)
        assert_array_equal(none[r]["starts"][i], none[r]["broadcast"])
    for r, row in enumerate(run("FedInit", beta=0.2, decay=0.5)):
        if r == 0:
            last = {}
        for i in PARTIAL[r]:
            x, w = row["broadcast"], last.get(i, NET_X0)
            assert_allclose(row["starts"][i], x + 0.2 * 0.5**r * (x - w), atol=1e-15)
        last = last | row["ends"]


def test_relaxed_adaptive():
    """β = ρ·p·min(1, (1 − a)·‖M‖²/S − 1) by the recursions of M, S and a."""
    mean, alone, factor, last, before, betas = 0 * NET_X0, 0.0, 0.0, {}, NET_X0, [0.0]
    for row in run("FedInit", rounds=8, adaptive=0.9):
        for i, start in row["starts"].items():
            x = row["broadcast"]
            assert_allclose(start, x + betas[-1] * (x - last.get(i, NET_X0)), atol=1e-13)
        move, p = row["x"] - before, row["share"]
        mean, alone = mean + p * (move - mean), (1 - p) ** 2 * alone + p**2 * move @ move
        factor = factor + p * ((1 - p) / p * betas[-1] - factor)
        betas.append(0.9 * p * min(1.0, max(0.0, (1 - factor) * mean @ mean / alone - 1)))
        assert_allclose(row["beta"], betas[-1], atol=1e-13)
        last, before = last | row["ends"], row["x"]
    assert max(betas) > 0


def test_clipping():
    rng = np.random.default_rng(7)
    v = rng.normal(size=9)
    for clip_on in ("gradient", "direction"):
        local = Local(NET, *NET_CLIENTS[0], [], 0.1, clip=0.5, clip_on=clip_on, clip_eps=0.0)
        other = local.cut if clip_on == "gradient" else local.trim
        clip = local.trim if clip_on == "gradient" else local.cut
        assert_allclose(np.linalg.norm(clip(v)), 0.5, rtol=1e-15)
        assert_array_equal(clip(1e-3 * v), 1e-3 * v)
        assert_array_equal(other(v), v)
    # a gradient clip bounds g alone, a direction clip all but the terms in y
    gradient, direction = (run("SCAFFOLD", clip=0.2, clip_on=on) for on in ("gradient", "direction"))
    assert_array_equal(gradient[0]["x"], direction[0]["x"])  # nothing pushes yet
    assert abs(gradient[-1]["x"] - direction[-1]["x"]).max() > 1e-6


def test_stages():
    fresh = run("stages", stages=[{"method": "FedDyn", "until": 2}, {"method": "FedAvg"}])
    dyn = run("FedDyn")
    assert_array_equal(xs(fresh)[:2], xs(dyn)[:2])
    shifted = lambda r, i: minibatches(SIZES)(r + 2, i)  # noqa: E731
    rate = {"lr": 0.1 * 0.9**2, "weight_decay": 0.01, "lr_decay": 0.9}
    rest = simulate("FedAvg", NET, NET_CLIENTS, dyn[1]["x"], 2, PARTIAL[2:], shifted, **rate)
    assert_allclose(xs(fresh)[2:], xs(rest), atol=1e-14)
    without = [{"method": "FedDyn", "until": 0.5}, {"method": "FedDyn", "compensate": False}]
    carried = run("stages", stages=without)
    assert_array_equal(carried[2]["h"], dyn[2]["h"])
    assert_array_equal(carried[2]["x"], dyn[2]["gamma"])
    without[1]["memory"] = "fresh"
    forgot = run("stages", stages=without)
    assert set(forgot[2]["h_i"]) == set(PARTIAL[2])
    same = run("stages", stages=[{"method": "SCAFFOLD", "until": 2}, {"method": "SCAFFOLD"}])
    assert_array_equal(xs(same), xs(run("SCAFFOLD")))
    relaxed = {"relaxed": {"beta": 0.2, "decay": 0.9}}
    parts = [{"method": "FedCM", "until": 2} | relaxed, {"method": "FedCM"} | relaxed]
    assert_array_equal(xs(run("stages", stages=parts)), xs(run("FedCM", **relaxed)))
    with pytest.raises(ValueError, match="nothing to carry"):
        run("stages", stages=[{"method": "FedAvg", "until": 2}, {"method": "FedCM", "memory": "carry"}])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("relaxed", [None, *slow({}, {"aggregate": "walk"}, {"adaptive": 1.0})])
def test_every_method_learns(method, relaxed):
    """Every method, alone and relaxed, lowers the mean loss at its defaults and stays finite."""

    def loss(x):
        return np.mean([NET.loss(x, X, Y) for X, Y in NET_CLIENTS])

    extra = {} if relaxed is None else {"relaxed": relaxed}
    if method in ("FedDyn", "FedSpeed", "FedSMOO"):
        extra["alpha"] = 0.5  # 0.1 jumps far at the start of so short a run
    history = run(method, rounds=8, lr=0.1, lr_decay=1.0, **extra)
    assert loss(history[-1]["x"]) < 0.9 * loss(NET_X0)


SQUARES = LeastSquares(3, 2, bias=True)
SQUARES_CLIENTS = SQUARES.sample(SIZES, np.random.default_rng(3))


def distance(method, rounds, steps, **options):
    """How far x ends from the optimum of heterogeneous least squares, with full gradients."""
    options = {"lr": 0.1} | options
    x0, weights = np.zeros(SQUARES.size), options.get("weights")
    batches = whole(SIZES, steps)
    history = simulate(method, SQUARES, SQUARES_CLIENTS, x0, rounds, EVERYONE, batches, **options)
    return np.linalg.norm(history[-1]["x"] - SQUARES.optimum(SQUARES_CLIENTS, weights))


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_fixed_points(weights):
    """SCAFFOLD and FedDyn find the global optimum with K > 1; FedAvg needs K = 1."""
    w = {"weights": weights}
    assert distance("SCAFFOLD", 150, 5, **w) < 1e-8
    assert distance("SCAFFOLD", 150, 5, option="I", **w) < 1e-8
    for alpha in (0.4, 1.0):
        assert distance("FedDyn", 250, 5, alpha=alpha, **w) < 1e-8
    assert distance("FedAvg", 400, 1, **w) < 1e-8
    assert distance("FedAvg", 60, 5, **w) > 1e-2
    assert distance("FedProx", 60, 5, mu=0.1, **w) > 1e-2
