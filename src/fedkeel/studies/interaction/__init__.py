"""The interaction tensor (Rethinking §3.3, after Jiang et al. 2024): which model has learnt which feature.

    for snapshot in study(settings, features=FeatureSettings(every=5), directory="runs/features"):
        print(snapshot.round, snapshot.features)

`interaction` makes the tensor of any models' features.
"""

import sys

from fedkeel.common.references import add_references
from fedkeel.studies.interaction.settings import GAMMAS, FeatureSettings
from fedkeel.studies.interaction.study import FeatureSnapshot, features_of, read_interaction, study
from fedkeel.studies.interaction.tensor import Interaction, interaction

__all__ = [
    "GAMMAS",
    "FeatureSettings",
    "FeatureSnapshot",
    "Interaction",
    "features_of",
    "interaction",
    "read_interaction",
    "study",
]

add_references("studies", sys.modules[__name__])
