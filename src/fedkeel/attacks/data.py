"""Attacks on what hostile clients train on: wrong labels, and a backdoor."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from fedkeel.attacks.base import Attack, AttackedSamples, AttackView, changed_parts
from fedkeel.common.errors import ConfigError
from fedkeel.common.frozen import Count, Number, Positive, Proportion, Seed, UnitInterval, frozen
from fedkeel.data import Federation
from fedkeel.data.samples import Batch, Rows, Samples
from fedkeel.tensors.records import Record
from fedkeel.tensors.trees import described


@frozen
class LabelFlip(Attack):
    """Train on wrong labels: class c becomes class C − 1 − c of C."""

    share: Proportion = 0.2
    seed: Seed | None = None

    def check(self, federation: Federation, metrics: Collection[str]) -> None:
        """Refuse data without classes."""
        super().check(federation, metrics)
        _classes(self, federation)

    def training_data(self, federation: Federation, seed: int) -> Federation:
        """Flip all labels of hostile clients."""
        last = _classes(self, federation) - 1
        return _with_changed_rows(self, federation, seed, 1.0, partial(_flipped, last=last))


@frozen
class Backdoor(Attack):
    """Train on a trigger (Gu et al. 2017): samples that carry it get the label `target`.

    The trigger is the lower right corner of pictures, `size` pixels wide and high, or the last `size` numbers
    of other samples, set to `value`; by default to the largest number in the data. A fraction `poisoned` of
    each hostile client's samples carries it. The column `attack_success` is the part of the test samples of
    other classes that the model takes for `target` once they carry the trigger. With `boost`, uploads are
    made that many times longer, to replace the model (Bagdasaryan et al. 2020).
    """

    share: Proportion = 0.2
    target: Seed = 0
    size: Count = 3
    poisoned: UnitInterval = 0.5
    value: Number | None = None
    boost: Positive = 1.0
    seed: Seed | None = None

    def check(self, federation: Federation, metrics: Collection[str]) -> None:
        """Refuse data that has no room for a trigger, and runs without the metric that measures it."""
        super().check(federation, metrics)
        classes = _classes(self, federation)
        if self.target >= classes:
            raise ConfigError(
                f"attack = {self!r}: target = {self.target}, but the classes are 0 to {classes - 1}"
            )
        if "accuracy" not in metrics:
            raise ConfigError(
                f"attack = {self!r}: its success is measured by the metric 'accuracy', which the task "
                "does not have: add it, as in Task(model, metrics={'accuracy': fk.accuracy})"
            )
        x, _ = federation.pool.sample()
        room = min(x.shape[-2:]) if x.ndim >= 3 else x.shape[-1]
        if x.ndim < 2 or self.size > room:
            raise ConfigError(
                f"attack = {self!r}: a sample is {described(x)}, which has no room for a trigger of size "
                f"{self.size}: give a smaller size"
            )

    def training_data(self, federation: Federation, seed: int) -> Federation:
        """Put the trigger on some samples of hostile clients."""
        change = self._trigger(federation)
        return _with_changed_rows(self, federation, seed, self.poisoned, change)

    def send(self, upload: Record, view: AttackView) -> Record:
        """Make the upload longer."""
        return changed_parts(upload, lambda _, part: self.boost * part)

    def success_samples(self, federation: Federation) -> Samples | None:
        """Return the test samples of other classes, all with the trigger and the label `target`."""
        test = federation.test
        if test is None:
            return None
        _, labels = test.part(0, test.size)
        others = (labels != self.target).nonzero()[:, 0]
        changed = torch.ones(len(others), dtype=torch.bool)
        pool = AttackedSamples(test, others, changed, self._trigger(federation))
        return Rows(pool, torch.arange(test.size, pool.size)) if len(others) else None

    def _trigger(self, federation: Federation) -> Callable[[Batch], Batch]:
        x, _ = federation.pool.sample()
        value = float(x.max()) if self.value is None else self.value
        return partial(_triggered, size=self.size, target=self.target, value=value)


def _flipped(batch: Batch, last: int) -> Batch:
    """Count classes from the other end."""
    x, y = batch
    return x, last - y


def _triggered(batch: Batch, size: int, target: int, value: float) -> Batch:
    """Put a trigger on samples and give them its label."""
    x, y = batch[0].clone(), torch.full_like(batch[1], target)
    corner = x[..., -size:, -size:] if x.ndim >= 3 else x[..., -size:]
    corner.fill_(value)
    return x, y


def _with_changed_rows(
    attack: Attack, federation: Federation, seed: int, part: float, change: Callable[[Batch], Batch]
) -> Federation:
    """Give hostile clients changed copies of their samples; all others, and all evaluations, keep theirs."""
    stream, index = attack.stream(seed), federation.index.clone()
    originals: list[Tensor] = []
    chosen: list[Tensor] = []
    end = federation.pool.size
    for client in sorted(attack.hostile(len(federation), seed)):
        rows = federation.rows(client)
        drawn = stream.branch("poisoned", client).numpy().random(len(rows)) < part
        start = int(federation.offsets[client])
        index[start : start + len(rows)] = torch.arange(end, end + len(rows))
        end += len(rows)
        originals.append(rows)
        chosen.append(torch.from_numpy(drawn))
    if not originals:
        return federation
    pool = AttackedSamples(federation.pool, torch.cat(originals), torch.cat(chosen), change)
    return replace(federation, pool=pool, index=index)


def _classes(attack: Attack, federation: Federation) -> int:
    """Return the number of classes; refuse data that has none, or several inputs or targets."""
    x, y = federation.pool.sample()
    classes = federation.classes
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or y.ndim != 1 or y.is_floating_point():
        raise ConfigError(
            f"attack = {attack!r} is for one array of inputs with a class each, but the inputs are "
            f"{described(x)} and the targets {described(y)}: choose an attack on uploads, as SignFlip()"
        )
    return int(y.max()) + 1 if classes is None else classes
