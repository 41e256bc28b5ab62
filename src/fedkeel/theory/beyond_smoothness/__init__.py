"""Li, Song, Tao, Zhang, "A convergence theory for federated average: beyond smoothness": FedAvg, two steps.

Assumptions on each client's loss, all clients active:

- (a, b)-semi-smooth: L(W) ≤ L(U) + ⟨∇L(U), W−U⟩ + b‖W−U‖² + a‖W−U‖·√L(U)
- (α, β)-semi-Lipschitz: ‖∇L(W)−∇L(U)‖² ≤ β²‖W−U‖² + α²‖W−U‖·√L(U)
- no critical point: τ1²·L(U) ≤ ‖∇L(U)‖² ≤ τ2²·L(U), 0 < τ1 < 1
- minibatch gradients are unbiased with variance at most σ²

η̃ = K·η_l·η_g is the effective step. Where the loss does not go to zero, τ1 is zero and nothing is promised.
"""

from fedkeel.theory.beyond_smoothness.convergence import (
    corollary_4_8,
    drift,
    drift_conditions,
    rounds,
    theorem_4_7,
    theorem_4_7_conditions,
)
from fedkeel.theory.beyond_smoothness.noiseless import contraction, deterministic, gradient_descent
from fedkeel.theory.beyond_smoothness.setting import (
    Constants,
    RoundProgress,
    Steps,
    drift_factor,
    floor,
    lambda_1,
    lambda_2,
    lemma_6_1,
    one_round,
    rate,
)
from fedkeel.theory.beyond_smoothness.steps import (
    corollary_4_8_global_step,
    fastest_global_step,
    largest_global_step,
    largest_local_step,
)

__all__ = [
    "Constants",
    "RoundProgress",
    "Steps",
    "contraction",
    "corollary_4_8",
    "corollary_4_8_global_step",
    "deterministic",
    "drift",
    "drift_conditions",
    "drift_factor",
    "fastest_global_step",
    "floor",
    "gradient_descent",
    "lambda_1",
    "lambda_2",
    "largest_global_step",
    "largest_local_step",
    "lemma_6_1",
    "one_round",
    "rate",
    "rounds",
    "theorem_4_7",
    "theorem_4_7_conditions",
]
