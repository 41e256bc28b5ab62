"""The user's own data: torch datasets, image folders, Hugging Face and Flower objects."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedkeel.common.errors import DataError
from fedkeel.data.adapters import arrays, from_flower, from_huggingface, from_torch, image_folder
from fedkeel.data.federation import Federation
from fedkeel.data.partition import IID, Natural

torch.set_num_threads(1)


class Pairs(TorchDataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


class Table:
    """As much of a Hugging Face dataset as the adapter uses."""

    def __init__(self, **columns):
        self.columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}


def picture(value, mode="RGB", size=(5, 4)):
    colour = value if mode == "L" else (value, 0, 0)
    return Image.new(mode, size, colour)


def test_a_tensor_dataset_is_taken_as_it_is():
    x, y = torch.rand(4, 3), torch.tensor([1, 0, 2, 1], dtype=torch.int32)
    got_x, got_y = arrays(TensorDataset(x, y))
    assert got_x is x
    assert got_y.dtype == torch.int64


@pytest.mark.parametrize("make", [torch.tensor, np.array], ids=["tensors", "arrays"])
def test_pairs_of_tensors_or_arrays(make):
    data = from_torch(Pairs([(make([1.0, 2.0]), 0), (make([3.0, 4.0]), 2)]), Pairs([(make([5.0, 6.0]), 1)]))
    assert data.x.tolist() == [[1, 2], [3, 4]]
    assert data.classes == 3
    assert data.test[1].tolist() == [1]


def test_pictures_become_channels_first_bytes():
    colour = from_torch(Pairs([(picture(200), 0), (picture(100), 1)]))
    assert colour.x.shape == (2, 3, 4, 5)
    assert colour.x.dtype == torch.uint8
    assert colour.x[:, 0, 0, 0].tolist() == [200, 100]
    assert from_torch(Pairs([(picture(9, "L"), 0)])).x.shape == (1, 1, 4, 5)


def test_real_valued_targets_stay_real():
    data = from_torch(Pairs([([1.0], 0.25), ([2.0], 0.5)]))
    assert data.classes is None
    assert data.y.dtype == torch.float32


def test_a_federation_of_torch_datasets():
    clients = [Pairs([([1.0, 2.0], 0)]), Pairs([([3.0, 4.0], 1), ([5.0, 6.0], 0)])]
    federation = Federation.from_datasets(clients, test=clients[0])
    assert federation.sizes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        (iter([1]), "give a map-style dataset"),
        (Pairs([]), "has no samples"),
        (Pairs([1.0]), r"make it a pair \(input, target\)"),
        (Pairs([([1.0], 0), ([1.0, 2.0], 0)]), "do not stack to one tensor"),
        (Table(text=["a"], label=[0]), "no column image or .* in text, label; name the right one with x="),
    ],
)
def test_what_cannot_be_taken_is_explained(dataset, problem):
    with pytest.raises(DataError, match=problem):
        arrays(dataset)


def test_hugging_face_columns_and_groups():
    table = Table(img=[picture(i) for i in (3, 6, 9)], fine_label=[0, 1, 1], writer=["b", "a", "b"])
    data = from_huggingface(table, table, group="writer")
    assert data.x[:, 0, 0, 0].tolist() == [3, 6, 9]
    assert data.group_names == ("a", "b")
    assert data.split(Natural()).sizes.tolist() == [1, 2]
    with pytest.raises(DataError, match=r"no column 'author' in .*group="):
        from_huggingface(table, group="author")


def test_named_columns():
    table = Table(age=[1.0, 2.0], income=[3.0, 4.0])
    x, y = arrays(table, x="age", y="income")
    assert (x.tolist(), y.tolist()) == ([1, 2], [3, 4])


def test_a_flower_federation_keeps_its_partitions():
    parts = [Table(x=[[1.0, 2.0]], y=[0]), Table(x=[[3.0, 4.0], [5.0, 6.0]], y=[2, 1])]
    fake = SimpleNamespace(
        partitioners={"train": SimpleNamespace(num_partitions=2)},
        load_partition=lambda i, split: parts[i],
        load_split=lambda split: parts[0],
    )
    federation = from_flower(fake)
    assert federation.sizes.tolist() == [1, 2]
    assert federation.classes == 3
    assert federation.test[1].tolist() == [0]


@pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the package datasets is not installed"
)
def test_a_real_hugging_face_dataset():
    from datasets import Dataset as HuggingFace

    table = HuggingFace.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1], "who": ["b", "a"]})
    data = from_huggingface(table, group="who")
    assert data.x.tolist() == [[1, 2], [3, 4]]
    assert data.group_names == ("a", "b")


def write_folder(root, parts, size=(5, 4)):
    for part in parts:
        for i, name in enumerate(("cat", "dog")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for j in range(2 + i):
                picture(50 * i + j, size=size).save(folder / f"{j}.png")
            (folder / "notes.txt").write_text("not a picture")


@pytest.mark.parametrize(("parts", "tested"), [(("train", "test"), 5), (("train", "val"), 5), (("",), None)])
def test_image_folders(tmp_path, parts, tested):
    write_folder(tmp_path, parts)
    data = image_folder(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert data.x.shape == (5, 3, 4, 5)
    assert data.x[:, 0, 0, 0].tolist() == [0, 1, 50, 51, 52]
    assert data.y.tolist() == [0, 0, 1, 1, 1]
    assert (data.test and len(data.test[1])) == tested
    assert data.transform(data.x).dtype == torch.float32
    assert len(data.split(IID(), clients=2)) == 2


def test_image_folders_that_do_not_fit(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no pictures in"):
        image_folder(tmp_path)
    write_folder(tmp_path, ("",))
    picture(1, size=(9, 9)).save(tmp_path / "dog/9.png")
    with pytest.raises(DataError, match="resize them to one size"):
        image_folder(tmp_path)
    (tmp_path / "dog/9.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"cannot read .*9.png"):
        image_folder(tmp_path)
