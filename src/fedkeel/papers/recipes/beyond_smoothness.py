"""Beyond smoothness: the paper has no experiments; its Theorem 4.7 is checked on runs, smooth and not."""

from __future__ import annotations

import math

from fedkeel.papers.recipes.claims import NOTHING, BetterColumn, Between, better
from fedkeel.papers.recipes.recipe import Column, Line, Panel, PaperTable, Recipe, RecipeScale, Setup
from fedkeel.papers.recipes.studies import BoundedRun

_RELU, _SOFTPLUS = "ReLU units", "softplus units"
_LINES = {_RELU: Line("FedAvg", {"study.smooth": False}), _SOFTPLUS: Line("FedAvg", {"study.smooth": True})}
_BOTH = (_RELU, _SOFTPLUS)
_SETUPS = {"full": "full gradients", "minibatches": "minibatches of one sample"}


def _columns(setup: str, title: str) -> tuple[Column, ...]:
    return (
        Column(f"largest loss / bound, {title}", setup, "top of tightness (max)"),
        Column(f"log10 of last loss / first, {title}", setup, "final of log_loss (min)"),
        Column(f"log10 of last bound / first loss, {title}", setup, "final of log_bound (min)"),
        Column(f"L of pairs / L of Hessians, {title}", setup, "final of roughness (min)"),
    )


BOUND = Recipe(
    name="beyond-smoothness/bound",
    title="The loss of FedAvg with separate local and global steps beside the bound of Theorem 4.7",
    setups={
        "full": Setup({}, _LINES, BoundedRun()),
        "minibatches": Setup({}, _LINES, BoundedRun(batch_size=1, rounds=1000, target=0.5)),
    },
    tables=tuple(PaperTable(_columns(setup, title), title=title) for setup, title in _SETUPS.items()),
    panels=tuple(
        Panel(f"{what}, {title}", setup, what, log=True)
        for setup, title in _SETUPS.items()
        for what in ("loss", "bound")
    ),
    claims=(
        *(
            Between(
                f"with {title} the loss stays below the bound in every round",
                _BOTH,
                f"largest loss / bound, {title}",
                -math.inf,
                1.0,
            )
            for title in _SETUPS.values()
        ),
        Between(
            "with full gradients the loss falls at a linear rate: to less than a tenth of the first",
            _BOTH,
            "log10 of last loss / first, full gradients",
            -math.inf,
            -1.0,
        ),
        BetterColumn(
            "minibatches leave a floor: their bound ends higher than that of full gradients",
            (
                "log10 of last bound / first loss, full gradients",
                "log10 of last bound / first loss, minibatches of one sample",
            ),
        ),
        better(
            "the softplus network is smoother: L of pairs of models exceeds that of Hessians by less",
            _SOFTPLUS,
            _RELU,
            "L of pairs / L of Hessians, full gradients",
        ),
        Between(
            "with ReLU units the gradient jumps: L of pairs of models is above 1.5 times that of Hessians",
            (_RELU,),
            "L of pairs / L of Hessians, full gradients",
            1.5,
            math.inf,
        ),
    ),
    assumptions=(
        "The paper has no experiments: the network, the data and the claims are ours, made of its theorem.",
        "A wide layer of 512 units with fixed signs on top learns 8 orthonormal inputs of 4 clients, so that "
        "its loss can reach zero, as the no-critical-point condition asks.",
        "The constants (a, b), α, β, τ1, τ2 and σ² are measured along and around the very run; the bound is "
        "the repaired one of docs/theory.md.",
        "The steps are those that reach the target in the fewest rounds by the theorem itself, from a rough "
        "pilot: a tenth of the first loss, with minibatches half of it.",
    ),
    decided_by=(NOTHING,),
    seeds=3,
    cpu=RecipeScale(note="the same as at scale paper: the network is small", seeds=3),
    smoke=RecipeScale(
        note="96 units and 20 rounds: it shows that the recipe works, no more",
        seeds=1,
        settings={"study.rounds": 20, "study.units": 96},
    ),
)

RECIPES = (BOUND,)
