"""Data: sources by name, splits over clients, noise, federations, and adapters for the user's own."""

from fedkeel.data.adapters import from_flower, from_huggingface, from_torch, image_folder
from fedkeel.data.federation import Federation
from fedkeel.data.noise import Augment, ChannelGains, ClassBrightness, add_noise
from fedkeel.data.partition import IID, DirichletByClass, DirichletByClient, Natural, Pathological
from fedkeel.data.sources import Dataset, Scale, load, names

__all__ = [
    "IID",
    "Augment",
    "ChannelGains",
    "ClassBrightness",
    "Dataset",
    "DirichletByClass",
    "DirichletByClient",
    "Federation",
    "Natural",
    "Pathological",
    "Scale",
    "add_noise",
    "from_flower",
    "from_huggingface",
    "from_torch",
    "image_folder",
    "load",
    "names",
]
