"""Sources: each reader on a small file of its format, damaged ones, and the order of places."""

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedkeel.common.errors import DataError
from fedkeel.data.partition import IID, Natural
from fedkeel.data.sources import Dataset, Scale, load, names
from fedkeel.data.sources.cifar import parse
from fedkeel.data.sources.text import VOCABULARY

torch.set_num_threads(1)
REAL = Path(os.environ.get("FEDKEEL_DATA", "/nowhere"))


def needs(file):
    return pytest.mark.skipif(not (REAL / file).exists(), reason=f"no {file} in FEDKEEL_DATA")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setattr("fedkeel.data.sources.fetch.check_once", lambda *_: None)  # the files are our own
    """An empty FEDKEEL_DATA folder and an empty cache for each test."""
    monkeypatch.setenv("FEDKEEL_DATA", str(tmp_path))
    monkeypatch.setenv("FEDKEEL_CACHE", str(tmp_path / "cache"))
    return tmp_path


def offline(name, **options):
    return load(name, download=False, **options)


def images(n, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


# --- npz ---------------------------------------------------------------------------------------------


def save_npz(path, **changes):
    content = {
        "x_train": images(20, 32, 32, 3),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": images(5, 32, 32, 3, seed=1),
        "y_test": np.arange(5, dtype=np.uint8),
        **changes,
    }
    np.savez(path, **{key: value for key, value in content.items() if value is not None})
    return content


def test_npz_pictures_become_channels_first_bytes(places):
    content = save_npz(places / "cifar10.npz")
    data = offline("cifar10")
    assert data.x.shape == (20, 3, 32, 32)
    assert data.x.dtype == torch.uint8
    assert data.x.is_contiguous()
    assert np.array_equal(data.x[7].permute(1, 2, 0).numpy(), content["x_train"][7])
    assert data.y.dtype == torch.int64
    assert data.test[0].shape == (5, 3, 32, 32)
    assert (data.classes, data.class_names[0], len(data)) == (10, "airplane", 20)


def test_grey_pictures_get_their_channel(places):
    save_npz(places / "mnist.npz", x_train=images(20, 28, 28), x_test=images(5, 28, 28))
    assert offline("mnist").x.shape == (20, 1, 28, 28)


def test_coarse_labels_are_the_superclasses_of_the_fine_ones(places):
    save_npz(places / "cifar100.npz", y_train=np.r_[np.arange(10), 90:100].astype(np.uint8))
    data = offline("cifar100", coarse=True)
    assert data.classes == 20
    assert data.y.tolist() == [4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"x_test": None}, "no x_test in it"),
        ({"x_train": images(20, 32, 32, 3).astype(float)}, "float64, not bytes"),
        ({"x_train": images(20, 32, 32)}, r"shape \(20, 32, 32\), not"),
        ({"y_train": np.arange(19) % 10}, "20 pictures but 19 labels"),
        ({"y_train": np.arange(20)}, "labels from 0 to 19, but the 10 classes are 0..9"),
    ],
)
def test_an_npz_that_is_not_the_data_set_is_refused(places, changes, problem):
    save_npz(places / "cifar10.npz", **changes)
    with pytest.raises(DataError, match=problem):
        offline("cifar10")


def test_a_cut_file_is_named_with_the_next_step(places):
    save_npz(places / "cifar10.npz")
    whole = (places / "cifar10.npz").read_bytes()
    (places / "cifar10.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cannot read .*cifar10.npz: .*delete it and load again"):
        offline("cifar10")


def test_an_npz_with_pickled_objects_is_refused(places):
    np.savez(
        places / "cifar10.npz", x_train=np.array([{"a": 1}], dtype=object), y_train=0, x_test=0, y_test=0
    )
    with pytest.raises(DataError, match="cannot read"):
        offline("cifar10")


# --- CIFAR's python archives -------------------------------------------------------------------------


def short(text):
    return b"U" + bytes([len(text)]) + text


