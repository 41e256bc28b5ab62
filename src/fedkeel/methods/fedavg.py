"""FedAvg, McMahan et al. 2017: average what the clients moved."""

from __future__ import annotations

from fedkeel.common.frozen import Positive
from fedkeel.core.algorithm import Algorithm, Cohort, method


@method
class FedAvg(Algorithm):
    """McMahan et al. 2017: average what the clients moved.

    x ← x + lr·mean(D). `lr` is the server's rate η_g of all papers (Lookahead is FedAvg with lr = α).
    """

    lr: Positive = 1.0

    def aggregate(self, server: Algorithm.Server, mean: Algorithm.Up, cohort: Cohort) -> Algorithm.Server:
        """Step along the mean move."""
        return self.Server(server.x + self.lr * mean.delta)
