"""The constants study: a pilot, measurements along and around it, and what follows for the losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedkeel.common.frozen import Count, frozen
from fedkeel.engines.serial import threads
from fedkeel.running.manifest import identity_of
from fedkeel.running.round import RunContext
from fedkeel.running.session import Session, open_session
from fedkeel.settings.options import SERIAL, Execution
from fedkeel.settings.run_settings import RunSettings
from fedkeel.studies.artifacts import open_directory, read_or_make
from fedkeel.studies.constants import pilot
from fedkeel.studies.constants.findings import Findings, Measurements, conclude
from fedkeel.studies.constants.landscape import (
    ClientLoss,
    LossLandscape,
    ModelPoint,
    gaussian,
    power_iteration,
)
from fedkeel.studies.constants.measurements import (
    GradientMeasurement,
    MinibatchNoise,
    SampleGradients,
    measure_gradients,
    measure_noise,
    measure_samples,
)
from fedkeel.studies.constants.pairs import Pair, PairSampling, SampledPairs, sample_pairs
from fedkeel.studies.constants.pilot import Progress, Trajectory
from fedkeel.tensors.streams import Stream
from fedkeel.tensors.vector import Vector

_TINY = 1e-24  # of the first loss: below, a loss counts as zero


@frozen
class Effort:
    """How much is measured: bounds on the work, whatever the model and the data.

    A pilot of `rounds`; `points` models of it, two or more; `clients` measured, with at most `samples`
    samples each; of them `close` for curvature, pairs, minibatches (`draws` per client and model);
    `products` Hessian-vector products at most for a top curvature; the gradients of `single` samples per
    client and model.
    """

    rounds: Count = 30
    points: Count = 6
    clients: Count = 20
    samples: Count = 256
    close: Count = 6
    draws: Count = 8
    products: Count = 100
    single: Count = 16


def study(
    settings: RunSettings,
    execution: Execution = SERIAL,
    *,
    effort: Effort | None = None,
    directory: str | Path | None = None,
    progress: Progress | None = None,
) -> Findings:
    """Measure the constants the theories ask for; the same seed gives the same numbers.

    The pilot is as long as the effort says, whatever the settings' rounds. With `directory`, the pilot and
    what is measured are saved there as soon as they are finished, and the same call resumes there.
    `progress` is called with a stage's name, how much of it is done and its total.
    """
    how = effort or Effort()
    report_progress = progress or (lambda stage, done, total: None)
    path = None if directory is None else Path(directory)
    pilot_settings = settings.changed(rounds=how.rounds, eval_every=how.rounds, probes=())
    with closing(open_session(pilot_settings, execution)) as session, threads(session.context.engine.threads):
        context = session.context
        if path is not None:
            asked = {**asdict(how), "engine": execution.engine}
            open_directory(path, "constants study", {**asked, **identity_of(context)})
        trajectory = _pilot(session, max(2, how.points), path, report_progress)
        measured = _choose_clients(context, how, path)
        found = _measure(measured, trajectory, how, report_progress)
        return conclude(found, trajectory, context.settings, context.population, measured.weights)


def _pilot(session: Session, points: int, directory: Path | None, report_progress: Progress) -> Trajectory:
    """Return the saved pilot, else run it."""
    part = None if directory is None else directory / "pilot.json"
    before = pilot.load(part, session.context.oracle.device)
    if before is not None:
        report_progress("pilot", before.rounds, before.rounds)
        return before
    path = pilot.run_pilot(session, points, report_progress)
    if part is not None:
        part.unlink(missing_ok=True)  # a damaged one
        pilot.save(part, path)
    return path


class _MeasuredClients(NamedTuple):
    """The clients measured, those measured closely, their weights in f, and the directory of the results."""

    settings: RunSettings
    landscape: LossLandscape
    weights: list[float]
    close: tuple[int, ...]
    population: int
    stream: Stream
    directory: Path | None

    def part(self, name: str, number: int) -> Path | None:
        """Return the file of a part of the measurements."""
        return None if self.directory is None else self.directory / f"{name}-{number}.json"


def _choose_clients(context: RunContext, how: Effort, directory: Path | None) -> _MeasuredClients:
    """Draw the clients: all of them where there are few."""
    settings, population = context.settings, context.population
    stream = Stream(settings.seed).branch("constants")
    count = min(how.clients, population.clients)
    order = stream.branch("clients").numpy().permutation(population.clients)
    clients = sorted(int(i) for i in order[:count])
    close = tuple(sorted(int(i) for i in order[: min(how.close, count)]))
    drawn = np.array(population.weigh(clients))
    weights = [float(weight) for weight in drawn / drawn.sum()]
    landscape = LossLandscape(settings, context.oracle.device, clients, how.samples, stream)
    return _MeasuredClients(settings, landscape, weights, close, population.clients, stream, directory)


def _measure(
    measured: _MeasuredClients, path: Trajectory, how: Effort, report_progress: Progress
) -> Measurements:
    points = [measured.landscape.point(model.x, model.buffers) for model in path.models]
    total = len(points)
    gradients: list[GradientMeasurement] = []
    for index, (model, point) in enumerate(zip(path.models, points, strict=True)):
        measurement = partial(
            measure_gradients, measured.landscape, point, measured.weights, measured.population, model.offset
        )
        gradients.append(_gradient_measurement(*read_or_make(measured.part("gradients", index), measurement)))
        report_progress("gradients", len(gradients), total)
    noises: list[list[MinibatchNoise]] = []
    for index, point in enumerate(points):
        drawn = read_or_make(
            measured.part("minibatches", index), partial(_noises, measured, point, index, how.draws)
        )
        noises.append([MinibatchNoise(*one) for one in drawn])
        report_progress("minibatches", len(noises), total)
    singles: list[list[SampleGradients]] = []
    for index, point in enumerate(points):
        taken = read_or_make(
            measured.part("samples", index), partial(_singles, measured, point, index, how.single)
        )
        singles.append([SampleGradients(*one) for one in taken])
        report_progress("single samples", len(singles), total)
    curvatures: list[list[float]] = [[] for _ in points]
    steepness: list[list[float]] = [[] for _ in points]
    pairs: list[Pair] = []
    done, whole = 0, total * len(measured.close)
    for client in measured.close:
        around = partial(_around, measured, path, client, how, _TINY * gradients[0].loss)
        report = partial(report_progress, "curvature and pairs")
        sampled = read_or_make(
            measured.part("curvature", client), partial(_counted, around, report, done, whole)
        )
        for index, (size, (sampled_pairs, steep)) in enumerate(sampled):
            curvatures[index].append(size)
            steepness[index].append(steep)
            pairs += [Pair(*pair) for pair in sampled_pairs]
        done += total
        report(done, whole)
    return Measurements(gradients, noises, singles, curvatures, pairs, steepness, _worst(measured, points))


def _gradient_measurement(*parts: Any) -> GradientMeasurement:
    """Return a measurement from its parts, as JSON has them."""
    found = GradientMeasurement(*parts)
    return found._replace(losses=tuple(found.losses), gradients2=tuple(found.gradients2))


def _counted(
    sampled: Callable[[], Iterator[tuple[float, SampledPairs]]],
    report_progress: Callable[[int, int], None],
    done: int,
    whole: int,
) -> list[tuple[float, SampledPairs]]:
    """Measure around every model and report how many are done."""
    found = []
    for one in sampled():
        found.append(one)
        report_progress(done + len(found), whole)
    return found


def _noises(measured: _MeasuredClients, point: ModelPoint, index: int, draws: int) -> list[MinibatchNoise]:
    work, stream = measured.settings.work, measured.stream.branch("minibatch", index)
    losses = [ClientLoss(measured.landscape, client, point) for client in measured.close]
    return [measure_noise(loss, work, draws, stream.branch("client", loss.client)) for loss in losses]


def _singles(measured: _MeasuredClients, point: ModelPoint, index: int, count: int) -> list[SampleGradients]:
    losses = [ClientLoss(measured.landscape, client, point) for client in measured.close]
    stream = measured.stream.branch("single", index)
    return [measure_samples(loss, count, stream.branch("client", loss.client)) for loss in losses]


def _around(
    measured: _MeasuredClients, path: Trajectory, client: int, how: Effort, negligible: float
) -> Iterator[tuple[float, SampledPairs]]:
    """Yield, model by model, the top curvature of a client's loss and the pairs around.

    The search for the top direction starts at the one found before, with a little randomness mixed in.
    """
    points = [measured.landscape.point(model.x, model.buffers) for model in path.models]
    top = gaussian(measured.stream.branch("power", client), points[0].x)
    for index, (model, point) in enumerate(zip(path.models, points, strict=True)):
        loss = ClientLoss(measured.landscape, client, point)
        chance = gaussian(measured.stream.branch("chance", index, client), point.x)
        unit = torch.linalg.vector_norm(top) / torch.linalg.vector_norm(chance)
        found = power_iteration(loss, top + 0.1 * unit * chance, how.products)
        top = found.direction
        sampling = PairSampling(
            model.move, path.longest, measured.stream.branch("pairs", index, client), negligible
        )
        yield found.size, sample_pairs(loss, top, _partners(points, index), sampling)


def _worst(measured: _MeasuredClients, points: Sequence[ModelPoint]) -> list[float]:
    """Return the largest loss of a sample at the first, the middle and the last model."""
    return [
        max(max(measured.landscape.sample_losses(client, point)) for client in measured.close)
        for point in (points[0], points[len(points) // 2], points[-1])
    ]


def _partners(points: Sequence[ModelPoint], index: int) -> list[Vector]:
    """Return the models a model is paired with: the next and the last."""
    following = [points[index + 1].x] if index + 1 < len(points) else []
    return [*following, points[-1].x] if index + 2 < len(points) else following
