"""FedSAGD's Table 1 as a table: every method's stability bound beside its traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from fedkeel.theory.bound import Bound, Form
from fedkeel.theory.checks import count
from fedkeel.theory.fedsagd import stability as st


class Hyperparameters(NamedTuple):
    """The coefficients Table 1 depends on; defaults are those of our methods."""

    prox_lam: float = 0.01
    dyn_lam: float = 0.1
    lnag_beta: float = 0.9
    adam_tau: float = 1e-3
    adam_eta_g: float = 0.1
    cm_eta_g: float = 1.0
    anag_beta: float = 0.9
    acg_lam: float = 0.85
    sagd_beta: float = 0.9
    sagd_lam: float = 0.01
    sagd_mu: float = 0.001


class StabilityRow(NamedTuple):
    """One line of Table 1: bounds over T rounds and over one, and model vectors sent down and up."""

    method: str
    over_rounds: Bound
    local_update: Bound
    down: int
    up: int

    def communication(self, s: int, downlink: Literal["broadcast", "unicast"] = "broadcast") -> float:
        """Traffic against FedAvg for s clients: (up·s + down)/(s+1) broadcast, (up + down)/2 unicast.

        FedSAGD broadcast costs (s+2)/(s+1), between 1 and 1.5 as Table 1 says.
        """
        if downlink == "unicast":
            return (self.up + self.down) / 2
        return (self.up * count("s", s) + self.down) / (s + 1)


def table_1(
    run: st.StabilityRun, hyper: Hyperparameters | None = None, form: Form = "repaired"
) -> tuple[StabilityRow, ...]:
    """All eleven rows of Table 1 for one run."""
    h = hyper or Hyperparameters()
    one = replace(run, T=1)
    rounds, local = _bounds(run, h, form), _bounds(one, h, form)
    local["FedDyn"] = st.feddyn(one, lam=h.dyn_lam, form="as_printed")  # before the server's correction
    local["FedSAGD"] = st.fedsagd_local_update(one, beta=h.sagd_beta, lam=h.sagd_lam, mu=h.sagd_mu, form=form)
    return tuple(StabilityRow(name, rounds[name], local[name], *_TRAFFIC[name]) for name in _TRAFFIC)


def _bounds(run: st.StabilityRun, h: Hyperparameters, form: Form) -> dict[str, Bound]:
    return {
        "FedAvg": st.fedavg(run, form=form),
        "FedProx": st.fedprox(run, lam=h.prox_lam, form=form),
        "SCAFFOLD": st.scaffold(run, form=form),
        "FedDyn": st.feddyn(run, lam=h.dyn_lam, form=form),
        "FedLNAG": st.fedlnag(run, beta=h.lnag_beta, form=form),
        "FedAdam": st.fedadam(run, tau=h.adam_tau, eta_g=h.adam_eta_g, form=form),
        "FedCM": st.fedcm(run, eta_g=h.cm_eta_g, form=form),
        "MimeLite": st.mimelite(run, form=form),
        "FedANAG": st.fedanag(run, beta=h.anag_beta, form=form),
        "FedACG": st.fedacg(run, lam=h.acg_lam, form=form),
        "FedSAGD": st.fedsagd(run, beta=h.sagd_beta, lam=h.sagd_lam, mu=h.sagd_mu, form=form),
    }


_TRAFFIC = {  # model vectors down, up
    "FedAvg": (1, 1),
    "FedProx": (1, 1),
    "SCAFFOLD": (2, 2),
    "FedDyn": (1, 1),
    "FedLNAG": (2, 2),
    "FedAdam": (1, 1),
    "FedCM": (2, 1),
    "MimeLite": (2, 2),
    "FedANAG": (2, 1),
    "FedACG": (1, 1),
    "FedSAGD": (2, 1),
}
