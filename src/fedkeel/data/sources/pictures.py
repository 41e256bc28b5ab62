"""The picture data sets: CIFAR, the MNIST family, Tiny-ImageNet."""

from __future__ import annotations

import string
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkeel.common.errors import DataError
from fedkeel.data.sources.archives import CIFAR10, CIFAR100, EMNIST, FASHION, MNIST, TINY
from fedkeel.data.sources.cifar import read_cifar
from fedkeel.data.sources.dataset import Dataset, Scale
from fedkeel.data.sources.fetch import Archive, DataDirectories
from fedkeel.data.sources.readers import (
    Arrays,
    read_idx_path,
    read_idx_zipped,
    read_npz,
    read_picture,
    reading,
)

# The superclass of each fine class of CIFAR-100, one letter each: a is 0.
_SUPERCLASSES = (
    "eboiaghhsddojshldjhlglfkhgnpdpalbkmoqjlfftiipnorskqerecaresrkdcmmqmbjtckabqmjnpnqtcegtffitsbcpgarion"
)
_COARSE = np.array([ord(c) - ord("a") for c in _SUPERCLASSES])
_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
_FASHION_NAMES = "T-shirt/top Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Ankle-boot"


def cifar10(directories: DataDirectories) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 pictures of 3×32×32 in 10 classes."""
    path = directories.get(CIFAR10, "cifar10.npz", CIFAR10.file, "cifar-10-batches-py")
    batches = tuple(f"data_batch_{i}" for i in range(1, 6))
    arrays = _npz_or(path, lambda: read_cifar(path, batches, "test_batch", "labels"))
    scale = Scale((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    return _dataset("cifar10", path, arrays, scale, _CIFAR10_NAMES.split())


def cifar100(directories: DataDirectories, *, coarse: bool = False) -> Dataset:
    """CIFAR-100: 50,000 + 10,000 pictures of 3×32×32 in 100 classes, or in 20 superclasses with `coarse`."""
    path = directories.get(CIFAR100, "cifar100.npz", CIFAR100.file, "cifar-100-python")
    arrays = _npz_or(path, lambda: read_cifar(path, ("train",), "test", "fine_labels"))
    scale = Scale((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    fine = _dataset("cifar100", path, arrays, scale, 100)
    if not coarse:
        return fine
    arrays = arrays._replace(y_train=_COARSE[fine.y.numpy()], y_test=_COARSE[arrays.y_test.astype(np.int64)])
    return _dataset("cifar100-coarse", path, arrays, scale, 20)


def mnist(directories: DataDirectories) -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits of 1×28×28."""
    path, arrays = _idx_family(directories, "mnist", MNIST, "MNIST/raw")
    return _dataset("mnist", path, arrays, Scale((0.1307,), (0.3081,)), string.digits)


