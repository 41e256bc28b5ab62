"""Small float64 problems with hand-derived gradients.

Parameters are one flat vector, in the order of torch's `model.parameters()`: for each linear layer its
weight (outputs, inputs), row by row, and then its bias.
"""

import math

import numpy as np


def softmax(z):
    """The softmax of each row."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def cross_entropy(z, Y):
    """Mean over the rows of −log softmax(z)[true class]."""
    shifted = z - z.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -log_p[np.arange(len(Y)), Y].mean()


def cross_entropy_grad(z, Y):
    """The derivative of `cross_entropy` by the logits z."""
    d = softmax(z)
    d[np.arange(len(Y)), Y] -= 1.0
    return d / len(Y)


def split(w, *shapes):
    """Cut the flat vector w into arrays of the given shapes."""
    parts, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        parts.append(w[at : at + size].reshape(shape))
        at += size
    assert at == len(w), f"{len(w)} parameters given, {at} needed"
    return parts


class LeastSquares:
    """A linear layer with squared error.

    Torch: `nn.Linear(p, q, bias=bias)` and the loss `0.5 * ((out - y) ** 2).sum(dim=1).mean()`.
    """

    def __init__(self, p, q=1, bias=False):
        self.p, self.q, self.bias = p, q, bias
        self.size = q * p + (q if bias else 0)

    def outputs(self, w, X):
        if not self.bias:
            (A,) = split(w, (self.q, self.p))
            return X @ A.T
        A, b = split(w, (self.q, self.p), (self.q,))
        return X @ A.T + b

    def loss(self, w, X, Y):
        return 0.5 * ((self.outputs(w, X) - Y) ** 2).sum(axis=1).mean()

    def grad(self, w, X, Y):
        error = (self.outputs(w, X) - Y) / len(X)
        parts = [(error.T @ X).ravel()]
        if self.bias:
            parts.append(error.sum(axis=0))
        return np.concatenate(parts)

    def optimum(self, clients, weights=None):
        """The minimiser of the weighted mean of the clients' losses, by the normal equations."""
        weights = np.ones(len(clients)) if weights is None else np.asarray(weights)
        gram = cross = 0.0
        for p, (X, Y) in zip(weights, clients, strict=True):
            Z = np.hstack([X, np.ones((len(X), 1))]) if self.bias else X
            gram = gram + p * Z.T @ Z / len(X)
            cross = cross + p * Z.T @ Y / len(X)
        solution = np.linalg.solve(gram, cross)  # (p or p+1, q)
        A, b = solution[: self.p].T, solution[self.p :]
        return np.concatenate([A.ravel(), b.ravel()])

    def sample(self, sizes, rng):
        """Clients with inputs of their own scale and a linear truth of their own."""
        clients = []
        for n in sizes:
            X = rng.normal(size=(n, self.p)) * rng.uniform(0.5, 1.5, size=self.p)
            truth = rng.normal(size=(self.p, self.q))
            clients.append((X, X @ truth + rng.normal(size=self.q) + 0.1 * rng.normal(size=(n, self.q))))
        return clients


class Softmax:
    """A linear classifier. Torch: `nn.Linear(p, c)` and `F.cross_entropy(out, y)`."""

    def __init__(self, p, c):
        self.p, self.c = p, c
        self.size = c * p + c

    def logits(self, w, X):
        A, b = split(w, (self.c, self.p), (self.c,))
        return X @ A.T + b

    def loss(self, w, X, Y):
        return cross_entropy(self.logits(w, X), Y)

    def grad(self, w, X, Y):
        return self.backprop(w, X, cross_entropy_grad(self.logits(w, X), Y))

    def backprop(self, w, X, dlogits):
        """The parameter gradient of a loss with derivative `dlogits` by the logits."""
        return np.concatenate([(dlogits.T @ X).ravel(), dlogits.sum(axis=0)])

    def sample(self, sizes, rng):
        return sample_classes(self.p, self.c, sizes, rng)


class TinyNet:
    """A two-layer tanh network.

    Torch: `nn.Sequential(nn.Linear(p, h), nn.Tanh(), nn.Linear(h, c))` and `F.cross_entropy(out, y)`.
    """

    def __init__(self, p, h, c):
        self.p, self.h, self.c = p, h, c
        self.size = h * p + h + c * h + c

    def layers(self, w):
        return split(w, (self.h, self.p), (self.h,), (self.c, self.h), (self.c,))

    def features(self, w, X):
        """The penultimate features: the outputs of the tanh."""
        A, a, _, _ = self.layers(w)
        return np.tanh(X @ A.T + a)

    def logits(self, w, X):
        _, _, B, b = self.layers(w)
        return self.features(w, X) @ B.T + b

    def loss(self, w, X, Y):
        return cross_entropy(self.logits(w, X), Y)

    def grad(self, w, X, Y):
        return self.backprop(w, X, cross_entropy_grad(self.logits(w, X), Y))

    def backprop(self, w, X, dlogits=None, dfeatures=None):
        """The parameter gradient of a loss with these derivatives by the logits and by the features.

        None is zero. The features' derivative is the direct one; what reaches them through the logits is
        added here.
        """
        _, _, B, _ = self.layers(w)
        f = self.features(w, X)
        dlogits = np.zeros((len(X), self.c)) if dlogits is None else dlogits
        dfeatures = np.zeros((len(X), self.h)) if dfeatures is None else dfeatures
        inner = (dfeatures + dlogits @ B) * (1.0 - f**2)
        parts = [(inner.T @ X).ravel(), inner.sum(axis=0), (dlogits.T @ f).ravel(), dlogits.sum(axis=0)]
        return np.concatenate(parts)

    def sample(self, sizes, rng):
        return sample_classes(self.p, self.c, sizes, rng)


def sample_classes(p, c, sizes, rng):
    """Clients that share the class centres but have their own class frequencies and shift."""
    centres = rng.normal(size=(c, p))
    clients = []
    for n in sizes:
        Y = rng.choice(c, size=n, p=rng.dirichlet(np.ones(c)))
        clients.append((centres[Y] + 0.3 * rng.normal(size=p) + 0.5 * rng.normal(size=(n, p)), Y))
    return clients