def python2_array(array):
    """A byte array as Python 2 and NumPy pickled it in 2009."""
    rows, columns = array.shape
    dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + short(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    shape = struct.pack("<cicic", b"J", rows, b"J", columns, b"\x86")
    data = b"T" + struct.pack("<i", array.size) + array.tobytes()
    made = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01(cnumpy\nndarray\nq\x02K\x00\x85" + short(b"b") + b"tR"
    )
    return made + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"


def python2_batch(x, y, key=b"labels"):
    labels = b"](" + b"".join(b"K" + bytes([int(label)]) for label in y) + b"e"
    entries = short(b"data") + python2_array(x.reshape(len(x), -1)) + short(key) + labels
    return b"\x80\x02}q\x00(" + entries + short(b"batch_label") + short(b"one of five") + b"u."


def write_tar(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def cifar10_files(x, y):
    cuts = [(f"data_batch_{i}", slice(2 * i - 2, 2 * i)) for i in range(1, 6)] + [
        ("test_batch", slice(10, 12))
    ]
    return {f"cifar-10-batches-py/{name}": python2_batch(x[cut], y[cut]) for name, cut in cuts}


def test_the_tests_own_pickle_is_a_real_one():
    x, y = images(2, 3, 32, 32), [3, 4]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        content = pickle.loads(python2_batch(x, y), encoding="bytes")
    assert np.array_equal(content[b"data"], x.reshape(2, -1))
    assert content[b"labels"] == y


@pytest.mark.parametrize("unpacked", [False, True])
def test_cifar10_archive_and_its_folder(places, unpacked):
    x, y = images(12, 3, 32, 32), np.arange(12) % 10
    files = cifar10_files(x, y)
    if unpacked:
        (places / "cifar-10-batches-py").mkdir()
        for name, content in files.items():
            (places / name).write_bytes(content)
    else:
        write_tar(places / "cifar-10-python.tar.gz", files)
    data = offline("cifar10")
    assert np.array_equal(data.x.numpy(), x[:10])
    assert np.array_equal(data.test[0].numpy(), x[10:])
    assert data.y.tolist() == y[:10].tolist()


def test_cifar100_archive(places):
    x, y = images(4, 3, 32, 32), [99, 0, 50, 7]
    write_tar(
        places / "cifar-100-python.tar.gz",
        {
            "cifar-100-python/train": python2_batch(x[:3], y[:3], b"fine_labels"),
            "cifar-100-python/test": python2_batch(x[3:], y[3:], b"fine_labels"),
        },
    )
    assert offline("cifar100").y.tolist() == [99, 0, 50]
    assert offline("cifar100", coarse=True).test[1].tolist() == [7]


def test_arrays_pickled_by_python_3_are_read_too():
    x = images(3, 12)
    content = parse(pickle.dumps({"data": x, "labels": [1, 2, 3]}, protocol=3))
    assert np.array_equal(content["data"], x)


class Evil:
    """Unpickled, it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def doubled(times):
    """A pickle of tuples in tuples, each twice in the next: 2**times of them in a few bytes."""
    return b"K\x01" + b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(times)) + b"."


def test_tuples_in_tuples_are_refused_at_once():
    with pytest.raises(ValueError, match="nested deeper than those of a CIFAR file"):
        parse(doubled(45))


def test_deeply_nested_json_is_refused(places):
    (places / "shakespeare.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"cannot read .*shakespeare.json: its values are nested too deeply"):
        offline("shakespeare")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "wrap", [lambda e: e, lambda e: {"data": e}, lambda e: {"data": images(2, 3072), "labels": [e, e]}]
)
def test_a_malicious_pickle_runs_nothing_and_is_refused(places, protocol, wrap):
    evil = pickle.dumps(wrap(Evil(places / "owned")), protocol)
    write_tar(
        places / "cifar-10-python.tar.gz",
        dict.fromkeys(cifar10_files(images(12, 3, 32, 32), np.zeros(12)), evil),
    )
    with pytest.raises(DataError, match="cannot read"):
        offline("cifar10")
    assert not (places / "owned").exists()


def test_a_cut_archive_and_an_incomplete_one_are_refused(places):
    path = places / "cifar-10-python.tar.gz"
    files = cifar10_files(images(12, 3, 32, 32), np.zeros(12))
    write_tar(path, files)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match="cannot read"):
        offline("cifar10")
    files.pop("cifar-10-batches-py/data_batch_3")
    write_tar(path, files)
    with pytest.raises(DataError, match="data_batch_3"):
        offline("cifar10")


# --- the MNIST family --------------------------------------------------------------------------------


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder, packed=True, n=6):
    folder.mkdir(parents=True)
    labels = np.arange(n, dtype=np.uint8)
    for share, size in (("train", n), ("t10k", 2)):
        for kind, array in (("images-idx3", images(size, 28, 28)), ("labels-idx1", labels[:size])):
            name, content = f"{share}-{kind}-ubyte", idx(array)
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize(
    ("name", "folder", "packed"),
    [
        ("mnist", "mnist", True),
        ("mnist", "MNIST/raw", False),
        ("fashion-mnist", "fashion-mnist", True),
        ("fashion-mnist", "FashionMNIST/raw", True),
    ],
)
def test_idx_files_in_their_usual_folders(places, name, folder, packed):
    write_idx(places / folder, packed)
    data = offline(name)
    assert np.array_equal(data.x[:, 0].numpy(), images(6, 28, 28))
    assert data.y.tolist() == list(range(6))
    assert data.test[0].shape == (2, 1, 28, 28)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "cannot read"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01", "does not begin like an IDX file"),
        (idx(np.zeros((6, 28, 28), np.uint8))[:-1], "bytes of data where 6 × 28 × 28 are announced"),
    ],
)
def test_a_damaged_idx_file_is_refused(places, content, problem):
    write_idx(places / "mnist")
    (places / "mnist/train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=problem):
        offline("mnist")
    (places / "mnist/train-images-idx3-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="cannot read"):
        offline("mnist")


def write_emnist(path, each=2):
    labels = np.repeat(np.arange(1, 27, dtype=np.uint8), each)
    with zipfile.ZipFile(path, "w") as archive:
        for share in ("train", "test"):
            stem = f"gzip/emnist-letters-{share}"
            archive.writestr(f"{stem}-images-idx3-ubyte.gz", gzip.compress(idx(images(len(labels), 28, 28))))
            archive.writestr(f"{stem}-labels-idx1-ubyte.gz", gzip.compress(idx(labels)))


def test_emnist_letters_are_upright_and_counted_from_zero(places):
    (places / "emnist").mkdir()
    write_emnist(places / "emnist/gzip.zip")
    letters = offline("emnist-letters")
    assert letters.classes == 26
    assert letters.y.unique().tolist() == list(range(26))
    assert np.array_equal(letters.x[0, 0].numpy(), images(52, 28, 28)[0].T)


def test_emnist_l_is_the_first_ten_letters(places):
    write_emnist(places / "gzip.zip")
    data = offline("emnist-l")
    assert (data.classes, len(data), len(data.test[1])) == (10, 20, 20)
    assert data.class_names == tuple("abcdefghij")


# --- Tiny-ImageNet -----------------------------------------------------------------------------------


def jpeg(colour, mode="RGB"):
    from PIL import Image

    file = io.BytesIO()
    Image.new(mode, (64, 64), colour).save(file, "JPEG")
    return file.getvalue()


def tiny_files():
    root = "tiny-imagenet-200"
    return {
        f"{root}/train/n02/images/n02_0.JPEG": jpeg((0, 0, 255)),
        f"{root}/train/n01/images/n01_0.JPEG": jpeg((255, 0, 0)),
        f"{root}/train/n01/images/n01_1.JPEG": jpeg(128, "L"),
        f"{root}/train/n01/n01_boxes.txt": b"",
        f"{root}/val/val_annotations.txt": b"val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn01\t0\t0\t1\t1\n",
        f"{root}/val/images/val_0.JPEG": jpeg((0, 0, 250)),
        f"{root}/val/images/val_1.JPEG": jpeg((250, 0, 0)),
    }


@pytest.mark.parametrize("zipped", [False, True])
def test_tiny_imagenet_folder_and_zip(places, zipped):
    if zipped:
        with zipfile.ZipFile(places / "tiny-imagenet-200.zip", "w") as archive:
            for name, content in tiny_files().items():
                archive.writestr(name, content)
    else:
        for name, content in tiny_files().items():
            (places / name).parent.mkdir(parents=True, exist_ok=True)
            (places / name).write_bytes(content)
    data = offline("tiny-imagenet")
    assert data.class_names == ("n01", "n02")
    assert data.x.shape == (3, 3, 64, 64)
    assert data.y.tolist() == [0, 0, 1]
    assert data.test[1].tolist() == [1, 0]
    assert data.x[0, 0].float().mean() > 200
    assert data.x[2, 2].float().mean() > 200


def test_a_damaged_picture_is_refused(places):
    files = tiny_files() | {"tiny-imagenet-200/train/n01/images/n01_0.JPEG": b"no picture"}
    with zipfile.ZipFile(places / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match="cannot read"):
        offline("tiny-imagenet")


# --- Shakespeare -------------------------------------------------------------------------------------

ROLES = {"HAMLET": 700, "OPHELIA": 400, "GHOST": 120, "MUTE": 30}


def role_text(length, seed):
    letters = np.array(list(VOCABULARY))
    return "".join(np.random.default_rng(seed).choice(letters, length))


def write_roles(path, form):
    texts = {user: role_text(length + 80, i) for i, (user, length) in enumerate(ROLES.items())}
    content = {"users": list(ROLES), "num_samples": list(ROLES.values())}
    if form == "text":
        content["text"] = texts
    else:
        content["user_data"] = {
            user: {
                "x": [text[i : i + 80] for i in range(ROLES[user])],
                "y": [text[i + 80] for i in range(ROLES[user])],
            }
            for user, text in texts.items()
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return texts


def letters(codes):
    return "".join(VOCABULARY[int(code)] for code in codes)


def test_leafs_vocabulary():
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 80


@pytest.mark.parametrize(
    ("file", "form"), [("shakespeare.json", "text"), ("shakespeare/data/all_data/all_data.json", "leaf")]
)
def test_a_role_is_split_as_leaf_does(places, file, form):
    texts = write_roles(places / file, form)
    data = offline("shakespeare", max_samples=None)
    assert data.group_names == ("HAMLET", "OPHELIA")  # the others are too short for a test sample
    assert data.x.dtype == torch.uint8
    assert np.bincount(data.groups).tolist() == [560, 320]
    assert len(data.test[1]) == (700 - 560 - 79) + (400 - 320 - 79)
    assert letters(data.x[559]) == texts["HAMLET"][559:639]
    assert letters(data.y[559:560]) == texts["HAMLET"][639]
    assert letters(data.test[0][0]) == texts["HAMLET"][639:719]


def test_windows_of_at_most_so_many_samples(places):
    texts = write_roles(places / "shakespeare.json", "text")
    data = offline("shakespeare", max_samples=50)
    assert np.bincount(data.groups).tolist() == [50, 50]
    assert len(data.test[1]) == 10 + 1
    assert letters(data.x[:, 0][:50]) in texts["HAMLET"][: 560 + 80]
    other = offline("shakespeare", max_samples=50, seed=1)
    assert not torch.equal(data.x, other.x)


def test_choosing_roles(places):
    write_roles(places / "shakespeare.json", "text")
    assert offline("shakespeare", max_samples=50, roles=1).group_names == ("HAMLET",)
    with pytest.raises(DataError, match="2 roles asked for, but 1 are long enough"):
        offline("shakespeare", max_samples=50, roles=2)


def test_each_role_is_a_client(places):
    write_roles(places / "shakespeare.json", "text")
    federation = offline("shakespeare").split(Natural(max_samples=100), seed=3)
    assert federation.sizes.tolist() == [100, 100]


def test_shakespeare_errors_say_what_to_do(places):
    with pytest.raises(DataError, match=r"found none of shakespeare.json.*run ./preprocess.sh"):
        offline("shakespeare")
    (places / "shakespeare.json").write_text('{"users": ["A"], "text": {"A": "%s"}}' % ("é" * 100))
    with pytest.raises(DataError, match="'é' is not in LEAF's vocabulary"):
        offline("shakespeare")
    (places / "shakespeare.json").write_text('{"users": ["A"]')
    with pytest.raises(DataError, match="cannot read"):
        offline("shakespeare")


# --- generated data ----------------------------------------------------------------------------------


def test_digits_are_split_once_and_for_all():
    data = load("digits")
    assert data.x.shape == (1437, 64)
    assert data.x.dtype == torch.float32
    assert (float(data.x.min()), float(data.x.max())) == (0.0, 1.0)
    assert len(data.test[1]) == 360
    assert (data.test[1].bincount() >= 35).all()
    assert torch.equal(data.x, load("digits").x)


def test_synthetic_data_is_labelled_by_each_clients_own_rule():
    data = load("synthetic", clients=6, samples=50, gamma1=1.0, gamma2=1.0)
    assert data.x.shape == (300, 30)
    assert len(data.test[1]) == 60
    assert data.classes == 5
    assert len(data.split(Natural())) == 6
    means = torch.stack([data.x[torch.from_numpy(data.groups == i)].mean(0) for i in range(6)])
    assert means.std(0).mean() > 0.5


def test_synthetic_features_have_feddyns_variance():
    data = load("synthetic", clients=1, samples=20_000, gamma2=None)
    wanted = torch.arange(1, 31) ** -1.2
    assert torch.allclose(data.x.var(0), wanted, rtol=0.1)
    assert data.x.mean(0).abs().max() < 0.05


def test_synthetic_sizes_and_seeds():
    sizes = np.bincount(load("synthetic", clients=50, lognormal=1.0).groups)
    assert sizes.min() >= 1
    assert sizes.max() > 3 * sizes.min()
    assert not torch.equal(load("synthetic", seed=1).x, load("synthetic", seed=2).x)
    with pytest.raises(DataError, match="synthetic: sizes must be"):
        load("synthetic", clients=0)


# --- names, places, Dataset --------------------------------------------------------------------------


def test_unknown_names_and_options_are_explained():
    with pytest.raises(DataError, match="did you mean 'fashion-mnist'"):
        load("fashion_mnist")
    with pytest.raises(DataError, match="cifar100 has no option 'corse'; did you mean 'coarse'"):
        load("cifar100", corse=True)
    with pytest.raises(DataError, match="digits has no option 'coarse'; it has none"):
        load("digits", coarse=True)
    assert "tiny-imagenet" in names()


def test_root_comes_before_the_variable_and_the_variable_before_the_cache(places, monkeypatch):
    for i, folder in enumerate(("root", "named", "cache"), start=1):
        (places / folder).mkdir()
        save_npz(
            places / folder / "cifar10.npz", x_train=images(10 * i, 32, 32, 3), y_train=np.zeros(10 * i, int)
        )
    monkeypatch.setenv("FEDKEEL_DATA", str(places / "named"))
    assert len(offline("cifar10", root=places / "root")) == 10
    assert len(offline("cifar10")) == 20
    (places / "named/cifar10.npz").unlink()
    assert len(offline("cifar10")) == 30


def test_a_missing_data_set_says_where_it_was_looked_for(places):
    with pytest.raises(DataError, match=r"found none of cifar10.npz, cifar-10.*allow the download"):
        offline("cifar10")
    with pytest.raises(DataError, match="root is '/nowhere/at/all', which is not a folder"):
        offline("cifar10", root=Path("/nowhere/at/all"))


def test_scale_normalises_each_channel():
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 2, 1, 1)
    scaled = Scale((0.5, 0.2), (0.5, 0.1))(x)
    assert scaled.dtype == torch.float32
    assert torch.allclose(scaled[:, :, 0, 0], torch.tensor([[-1, -2], [-0.6, 0], [1, 8]]), atol=1e-6)
    assert x.max() == 255


def test_arrays_of_ones_own():
    data = Dataset.from_arrays(np.zeros((4, 3)), [0, 2, 1, 0], (np.zeros((1, 3)), [3]))
    assert data.classes == 4
    real = Dataset.from_arrays(np.zeros((4, 3)), np.linspace(0, 1, 4), name="prices")
    assert real.classes is None
    assert len(real.split(IID(), clients=2)) == 2
    with pytest.raises(DataError, match="prices: 4 training samples with 3 targets"):
        Dataset.from_arrays(np.zeros((4, 3)), [0, 1, 2], name="prices")
    with pytest.raises(DataError, match="2 group numbers for 4 samples"):
        Dataset.from_arrays(np.zeros((4, 3)), [0, 1, 2, 3], groups=np.zeros(2, int))


def test_a_split_is_seeded_described_and_hashed():
    data = load("digits")
    a, b, c = (data.split(IID(), clients=7, seed=seed) for seed in (0, 0, 1))
    assert a.fingerprint() == b.fingerprint() != c.fingerprint()
    assert a.origin == {
        "dataset": "digits",
        "splitter": "IID(balanced=False, lognormal=0.0)",
        "clients": 7,
        "seed": 0,
    }
    assert json.loads(json.dumps(a.origin)) == a.origin
    with pytest.raises(DataError, match="give their number, as in clients=50"):
        data.split(IID())
    with pytest.raises(DataError, match="seed of a split is -1"):
        data.split(IID(), clients=2, seed=-1)


# --- the real thing ----------------------------------------------------------------------------------


@needs("cifar10.npz")
def test_real_cifar10():
    data = load("cifar10", root=REAL)
    assert data.x.shape == (50_000, 3, 32, 32)
    assert data.y.bincount().tolist() == [5000] * 10
    sample = data.transform(data.x[::10])
    assert sample.mean((0, 2, 3)).abs().max() < 0.02
    assert (sample.std((0, 2, 3)) - 1).abs().max() < 0.02


@needs("mnist.npz")
def test_real_mnist():
    data = load("mnist", root=REAL)
    assert data.x.shape == (60_000, 1, 28, 28)
    assert len(data.test[1]) == 10_000


@needs("shakespeare.json")
def test_real_shakespeare_has_fedsagds_sizes():
    data = load("shakespeare", root=REAL, roles=100)
    assert data.x.shape == (200_000, 80)
    assert len(data.test[1]) == 40_000
    assert int(data.x.max()) < 80
