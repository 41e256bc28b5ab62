"""The constants study (Beyond smoothness §3–4 and what FedInit and FedSAGD ask): measured, with spreads.

    found = study(task, federation, FedAvg(), cohort=10, work=work, seed=0)
    found["L"], found.estimates["sigma_l2"], found.fit.smooth.corners

Constants are those of the clients' losses *along and around the pilot*: a largest value over samples is a
lower bound of the true one, and a longer run can raise it. Each estimate says how many samples it has and how
they spread.
"""

import sys

from fedkeel.common.references import add_references
from fedkeel.studies.constants.estimate import Estimate
from fedkeel.studies.constants.findings import Findings
from fedkeel.studies.constants.fit import Fit
from fedkeel.studies.constants.programs import Corner, Frontier, frontier
from fedkeel.studies.constants.study import Effort, study

__all__ = ["Corner", "Effort", "Estimate", "Findings", "Fit", "Frontier", "frontier", "study"]

add_references("studies", sys.modules[__name__])
