"""What is known of torch's losses: which are means over samples, and which targets each of them takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import nn
from torch.nn import functional

# Compare each output with the target at the same place: broadcasting is never meant.
ELEMENTWISE = (
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "soft_margin_loss",
    "poisson_nll_loss",
    "multilabel_soft_margin_loss",
)
# Take outputs (n, classes, …) and the number of the right class.
OF_CLASSES = ("cross_entropy", "nll_loss", "multi_margin_loss")
# Leave targets out that are `ignore_index`, -100 by default: padding of sequences, samples without a label.
WITH_PADDING = ("cross_entropy", "nll_loss")
PADDING = -100  # what torch's losses leave out by default

_MODULES = {
    nn.MSELoss: "mse_loss",
    nn.L1Loss: "l1_loss",
    nn.SmoothL1Loss: "smooth_l1_loss",
    nn.HuberLoss: "huber_loss",
    nn.BCELoss: "binary_cross_entropy",
    nn.BCEWithLogitsLoss: "binary_cross_entropy_with_logits",
    nn.KLDivLoss: "kl_div",
    nn.SoftMarginLoss: "soft_margin_loss",
    nn.PoissonNLLLoss: "poisson_nll_loss",
    nn.MultiLabelSoftMarginLoss: "multilabel_soft_margin_loss",
    nn.CrossEntropyLoss: "cross_entropy",
    nn.NLLLoss: "nll_loss",
    nn.MultiMarginLoss: "multi_margin_loss",
}
_USUAL = {"reduction": "mean", "ignore_index": -100, "weight": None}


class KnownLoss(NamedTuple):
    """One of torch's losses: its name in `torch.nn.functional`, and the settings that are not the usual."""

    name: str
    options: Mapping[str, Any]

    @property
    def is_mean_over_samples(self) -> bool:
        """Tell whether it is the mean over samples of a loss of each: not with weights or sums."""
        options = dict(self.options)
        reduction = options.pop("reduction", "mean")
        means = ("mean", "batchmean") if self.name == "kl_div" else ("mean",)
        return reduction in means and not {"weight", "reduce", "size_average"} & set(options)

    @property
    def padding(self) -> int | None:
        """Return the label of targets that it leaves out of its mean, None where it has none."""
        return self.options.get("ignore_index", PADDING) if self.name in WITH_PADDING else None

    @property
    def names_padding(self) -> bool:
        """Tell whether the user said which label marks padding."""
        return "ignore_index" in self.options


def known_loss(loss: Any) -> KnownLoss | None:
    """Return what is known of a loss: torch's functions, also in `functools.partial`, and its modules."""
    if isinstance(loss, partial):
        inner = known_loss(loss.func)
        return (
            None if inner is None or loss.args else KnownLoss(inner.name, {**inner.options, **loss.keywords})
        )
    if isinstance(loss, nn.Module):
        name = _MODULES.get(type(loss))
        settings = {**vars(loss), **dict(loss.named_buffers())}
        options = {key: value for key, value in settings.items() if not _usual(key, value)}
    else:
        name = next((name for name in _MODULES.values() if getattr(functional, name) is loss), None)
        options = {}
    return None if name is None else KnownLoss(name, options)


def _usual(key: str, value: Any) -> bool:
    if key.startswith("_") or key == "training":
        return True
    return key in _USUAL and (value is None or value == _USUAL[key])
