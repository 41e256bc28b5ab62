"""The constants study: a pilot, measurements along and around it, and what they say of the losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedkeel.algorithm import Algorithm
from fedkeel.data.federation import Federation
from fedkeel.engines.contract import Setting
from fedkeel.engines.serial import threads
from fedkeel.methods.stages import Stages
from fedkeel.runner import open_session
from fedkeel.sampling import Population, Sampling, Weighting
from fedkeel.streams import Stream
from fedkeel.studies.constants.findings import Findings, Measured, conclude
from fedkeel.studies.constants.landscape import Landscape, Place, View, gaussian, power_iteration
from fedkeel.studies.constants.pairs import Pair, Reach, Star, star
from fedkeel.studies.constants.pilot import Progress, Trajectory, travel
from fedkeel.studies.constants.survey import Noise, Survey, noise, survey
from fedkeel.task import Task
from fedkeel.values import Count, value
from fedkeel.vector import Vector
from fedkeel.work import Work

_TINY = 1e-24  # of the first loss: below, a loss counts as zero


@value
class Effort:
    """How much is measured: bounds on the work, whatever the model and the data.

    A pilot of `rounds`; `points` models of it, two or more; `clients` looked at, with at most `samples`
    samples each; of them `close` for curvature, pairs and minibatches (`draws` of these a client and model);
    `products` Hessian-vector products at most for a top curvature.
    """

    rounds: Count = 30
    points: Count = 6
    clients: Count = 20
    samples: Count = 256
    close: Count = 6
    draws: Count = 8
    products: Count = 100


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
    progress: Progress | None = None,
) -> Findings:
    """Measure the constants the theories ask for; the same seed gives the same numbers.

    `progress` is called with a stage's name, what is done of it and its total.
    """
    how = effort or Effort()
    tell = progress or (lambda stage, done, total: None)
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
    with threads(session.loop.engine.threads):
        path = travel(session, max(2, how.points), tell)
        team = _team(setting, population, how)
        return conclude(_measure(team, path, how, tell), path, setting, population, team.weights)


@dataclass(frozen=True)
class _Team:
    """The clients that are looked at, those of them looked at closely, and their weights in f."""

    setting: Setting
    landscape: Landscape
    weights: list[float]
    close: tuple[int, ...]
    population: int
    stream: Stream


def _team(setting: Setting, population: Population, how: Effort) -> _Team:
    """Draw the clients: all of them where there are few."""
    stream = Stream(setting.seed).branch("constants")
    count = min(how.clients, population.clients)
    order = stream.branch("clients").numpy().permutation(population.clients)
    clients = sorted(int(i) for i in order[:count])
    close = tuple(sorted(int(i) for i in order[: min(how.close, count)]))
    drawn = np.array(population.weigh(clients))
    weights = [float(weight) for weight in drawn / drawn.sum()]
    landscape = Landscape(setting, clients, how.samples, stream)
    return _Team(setting, landscape, weights, close, population.clients, stream)


def _measure(team: _Team, path: Trajectory, how: Effort, tell: Progress) -> Measured:
    places = [team.landscape.place(stop.x, stop.buffers) for stop in path.stops]
    total = len(places)
    surveys: list[Survey] = []
    for stop, place in zip(path.stops, places, strict=True):
        surveys.append(survey(team.landscape, place, team.weights, team.population, stop.offset))
        tell("gradients", len(surveys), total)
    noises: list[list[Noise]] = []
    for place in places:
        noises.append(_noises(team, place, len(noises), how.draws))
        tell("minibatches", len(noises), total)
    curvatures: list[list[float]] = [[] for _ in places]
    steepness: list[list[float]] = [[] for _ in places]
    pairs: list[Pair] = []
    done = 0
    for client in team.close:
        for at, (size, around) in enumerate(_around(team, path, client, how, _TINY * surveys[0].loss)):
            curvatures[at].append(size)
            steepness[at].append(around.steepness)
            pairs += around.pairs
            done += 1
            tell("curvature and pairs", done, total * len(team.close))
    return Measured(surveys, noises, curvatures, pairs, steepness, _worst(team, places))


def _noises(team: _Team, place: Place, at: int, draws: int) -> list[Noise]:
    work, stream = team.setting.work, team.stream.branch("minibatch", at)
    views = [View(team.landscape, client, place) for client in team.close]
    return [noise(view, work, draws, stream.branch("client", view.client)) for view in views]


def _around(
    team: _Team, path: Trajectory, client: int, how: Effort, negligible: float
) -> Iterator[tuple[float, Star]]:
    """Yield, stop by stop, the top curvature of a client's loss and the pairs around.

    The search for the top direction starts at the one found before, with a little chance mixed in.
    """
    places = [team.landscape.place(stop.x, stop.buffers) for stop in path.stops]
    top = gaussian(team.stream.branch("power", client), places[0].x)
    for at, (stop, place) in enumerate(zip(path.stops, places, strict=True)):
        view = View(team.landscape, client, place)
        chance = gaussian(team.stream.branch("chance", at, client), place.x)
        unit = torch.linalg.vector_norm(top) / torch.linalg.vector_norm(chance)
        found = power_iteration(view, top + 0.1 * unit * chance, how.products)
        top = found.direction
        reach = Reach(stop.move, path.longest, team.stream.branch("pairs", at, client), negligible)
        yield found.size, star(view, top, _partners(places, at), reach)


def _worst(team: _Team, places: Sequence[Place]) -> list[float]:
    """Return the largest loss of a sample at the first, the middle and the last model."""
    return [
        max(max(team.landscape.sample_losses(client, place)) for client in team.close)
        for place in (places[0], places[len(places) // 2], places[-1])
    ]


def _partners(places: Sequence[Place], at: int) -> list[Vector]:
    """Return the models a stop is paired with: the next and the last."""
    following = [places[at + 1].x] if at + 1 < len(places) else []
    return [*following, places[-1].x] if at + 2 < len(places) else following
