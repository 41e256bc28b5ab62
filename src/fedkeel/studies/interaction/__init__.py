"""The interaction tensor (Rethinking §3.3, after Jiang et al. 2024): which model has learnt which feature.

    for moment in study(task, federation, FedAvg(), rounds=40, cohort=10, work=work, keep="runs/features"):
        print(moment.round, moment.features)

`interaction` makes the tensor of any models' features.
"""

from fedkeel.studies.interaction.study import GAMMAS, Moment, features_of, looks_of, study
from fedkeel.studies.interaction.tensor import Interaction, interaction

__all__ = ["GAMMAS", "Interaction", "Moment", "features_of", "interaction", "looks_of", "study"]
