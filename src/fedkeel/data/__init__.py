"""Data: sources by name, splits over clients, federations."""

from fedkeel.data.federation import Federation
from fedkeel.data.partition import IID, DirichletByClass, DirichletByClient, Natural, Pathological
from fedkeel.data.sources import Dataset, Scale, load, names

__all__ = [
    "IID",
    "Dataset",
    "DirichletByClass",
    "DirichletByClient",
    "Federation",
    "Natural",
    "Pathological",
    "Scale",
    "load",
    "names",
]
