"""The constants study: a pilot, measurements along and around it, and what they say of the losses."""

from __future__ import annotations

from collections.abc import Sequence
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
from fedkeel.studies.constants.landscape import Landscape, Place, gaussian, power_iteration
from fedkeel.studies.constants.pairs import Pair, Reach, star
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

    A pilot of `rounds`; `points` models of it, two or more; `clients` looked at, with at most `samples` samples
    each; of them `close` for curvature, pairs and minibatches (`draws` of these a client and model);
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
    landscape = Landscape(setting, clients, how.samples, stream)
    return _Team(setting, landscape, list(drawn / drawn.sum()), close, population.clients, stream)


def _measure(team: _Team, path: Trajectory, how: Effort, tell: Progress) -> Measured:
    places = [team.landscape.place(stop.x, stop.buffers) for stop in path.stops]
    total = len(places)
    surveys: list[Survey] = []
    for done, (stop, place) in enumerate(zip(path.stops, places, strict=True), start=1):
        surveys.append(survey(team.landscape, place, team.weights, team.population, stop.offset))
        tell("gradients", done, total)
    noises = []
    for at, place in enumerate(places):
        noises.append(_noises(team, place, at, how.draws))
        tell("minibatches", at + 1, total)
    curvatures, pairs, steepness = _around(team, path, places, how, tell, surveys[0].loss)
    worst = [
        max(max(team.landscape.sample_losses(client, place)) for client in team.close)
        for place in (places[0], places[total // 2], places[-1])
    ]
    return Measured(surveys, noises, curvatures, pairs, steepness, worst)


def _noises(team: _Team, place: Place, at: int, draws: int) -> list[Noise]:
    work = team.setting.work
    return [
        noise(team.landscape, client, place, work, draws, team.stream.branch("minibatch", at, client))
        for client in team.close
    ]


def _around(
    team: _Team, path: Trajectory, places: Sequence[Place], how: Effort, tell: Progress, first_loss: float
) -> tuple[list[list[float]], list[Pair], list[list[float]]]:
    """Measure curvature at every stop and pair it with points around; the top direction is followed on."""
    curvatures: list[list[float]] = [[] for _ in places]
    steepness: list[list[float]] = [[] for _ in places]
    pairs: list[Pair] = []
    done, total = 0, len(places) * len(team.close)
    for client in team.close:
        top = gaussian(team.stream.branch("power", client), places[0].x)
        for at, (stop, place) in enumerate(zip(path.stops, places, strict=True)):
            chance = gaussian(team.stream.branch("chance", at, client), place.x)
            start = top + 0.1 * float(torch.linalg.vector_norm(top)) * chance / len(chance) ** 0.5
            found = power_iteration(team.landscape, client, place, start, how.products)
            top = found.direction
            curvatures[at].append(found.size)
            reach = Reach(path.longest, team.stream.branch("pairs", at, client), _TINY * first_loss)
            around = star(team.landscape, client, stop, top, _partners(places, at), reach)
            pairs += around.pairs
            steepness[at].append(around.steepness)
            done += 1
            tell("curvature and pairs", done, total)
    return curvatures, pairs, steepness


def _partners(places: Sequence[Place], at: int) -> list[Vector]:
    """Return the models a stop is paired with: the next and the last."""
    following = [places[at + 1].x] if at + 1 < len(places) else []
    return [*following, places[-1].x] if at + 2 < len(places) else following


