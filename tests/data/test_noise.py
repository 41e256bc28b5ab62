"""Noise and augmentation: what changes, what stays, and that the seed alone decides."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from engines.stacked_runs import both
from engines.stacked_runs import pictures as stacked_pictures
from torch import nn

from fedkeel import FedAvg, Task
from fedkeel.common.errors import ConfigError, DataError
from fedkeel.data.federation import Federation
from fedkeel.data.noise import Augment, ChannelGains, ClassBrightness, add_noise
from fedkeel.data.partition import DirichletByClient
from fedkeel.data.sources import Dataset
from fedkeel.experiments.expression import parse_augment
from fedkeel.tensors.streams import Stream

torch.set_num_threads(1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n, size=8, channels=3):
    return torch.randint(60, 130, (n, channels, size, size), dtype=torch.uint8, generator=generator())


def federation(clients=4, each=6):
    x = pictures(clients * each)
    y = torch.arange(clients * each) % 3
    cut = [(x[i * each : (i + 1) * each], y[i * each : (i + 1) * each]) for i in range(clients)]
    return Federation.from_arrays(cut, test=(x[:5], y[:5]))


def test_channel_gains_are_one_factor_for_each_client_and_channel():
    clean = federation()
    noisy = add_noise(clean, ChannelGains(0.2), seed=3)
    factors = []
    for i in range(len(clean)):
        ratio = noisy.samples(i)[0].float() / clean.samples(i)[0].float()
        factors.append(ratio.mean((0, 2, 3)))
        assert (ratio.amax((0, 2, 3)) - ratio.amin((0, 2, 3)) < 0.02).all()
    assert torch.stack(factors).std() > 0.05
    assert noisy.x.dtype == torch.uint8


def test_class_brightness_is_one_shift_for_each_class_whatever_the_client():
    clean = federation()
    noisy = add_noise(clean, ClassBrightness(0.1), seed=3)
    difference = noisy.x.int() - clean.x.int()
    for c in range(3):
        assert len(difference[clean.y == c].unique()) == 1
    assert len(difference.unique()) == 3


def test_noise_depends_on_the_seed_only_and_leaves_the_rest():
    clean = federation()
    noises = (ChannelGains(), ClassBrightness())
    a, b, c = (add_noise(clean, *noises, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a.x, b.x)
    assert not torch.equal(a.x, c.x)
    assert torch.equal(a.y, clean.y)
    assert torch.equal(a.offsets, clean.offsets)
    assert torch.equal(a.test[0], clean.test[0])
    assert a.origin["noise"] == ["ChannelGains(sigma=0.2)", "ClassBrightness(sigma=0.1)"]
    assert a.origin["noise_seed"] == 1


def test_a_clients_gains_do_not_depend_on_how_many_clients_there_are():
    small, large = federation(2), federation(4)
    a, b = (add_noise(f, ChannelGains(), seed=5) for f in (small, large))
    assert torch.equal(a.samples(1)[0], b.samples(1)[0])


def test_a_shared_sample_becomes_one_of_each_clients_own():
    data = Dataset.from_arrays(pictures(30), torch.arange(30) % 3)
    shared = data.split(DirichletByClient(0.1, replacement=True), clients=6, seed=0)
    noisy = add_noise(shared, ChannelGains(), seed=0)
    assert len(noisy.index.unique()) == len(noisy.index) == len(shared.index)
    for i in range(6):
        assert torch.equal(noisy.samples(i)[1], shared.samples(i)[1])


def test_noise_stays_in_the_range_of_bytes():
    x = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    y = torch.tensor([0, 1])
    for seed in range(5):
        glaring = ClassBrightness(100.0)(x, y, y, seed)
        assert glaring.dtype == torch.uint8
        assert set(glaring.flatten().tolist()) <= {0, 255}
    floats = ClassBrightness(0.5)(x.double() / 255, y, y, 0)
    assert floats.dtype == torch.float64


def test_noise_on_something_else_than_pictures_is_refused():
    table = Federation.from_arrays([(torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))])
    with pytest.raises(ValueError, match=r"noise is for pictures.*\(3,\)"):
        add_noise(table, ChannelGains())
    with pytest.raises(DataError, match=r"augmentation is for pictures.*\(3,\): leave it out, or take"):
        Augment()(table.x, generator())
    with pytest.raises(DataError, match=r"pictures with classes, but the targets are torch.float32"):
        add_noise(Federation.from_arrays([(pictures(4), torch.rand(4))]), ChannelGains())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ChannelGains(-1), "sigma is -1; use 0"),
        (lambda: ClassBrightness("much"), "sigma is 'much'; use 0"),
        (lambda: ChannelGains(float("nan")), "sigma is nan; use 0"),
        (lambda: ChannelGains(True), "sigma is True; use 0"),
        (lambda: Augment(pad=-1), "pad is -1; use 0 or a positive whole number"),
        (lambda: Augment(pad=1.5), "pad is 1.5; use 0 or a positive whole number"),
        (lambda: Augment(4), "flip is 4; use True or False"),
        (lambda: Augment(flip_probability=2), "flip_probability is 2; use a number from 0 to 1"),
        (lambda: Augment(crop_probability=True), "crop_probability is True; use a number from 0 to 1"),
        (lambda: Augment(pad=0, crop_probability=0.5), "crop_probability has no effect with pad=0: leave"),
        (lambda: Augment(False, flip_probability=0.1), "flip_probability has no effect with flip=False: le"),
        (lambda: Augment(grey=0.5), "grey is 0.5; use True or False"),
    ],
)
def test_wrong_strengths_are_refused_when_they_are_given(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def slow_augment(x, augment, drawn):
    """Picture by picture, with the draws made beforehand in the same order."""
    chance = augment.flip_probability
    flip = torch.rand(len(x), 1, generator=drawn) < chance if augment.flip else torch.zeros(len(x), 1)
    shift = torch.randint(2 * augment.pad + 1, (2, len(x), 1), generator=drawn)
    if augment.crop_probability < 1:
        shift[:, (torch.rand(len(x), 1, generator=drawn) >= augment.crop_probability)[:, 0]] = augment.pad
    out = torch.empty_like(x)
    for i, picture in enumerate(x):
        c, h, w = picture.shape
        canvas = torch.zeros(c, h + 2 * augment.pad, w + 2 * augment.pad, dtype=x.dtype)
        canvas[:, augment.pad : augment.pad + h, augment.pad : augment.pad + w] = picture
        top, left = int(shift[0, i]), int(shift[1, i])
        crop = canvas[:, top : top + h, left : left + w]
        out[i] = crop.flip(2) if flip[i] else crop
    return out


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    "augment",
    [
        Augment(),
        Augment(flip=False),
        Augment(pad=0),
        Augment(pad=2),
        Augment(pad=2, flip_probability=0.2, crop_probability=0.5),
        Augment(flip_probability=1, crop_probability=0),
    ],
    ids=repr,
)
def test_augmentation_is_flip_and_crop_of_each_picture(dtype, augment):
    x = pictures(20).to(dtype)
    kept = x.clone()
    varied = augment(x, generator(4))
    assert torch.equal(varied, slow_augment(x, augment, generator(4)))
    assert torch.equal(x, kept)
    assert varied.dtype == dtype


def test_augmentation_follows_its_generator():
    x = pictures(20)
    assert torch.equal(Augment()(x, generator(1)), Augment()(x, generator(1)))
    assert not torch.equal(Augment()(x, generator(1)), Augment()(x, generator(2)))


def test_augmentation_varies_everything_it_may():
    one = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)
    seen = {tuple(p.flatten().tolist()) for p in Augment(pad=1)(one.expand(2000, 1, 3, 3), generator())}
    assert len(seen) == 2 * 3 * 3


def test_a_shift_that_may_leave_nothing_of_a_picture_is_refused() -> None:
    pictures = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(DataError, match="pictures have 8×8 pixels, and a shift by 8 may leave nothing"):
        Augment(pad=8)(pictures, torch.Generator())


def test_a_picture_is_mirrored_and_shifted_as_often_as_asked() -> None:
    one = torch.arange(1, 10, dtype=torch.uint8).view(1, 1, 3, 3)
    varied = Augment(pad=1, flip_probability=0.1, crop_probability=0.3)(
        one.expand(20_000, 1, 3, 3), generator()
    )
    shifted = (varied == 0).any(3).any(2)[:, 0].float().mean()
    assert abs(float(shifted) - 0.3 * 8 / 9) < 0.01  # one of the nine shifts is none
    untouched, mirrored = ((varied == way).all(3).all(2)[:, 0].float().mean() for way in (one, one.flip(3)))
    assert abs(float(mirrored / (untouched + mirrored)) - 0.1) < 0.01


def test_grey_padding_is_zero_after_the_pictures_are_normalised() -> None:
    """And the same pictures are moved the same way: only the rim differs from black padding."""
    plain = federation()
    black, grey = (
        replace(plain, transform=lambda x: (x.double() - 90) / 20, augment=Augment(grey=grey))
        for grey in (False, True)
    )
    order = [np.arange(6), np.arange(6)]
    pairs = zip(*(one.batches(1, order, Stream(3)) for one in (black, grey)), strict=True)
    for (dark, _), (light, _) in pairs:
        rim = dark == -90 / 20
        assert rim.any()
        assert torch.equal(light, torch.where(rim, 0.0, dark))


def test_an_augmentation_is_known_by_the_same_text_as_before_its_probabilities() -> None:
    assert repr(Augment(pad=2)) == "Augment(flip=True, pad=2)"
    simulator = Augment(crop_probability=0.5, grey=True)
    assert repr(simulator) == "Augment(flip=True, pad=4, crop_probability=0.5, grey=True)"
    assert parse_augment(repr(simulator)) == simulator


@pytest.mark.parametrize("grey", [False, True])
def test_the_stacked_engine_sees_the_same_varied_pictures(grey: bool) -> None:
    augment = Augment(pad=2, crop_probability=0.5, grey=grey)
    data = replace(stacked_pictures([5, 9, 7]), augment=augment)
    task = Task(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).double())
    assert both(task, data, FedAvg()) < 1e-12
