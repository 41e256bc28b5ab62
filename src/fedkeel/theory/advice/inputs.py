"""What advice is made from: a run's settings and the constants of its losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedkeel.theory import beyond_smoothness as bs
from fedkeel.theory import fedinit as fi
from fedkeel.theory import fedsagd as fs
from fedkeel.theory.checks import count, nonnegative, positive


@dataclass(frozen=True, kw_only=True)
class AdviceInputs:
    """K local steps of ``eta_l``, server step ``eta_g``, N of C clients with S samples, T rounds, β, ε.

    Constants are named as in the papers; ``gap_0`` is the first loss (Beyond smoothness has L* = 0),
    ``semi`` its constants (``semi_here`` those that say most for the run's own steps, where they differ),
    ``inter`` FedInit's interpolation constants and ``mu`` the PL constant (None where there are none),
    ``dropped`` the measured β⟨∇f, x − mean w_i⟩ and ``dropped_largest`` its largest value,
    ``dyn_alpha`` FedDyn's α, ``momentum`` and ``lam`` FedSAGD's β and λ, ``uncovered`` what the run's local
    steps have that no theorem covers (momentum, clipping, AdamW). A local step takes ``B`` samples;
    ``sample_gradient`` (L_G where None) and ``sample_spread`` are the longest gradient of one sample and its
    largest distance from its client's; without the latter there is no Theorem 12, for σ_l is an average and
    does not bound it.
    """

    L: float
    L_G: float
    sigma_l2: float
    sigma_g2: float
    Phi: float
    D: float
    U: float
    gap_0: float
    semi: bs.Constants
    semi_here: bs.Constants | None = None
    inter: tuple[float, float] | None = None
    K: int
    N: int
    C: int
    S: int
    T: int
    eta_l: float
    eta_g: float = 1.0
    beta: float = 0.1
    epsilon: float
    mu: float | None = None
    dropped: float | None = None
    dropped_largest: float | None = None
    dyn_alpha: float = 0.1
    B: int = 1
    sample_gradient: float | None = None
    sample_spread: float | None = None
    uncovered: tuple[str, ...] = ()
    momentum: float = 0.9
    lam: float = 0.01

    def __post_init__(self) -> None:
        for name in ("L", "eta_l", "eta_g", "epsilon", "dyn_alpha"):
            positive(name, getattr(self, name))
        for name in ("L_G", "sigma_l2", "sigma_g2", "Phi", "D", "U", "gap_0", "momentum", "lam"):
            nonnegative(name, getattr(self, name))
        for name in ("K", "N", "C", "S", "T", "B"):
            count(name, getattr(self, name))
        if not -1 < self.beta < 1:
            raise ValueError(f"beta is {self.beta}: give a number between -1 and 1")
        if self.N > self.C:
            raise ValueError(f"N is {self.N} of C = {self.C} clients: give N <= C")
        if self.sample_spread is not None:
            nonnegative("sample_spread", self.sample_spread)
        if self.inter is not None and not all(math.isfinite(x) and x > 0 for x in self.inter):
            raise ValueError(f"inter is {self.inter}: give two finite numbers above 0, or None")

    @property
    def here(self) -> bs.Constants:
        """Beyond smoothness' constants for the run's own steps."""
        return self.semi if self.semi_here is None else self.semi_here

    @property
    def steps(self) -> bs.Steps:
        """The run's steps."""
        return bs.Steps(K=self.K, eta_l=self.eta_l, eta_g=self.eta_g)

    @property
    def theta(self) -> float:
        """FedSAGD's Θ; at least the longest gradient met, for σ_g² is a mean over the clients here."""
        return max(fs.theta(self.sigma_l2, self.sigma_g2, self.Phi), self.L_G)

    @property
    def stability_run(self) -> fs.StabilityRun:
        """The run as FedSAGD's Table 1 sees it."""
        return fs.StabilityRun(
            theta=self.theta, eta_l=self.eta_l, K=self.K, T=self.T, participation=self.N / self.C
        )

    @property
    def sampling(self) -> fi.Sampling:
        """The run as Theorem 12 of FedInit sees it, with η = c/t and c the run's rate."""
        lipschitz = self.L_G if self.sample_gradient is None else max(self.L_G, self.sample_gradient)
        return fi.Sampling(
            N=self.N, C=self.C, S=self.S, K=self.K, T=self.T, c=self.eta_l, L_G=lipschitz, B=self.B
        )

    def relaxed_run(self, beta: float | None = None) -> fi.RelaxedRun:
        """The run as FedInit sees it, with its own β or another one."""
        b = self.beta if beta is None else beta
        return fi.RelaxedRun(
            beta=b, eta=self.eta_l, K=self.K, N=self.N, C=self.C, T=self.T, L=self.L, D=self.D
        )

    @property
    def accelerated(self) -> fs.AcceleratedSteps:
        """The run as FedSAGD's Theorem 4.1 sees it."""
        return fs.AcceleratedSteps(
            K=self.K,
            eta_l=self.eta_l,
            eta=self.eta_g,
            s=self.N,
            m=self.C,
            beta=self.momentum,
            lam=self.lam,
            L=self.L,
        )