def fashion_mnist(directories: DataDirectories) -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 pieces of clothing of 1×28×28."""
    path, arrays = _idx_family(directories, "fashion-mnist", FASHION, "FashionMNIST/raw")
    return _dataset("fashion-mnist", path, arrays, Scale((0.2860,), (0.3530,)), _FASHION_NAMES.split())


def emnist_letters(directories: DataDirectories) -> Dataset:
    """EMNIST letters: 124,800 + 20,800 letters of 1×28×28, upright; class 0 is a."""
    path = directories.get(EMNIST, "emnist-letters.npz", EMNIST.file, "gzip.zip", "EMNIST/raw/gzip.zip")
    arrays = _npz_or(path, lambda: _emnist(path))
    return _dataset("emnist-letters", path, arrays, Scale((0.1722,), (0.3309,)), string.ascii_lowercase)


def emnist_l(directories: DataDirectories) -> Dataset:
    """EMNIST-L of FedDyn and FedSAGD: the first ten letters, 48,000 + 8,000."""
    letters = emnist_letters(directories)
    assert letters.test is not None
    train, test = letters.y < 10, letters.test[1] < 10
    return Dataset(
        "emnist-l",
        letters.x[train],
        letters.y[train],
        test=(letters.test[0][test], letters.test[1][test]),
        classes=10,
        transform=letters.transform,
        class_names=tuple(string.ascii_lowercase[:10]),
    )


def tiny_imagenet(directories: DataDirectories) -> Dataset:
    """Tiny-ImageNet: 100,000 + 10,000 pictures of 3×64×64 in 200 classes; its val set is our test set.

    Decoding the pictures takes about a minute; classes are numbered in the order of their WordNet ids.
    """
    path = directories.get(TINY, "tiny-imagenet.npz", "tiny-imagenet-200", TINY.file)
    scale = Scale((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))
    if path.suffix == ".npz":
        return _dataset("tiny-imagenet", path, read_npz(path), scale, 200)
    with reading(path):
        arrays, wnids = _tiny(path)
    return _dataset("tiny-imagenet", path, arrays, scale, wnids)


def _npz_or(path: Path, read: Callable[[], Arrays]) -> Arrays:
    return read_npz(path) if path.suffix == ".npz" else read()


def _idx_family(
    directories: DataDirectories, name: str, archives: tuple[Archive, ...], torch_folder: str
) -> tuple[Path, Arrays]:
    if (npz := directories.find(f"{name}.npz")) is not None:
        return npz, read_npz(npz)
    paths = []
    for archive in archives:
        plain = archive.file.removesuffix(".gz")
        file = Path(plain).name
        names = (f"{name}.npz", archive.file, plain, f"{torch_folder}/{file}.gz", f"{torch_folder}/{file}")
        paths.append(directories.get(archive, *names))
    return paths[0], Arrays(*(read_idx_path(path) for path in paths))


def _emnist(path: Path) -> Arrays:
    parts: list[NDArray[Any]] = []
    for share in ("train", "test"):
        images = read_idx_zipped(path, f"emnist-letters-{share}-images-idx3-ubyte.gz")
        labels = read_idx_zipped(path, f"emnist-letters-{share}-labels-idx1-ubyte.gz")
        # The files hold each letter transposed and count the letters from 1.
        parts += [images.transpose(0, 2, 1), labels.astype(np.int64) - 1]
    return Arrays(*parts)


def _tiny(path: Path) -> tuple[Arrays, list[str]]:
    """Read the pictures from the folder or from the zip archive of it."""
    if path.is_dir():
        names = sorted(str(file.relative_to(path.parent)) for file in path.rglob("*") if file.is_file())
        return _tiny_tree(names, lambda name: (path.parent / name).read_bytes())
    with zipfile.ZipFile(path) as archive:
        return _tiny_tree(sorted(archive.namelist()), archive.read)


def _tiny_tree(names: list[str], read: Callable[[str], bytes]) -> tuple[Arrays, list[str]]:
    train = [name for name in names if name.startswith("tiny-imagenet-200/train/") and name.endswith(".JPEG")]
    wnids = sorted({name.split("/")[2] for name in train})
    number = {wnid: i for i, wnid in enumerate(wnids)}
    notes = read("tiny-imagenet-200/val/val_annotations.txt").decode().splitlines()
    val = [line.split("\t")[:2] for line in notes if line.strip()]
    x_train = np.stack([read_picture(read(name)) for name in train])
    x_test = np.stack([read_picture(read(f"tiny-imagenet-200/val/images/{file}")) for file, _ in val])
    y_train = np.array([number[name.split("/")[2]] for name in train])
    return Arrays(x_train, y_train, x_test, np.array([number[wnid] for _, wnid in val])), wnids


def _dataset(name: str, path: Path, arrays: Arrays, scale: Scale, names: Sequence[str] | int) -> Dataset:
    """Check the arrays against the classes (names, or how many) and bring pictures to (n, c, h, w)."""
    classes = names if isinstance(names, int) else len(names)
    x_train, y_train = _pair(path, arrays.x_train, arrays.y_train, len(scale.mean), classes)
    x_test, y_test = _pair(path, arrays.x_test, arrays.y_test, len(scale.mean), classes)
    return Dataset(
        name,
        x_train,
        y_train,
        test=(x_test, y_test),
        classes=classes,
        transform=scale,
        class_names=None if isinstance(names, int) else tuple(names),
    )


def _pair(path: Path, x: NDArray[Any], y: NDArray[Any], channels: int, classes: int) -> tuple[Tensor, Tensor]:
    if x.dtype != np.uint8:
        raise DataError(f"{path}: the pictures are {x.dtype}, not bytes; store them as uint8 in 0..255")
    if x.ndim == 3 and channels == 1:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] != channels and x.shape[3] == channels:
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1] != channels:
        raise DataError(f"{path}: the pictures have shape {x.shape}, not (n, height, width, {channels})")
    y = y.reshape(-1).astype(np.int64)
    if len(x) != len(y):
        raise DataError(
            f"{path}: {len(x)} pictures but {len(y)} labels; it is incomplete, put a good copy there"
        )
    if y.size and not 0 <= y.min() <= y.max() < classes:
        raise DataError(
            f"{path}: labels from {y.min()} to {y.max()}, but the {classes} classes are 0..{classes - 1}"
        )
    return torch.from_numpy(np.require(x, requirements=["C", "W"])), torch.from_numpy(y)
