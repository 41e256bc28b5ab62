"""Models: the papers' parameter counts, marked features, seeded building, vmap."""

import copy

import pytest
import torch
from selecting import slow
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from fedkeel import models
from fedkeel.experiments.expression import parse_model

torch.set_num_threads(1)


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (models.logistic, 7_850),  # FedSAGD on EMNIST-L
        (models.mlp, 64 * 64 + 64 + 64 * 10 + 10),
        (lambda: models.mlp(20, (30, 40), 5), 20 * 30 + 30 + 30 * 40 + 40 + 40 * 5 + 5),
        (lambda: models.mlp(20, (), 5), 105),
        (models.cnn, 797_962),  # FedSAGD Table 5, CIFAR-10
        (lambda: models.cnn(classes=100), 815_332),
        (models.lenet, 62_006),
        (models.resnet18_gn, 11_181_642),
        (lambda: models.resnet20(10), 269_722),  # He et al.: 0.27 M
        (lambda: models.resnet20(100), 275_572),
        (models.char_lstm, 133_520),  # FedSAGD Table 6
        *slow(
            (lambda: models.resnet18_gn(100), 11_227_812),
            (lambda: models.resnet18_gn(stem="3x3"), 11_173_962),
            (lambda: models.resnet18(1000), 11_689_512),  # the standard ImageNet counts
            (lambda: models.resnet34(1000), 21_797_672),
            (models.vgg11, 9_225_610),
            (lambda: models.vgg11(norm="batch"), 9_231_114),
        ),
    ],
)
def test_parameter_counts(make, parameters):
    assert count(make()) == parameters


CASES = [
    ("logistic", (1, 28, 28), 784),
    ("mlp", (64,), 64),
    ("cnn", (3, 32, 32), 192),
    ("cnn", (1, 28, 28), 192),
    ("lenet", (3, 32, 32), 84),
    ("vgg11", (3, 32, 32), 512),
    ("resnet20", (3, 32, 32), 64),
    ("resnet18", (3, 64, 64), 512),
    ("resnet18_gn", (1, 28, 28), 512),
    ("char_lstm", (80,), 100),
]


def batch(name, shape, n=3):
    if name == "char_lstm":
        return torch.randint(0, 7, (n, *shape), dtype=torch.uint8)
    return torch.rand(n, *shape)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "features"), CASES)
def test_the_head_reads_the_penultimate_features(name, shape, features):
    model = models.build(name, shape=shape, classes=7).eval()
    seen = []
    model.get_submodule(model.penultimate).register_forward_hook(lambda *args: seen.append(args[-1]))
    logits = model(batch(name, shape))
    assert logits.shape == (3, 7)
    assert seen[0].shape == (3, features)
    assert torch.allclose(model.get_submodule("head")(seen[0]), logits)


def test_the_seed_decides_the_weights_and_the_global_generator_is_left_alone():
    state = torch.get_rng_state()
    a, b, c = (models.build("mlp", shape=(64,), classes=10, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    d = models.build("mlp", shape=(64,), classes=10, seed=1)
    assert torch.equal(a.head.weight, b.head.weight)
    assert torch.equal(a.head.weight, d.head.weight)
    assert not torch.equal(a.head.weight, c.head.weight)


def test_building_in_another_precision():
    model = models.build("logistic", shape=(5,), classes=2, dtype=torch.float64)
    assert {p.dtype for p in model.parameters()} == {torch.float64}


@pytest.mark.slow
def test_every_name_builds():
    shapes = {"char_lstm": (80,)}
    for name in models.names():
        assert count(models.build(name, shape=shapes.get(name, (3, 32, 32)), classes=5)) > 0


def test_unknown_names_and_unfit_shapes_are_explained():
    with pytest.raises(ValueError, match="did you mean 'resnet18_gn'"):
        models.build("resnet18gn", shape=(3, 32, 32), classes=10)
    with pytest.raises(ValueError, match=r"cnn takes square pictures.*shape \(64,\)"):
        models.build("cnn", shape=(64,), classes=10)
    with pytest.raises(ValueError, match="32×32 pixels or more"):
        models.build("vgg11", shape=(3, 28, 28), classes=10)
    with pytest.raises(ValueError, match="char_lstm takes texts"):
        models.build("char_lstm", shape=(3, 32, 32), classes=10)
    with pytest.raises(ValueError, match="too small"):
        models.cnn(size=12)
    with pytest.raises(ValueError, match="stem is '5x5'"):
        models.resnet18_gn(stem="5x5")
    with pytest.raises(ValueError, match="four widths"):
        models.vgg11(widths=(1, 2))


def test_the_character_model_speaks_from_the_last_layers_last_state():
    model = models.char_lstm(vocabulary=9, embedding=4, hidden=6)
    x = torch.randint(0, 9, (3, 11))
    _, (states, _) = model.lstm(model.embedding(x))
    assert torch.allclose(model(x), model.head(states[-1]), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (models.logistic(12, 4), (12,)),
        (models.mlp(12, (5,), 4), (12,)),
        (models.cnn(4, 1, 16), (1, 16, 16)),
        (models.char_lstm(7, embedding=3, hidden=5), (6,)),
        pytest.param(models.resnet18_gn(4), (3, 16, 16), marks=pytest.mark.slow),
        pytest.param(
            models.vgg11(4, widths=(4, 6, 8, 10), norm="group"), (3, 32, 32), marks=pytest.mark.slow
        ),
    ],
    ids=["logistic", "mlp", "cnn", "char_lstm", "resnet18_gn", "vgg11"],
)
def test_gradients_under_vmap_are_those_of_each_client(model, shape):
    model = copy.deepcopy(model).double()
    text = isinstance(next(model.children()), torch.nn.Embedding)
    x = batch("char_lstm" if text else "", (2, *shape), n=2)
    x = x if text else x.double()
    y = torch.randint(0, 4, (2, 2))
    noisy = {k: torch.stack([p, p + 0.01 * torch.randn_like(p)]) for k, p in model.named_parameters()}
    stacked = {k: v.detach() for k, v in noisy.items()}

    def loss(parameters, x, y):
        return cross_entropy(functional_call(model, parameters, (x,)), y)

    together = vmap(grad(loss))(stacked, x, y)
    for i in range(2):
        alone = grad(loss)({k: v[i] for k, v in stacked.items()}, x[i], y[i])
        assert all(torch.allclose(together[k][i], alone[k], atol=1e-9) for k in alone)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("mlp(200, 100)", lambda: models.mlp(12, (200, 100), 4)),
        ("mlp(hidden=(7,))", lambda: models.mlp(12, (7,), 4)),
        ("MLP", lambda: models.mlp(12, classes=4)),
        ("logistic", lambda: models.logistic(12, 4)),
        ("vgg11((4, 6, 8, 10), norm='group')", lambda: models.vgg11(4, widths=(4, 6, 8, 10), norm="group")),
        ("char_lstm(hidden=5)", lambda: models.char_lstm(4, hidden=5)),
    ],
)
def test_a_model_is_named_with_its_own_arguments(text, same):
    architecture = parse_model(text)
    shape = (3, 32, 32) if "vgg" in text else (12,)
    made = models.build(architecture, shape=shape, classes=4)
    assert {k: v.shape for k, v in made.state_dict().items()} == {
        k: v.shape for k, v in same().state_dict().items()
    }
