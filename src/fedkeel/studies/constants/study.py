"""The constants study: a pilot, measurements along and around it, and what follows for the losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Federation
from fedkeel.engines.contract import Setting
from fedkeel.engines.serial import threads
from fedkeel.methods.stages import Stages, as_stages
from fedkeel.runner import open_session
from fedkeel.runs.manifest import manifest_of
from fedkeel.sampling import Population, Sampling, Weighting
from fedkeel.streams import Stream
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
from fedkeel.studies.keeping import claim, kept
from fedkeel.task import Task
from fedkeel.training import Session
from fedkeel.values import Count, value
from fedkeel.vector import Vector
from fedkeel.work import Work

_TINY = 1e-24  # of the first loss: below, a loss counts as zero


@value
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
    task: Task,
    federation: Federation,
    algorithm: Algorithm | Stages,
    *,
    cohort: int | float,
    work: Work,
    seed: int = 0,
    engine: str = "serial",
    sampling: Sampling = "fixed",
    weighting: Weighting = "uniform",
    device: str = "cpu",
    effort: Effort | None = None,
    keep: str | Path | None = None,
    progress: Progress | None = None,
) -> Findings:
    """Measure the constants the theories ask for; the same seed gives the same numbers.

    With `keep`, the pilot and what is measured are saved in that directory as soon as they are finished,
    and the same call resumes there. `progress` is called with a stage's name,
    how much of it is done and its total.
    """
    how = effort or Effort()
    report_progress = progress or (lambda stage, done, total: None)
    session = open_session(
        task,
        federation,
        algorithm,
        rounds=how.rounds,
        cohort=cohort,
        work=work,
        seed=seed,
        engine=engine,
        sampling=sampling,
        weighting=weighting,
        eval_every=how.rounds,
        device=device,
    )
    setting, population = session.loop.setting, session.loop.population
    directory = None if keep is None else Path(keep)
    if directory is not None:
        identity = manifest_of(session.loop, as_stages(algorithm), cohort)["identity"]
        claim(directory, "constants study", {**asdict(how), "engine": engine, **identity})
    with closing(session.loop.engine), threads(session.loop.engine.threads):
        path = _pilot(session, max(2, how.points), directory, report_progress)
        measured = _choose_clients(setting, population, how, directory)
        return conclude(
            _measure(measured, path, how, report_progress), path, setting, population, measured.weights
        )


def _pilot(session: Session, points: int, directory: Path | None, report_progress: Progress) -> Trajectory:
    """Return the saved pilot, else run it."""
    part = None if directory is None else directory / "pilot.json"
    before = pilot.load(part, session.loop.setting.device)
    if before is not None:
        report_progress("pilot", before.rounds, before.rounds)
        return before
    path = pilot.run_pilot(session, points, report_progress)
    if part is not None:
        part.unlink(missing_ok=True)  # a damaged one
        pilot.save(part, path)
    return path


@dataclass(frozen=True)
class _MeasuredClients:
    """The clients measured, those measured closely, their weights in f, and the directory of the results."""

    setting: Setting
    landscape: LossLandscape
    weights: list[float]
    close: tuple[int, ...]
    population: int
    stream: Stream
    directory: Path | None

    def part(self, name: str, number: int) -> Path | None:
        """Return the file of a part of the measurements."""
        return None if self.directory is None else self.directory / f"{name}-{number}.json"


def _choose_clients(
    setting: Setting, population: Population, how: Effort, directory: Path | None
) -> _MeasuredClients:
    """Draw the clients: all of them where there are few."""
    stream = Stream(setting.seed).branch("constants")
    count = min(how.clients, population.clients)
    order = stream.branch("clients").numpy().permutation(population.clients)
    clients = sorted(int(i) for i in order[:count])
    close = tuple(sorted(int(i) for i in order[: min(how.close, count)]))
    drawn = np.array(population.weigh(clients))
    weights = [float(weight) for weight in drawn / drawn.sum()]
    landscape = LossLandscape(setting, clients, how.samples, stream)
    return _MeasuredClients(setting, landscape, weights, close, population.clients, stream, directory)


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
        gradients.append(_gradient_measurement(*kept(measured.part("gradients", index), measurement)))
        report_progress("gradients", len(gradients), total)
    noises: list[list[MinibatchNoise]] = []
    for index, point in enumerate(points):
        drawn = kept(measured.part("minibatches", index), partial(_noises, measured, point, index, how.draws))
        noises.append([MinibatchNoise(*one) for one in drawn])
        report_progress("minibatches", len(noises), total)
    singles: list[list[SampleGradients]] = []
    for index, point in enumerate(points):
        taken = kept(measured.part("samples", index), partial(_singles, measured, point, index, how.single))
        singles.append([SampleGradients(*one) for one in taken])
        report_progress("single samples", len(singles), total)
    curvatures: list[list[float]] = [[] for _ in points]
    steepness: list[list[float]] = [[] for _ in points]
    pairs: list[Pair] = []
    done, whole = 0, total * len(measured.close)
    for client in measured.close:
        around = partial(_around, measured, path, client, how, _TINY * gradients[0].loss)
        report = partial(report_progress, "curvature and pairs")
        sampled = kept(measured.part("curvature", client), partial(_counted, around, report, done, whole))
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
    work, stream = measured.setting.work, measured.stream.branch("minibatch", index)
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
