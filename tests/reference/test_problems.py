"""Gradients of the reference problems: against finite differences, and against torch where it is there."""

import numpy as np
import pytest

from .methods_average import (
    contrast_grad,
    contrast_loss,
    cosine,
    cosine_grad,
    not_true,
    not_true_grad,
    not_true_loss,
)
from .problems import LeastSquares, Softmax, TinyNet

PROBLEMS = {
    "squares": LeastSquares(4),
    "squares with bias": LeastSquares(3, 2, bias=True),
    "softmax": Softmax(4, 3),
    "net": TinyNet(4, 5, 3),
}


def numeric(f, w, h=1e-5):
    """Central differences of a scalar function of any array, with one Richardson step (error h⁴)."""
    out = np.zeros_like(w)
    for at in np.ndindex(w.shape):
        e = np.zeros_like(w)
        e[at] = 1.0
        coarse = (f(w + 100 * h * e) - f(w - 100 * h * e)) / (200 * h)
        fine = (f(w + 50 * h * e) - f(w - 50 * h * e)) / (100 * h)
        out[at] = (4 * fine - coarse) / 3
    return out


def case(problem, seed=0, n=7):
    rng = np.random.default_rng(seed)
    (X, Y), *_ = problem.sample([n], rng)
    return rng.normal(size=problem.size), X, Y


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient(name):
    problem = PROBLEMS[name]
    w, X, Y = case(problem)
    want = numeric(lambda v: problem.loss(v, X, Y), w)
    np.testing.assert_allclose(problem.grad(w, X, Y), want, atol=1e-8)


@pytest.mark.parametrize("name", ["squares", "squares with bias"])
def test_optimum(name):
    problem = PROBLEMS[name]
    clients = problem.sample([5, 9, 7], np.random.default_rng(1))
    weights = [1.0, 2.0, 0.5]
    w = problem.optimum(clients, weights)
    total = sum(p * problem.grad(w, X, Y) for p, (X, Y) in zip(weights, clients, strict=True))
    np.testing.assert_allclose(total, 0, atol=1e-12)


def test_backprop_of_both_ends():
    net = PROBLEMS["net"]
    w, X, _ = case(net)
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(len(X), net.c)), rng.normal(size=(len(X), net.h))

    def value(v):
        return (a * net.logits(v, X)).sum() + (b * net.features(v, X)).sum()

    np.testing.assert_allclose(net.backprop(w, X, a, b), numeric(value, w), atol=1e-8)
    both = net.backprop(w, X, dlogits=a) + net.backprop(w, X, dfeatures=b)
    np.testing.assert_allclose(net.backprop(w, X, a, b), both, atol=1e-14)


def test_not_true():
    logits = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(not_true(logits, np.array([1, 0])), [[0, 2], [4, 5]])
    rng = np.random.default_rng(3)
    student, teacher, Y = rng.normal(size=(6, 4)), rng.normal(size=(6, 4)), rng.integers(4, size=6)
    want = numeric(lambda s: not_true_loss(s, teacher, Y, 0.7, 2.5), student)
    np.testing.assert_allclose(not_true_grad(student, teacher, Y, 0.7, 2.5), want, atol=1e-9)
    assert not_true_loss(teacher, teacher, Y, 0.7, 2.5) == 0


def test_contrast():
    rng = np.random.default_rng(4)
    y, x, last = (rng.normal(size=(6, 4)) for _ in range(3))
    want = numeric(lambda z: cosine(z, x).sum(), y)
    np.testing.assert_allclose(cosine_grad(y, x), want, atol=1e-9)
    want = numeric(lambda z: contrast_loss(z, x, last, 0.8, 0.5), y)
    np.testing.assert_allclose(contrast_grad(y, x, last, 0.8, 0.5), want, atol=1e-9)
    np.testing.assert_array_equal(contrast_grad(y, x, x, 0.8, 0.5), 0)  # MOON's first time
    tiny = 1e-12 * y
    np.testing.assert_allclose(
        cosine(tiny, x), cosine(y, x) * np.linalg.norm(tiny, axis=1) / 1e-8, rtol=1e-12
    )


def torch_net(torch, net, w):
    layers = [torch.nn.Linear(net.p, net.h), torch.nn.Tanh(), torch.nn.Linear(net.h, net.c)]
    model = torch.nn.Sequential(*layers).double()
    torch.nn.utils.vector_to_parameters(torch.tensor(w), model.parameters())
    return model


def torch_grad(torch, model, loss):
    return torch.cat([g.ravel() for g in torch.autograd.grad(loss, list(model.parameters()))]).numpy()


def test_same_as_torch():
    """The parameter order, the loss, and both extra objectives, as torch's own functions give them."""
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    net = PROBLEMS["net"]
    w, X, Y = case(net)
    x, last = case(net, 5)[0], case(net, 6)[0]
    model, teacher, old = (torch_net(torch, net, v) for v in (w, x, last))
    Xt, Yt = torch.tensor(X), torch.tensor(Y)
    out = model(Xt)
    got = torch_grad(torch, model, F.cross_entropy(out, Yt))
    np.testing.assert_allclose(net.grad(w, X, Y), got, atol=1e-14)

    mask = ~F.one_hot(Yt, net.c).bool()
    s, t = (z[mask].reshape(len(Y), -1) / 2.5 for z in (model(Xt), teacher(Xt).detach()))
    kl = 0.7 * 2.5**2 * F.kl_div(s.log_softmax(1), t.softmax(1), reduction="batchmean")
    d = not_true_grad(net.logits(w, X), net.logits(x, X), Y, 0.7, 2.5)
    np.testing.assert_allclose(net.backprop(w, X, d), torch_grad(torch, model, kl), atol=1e-14)

    z_y, z_x, z_old = model[:2](Xt), teacher[:2](Xt).detach(), old[:2](Xt).detach()
    pair = torch.stack([F.cosine_similarity(z_y, z_x), F.cosine_similarity(z_y, z_old)], dim=1) / 0.5
    moon = 0.8 * F.cross_entropy(pair, torch.zeros(len(Y), dtype=torch.long))
    d = contrast_grad(net.features(w, X), net.features(x, X), net.features(last, X), 0.8, 0.5)
    parameters = list(model[:2].parameters())
    want = torch.cat([g.ravel() for g in torch.autograd.grad(moon, parameters)]).numpy()
    got = net.backprop(w, X, dfeatures=d)
    np.testing.assert_allclose(got[: len(want)], want, atol=1e-14)
    np.testing.assert_array_equal(got[len(want) :], 0)
