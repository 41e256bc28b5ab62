"""The constants study: a pilot, measurements along and around it, and what they say of the losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkeel.engines.serial import threads
from fedkeel.frozen import Count, frozen
from fedkeel.options import SERIAL, Execution
from fedkeel.running.manifest import identity_of
from fedkeel.running.round import RunContext
from fedkeel.running.session import Session, open_session
from fedkeel.settings import RunSettings
from fedkeel.streams import Stream
from fedkeel.studies.artifacts import open_directory as claim
from fedkeel.studies.artifacts import read_or_make as kept
from fedkeel.studies.constants import pilot
from fedkeel.studies.constants.findings import Findings, Measured, conclude
from fedkeel.studies.constants.landscape import Landscape, Place, View, gaussian, power_iteration
from fedkeel.studies.constants.pairs import Pair, Reach, Star, star
from fedkeel.studies.constants.pilot import Progress, Trajectory
from fedkeel.studies.constants.survey import Noise, Survey, noise, survey
from fedkeel.vector import Vector

_TINY = 1e-24  # of the first loss: below, a loss counts as zero


@frozen
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
    settings: RunSettings,
    execution: Execution = SERIAL,
    *,
    effort: Effort | None = None,
    directory: str | Path | None = None,
    progress: Progress | None = None,
) -> Findings:
    """Measure the constants the theories ask for; the same seed gives the same numbers.

    The pilot is as long as the effort says, whatever the settings' rounds. With `directory`, the pilot and
    what is measured are kept there as soon as they are finished, and the same call goes on from there.
    `progress` is called with a stage's name, what is done of it and its total.
    """
    how = effort or Effort()
    tell = progress or (lambda stage, done, total: None)
    path = None if directory is None else Path(directory)
    pilot_settings = settings.changed(rounds=how.rounds, eval_every=how.rounds, probes=())
    with closing(open_session(pilot_settings, execution)) as session, threads(session.context.engine.threads):
        context = session.context
        if path is not None:
            asked = {**asdict(how), "engine": execution.engine}
            claim(path, "constants study", {**asked, **identity_of(context)})
        trajectory = _pilot(session, max(2, how.points), path, tell)
        team = _team(context, how, path)
        measured = _measure(team, trajectory, how, tell)
        return conclude(measured, trajectory, context.settings, context.population, team.weights)


def _pilot(session: Session, points: int, place: Path | None, tell: Progress) -> Trajectory:
    """Return the pilot that is kept, else play it."""
    part = None if place is None else place / "pilot.json"
    before = pilot.read(part, session.context.oracle.device)
    if before is not None:
        tell("pilot", before.rounds, before.rounds)
        return before
    path = pilot.travel(session, points, tell)
    if part is not None:
        part.unlink(missing_ok=True)  # a damaged one
        pilot.keep(part, path)
    return path


@dataclass(frozen=True)
class _Team:
    """The clients looked at, those looked at closely, their weights in f, and where findings are kept."""

    settings: RunSettings
    landscape: Landscape
    weights: list[float]
    close: tuple[int, ...]
    population: int
    stream: Stream
    place: Path | None

    def part(self, name: str, number: int) -> Path | None:
        """Return where a part of the measurements is kept."""
        return None if self.place is None else self.place / f"{name}-{number}.json"


def _team(context: RunContext, how: Effort, place: Path | None) -> _Team:
    """Draw the clients: all of them where there are few."""
    settings, population = context.settings, context.population
    stream = Stream(settings.seed).branch("constants")
    count = min(how.clients, population.clients)
    order = stream.branch("clients").numpy().permutation(population.clients)
    clients = sorted(int(i) for i in order[:count])
    close = tuple(sorted(int(i) for i in order[: min(how.close, count)]))
    drawn = np.array(population.weigh(clients))
    weights = [float(weight) for weight in drawn / drawn.sum()]
    landscape = Landscape(settings, context.oracle.device, clients, how.samples, stream)
    return _Team(settings, landscape, weights, close, population.clients, stream, place)


def _measure(team: _Team, path: Trajectory, how: Effort, tell: Progress) -> Measured:
    places = [team.landscape.place(stop.x, stop.buffers) for stop in path.stops]
    total = len(places)
    surveys: list[Survey] = []
    for at, (stop, place) in enumerate(zip(path.stops, places, strict=True)):
        seen = partial(survey, team.landscape, place, team.weights, team.population, stop.offset)
        surveys.append(_survey(*kept(team.part("gradients", at), seen)))
        tell("gradients", len(surveys), total)
    noises: list[list[Noise]] = []
    for at, place in enumerate(places):
        drawn = kept(team.part("minibatches", at), partial(_noises, team, place, at, how.draws))
        noises.append([Noise(*one) for one in drawn])
        tell("minibatches", len(noises), total)
    curvatures: list[list[float]] = [[] for _ in places]
    steepness: list[list[float]] = [[] for _ in places]
    pairs: list[Pair] = []
    done, whole = 0, total * len(team.close)
    for client in team.close:
        around = partial(_around, team, path, client, how, _TINY * surveys[0].loss)
        heard = partial(tell, "curvature and pairs")
        stars = kept(team.part("curvature", client), partial(_counted, around, heard, done, whole))
        for at, (size, (ties, steep)) in enumerate(stars):
            curvatures[at].append(size)
            steepness[at].append(steep)
            pairs += [Pair(*tie) for tie in ties]
        done += total
        heard(done, whole)
    return Measured(surveys, noises, curvatures, pairs, steepness, _worst(team, places))


def _survey(*parts: Any) -> Survey:
    """Return a survey from its parts, as JSON has them."""
    found = Survey(*parts)
    return found._replace(losses=tuple(found.losses), slopes2=tuple(found.slopes2))


def _counted(
    stars: Callable[[], Iterator[tuple[float, Star]]], tell: Callable[[int, int], None], done: int, whole: int
) -> list[tuple[float, Star]]:
    """Measure around every stop, and say how many are done."""
    found = []
    for one in stars():
        found.append(one)
        tell(done + len(found), whole)
    return found


def _noises(team: _Team, place: Place, at: int, draws: int) -> list[Noise]:
    work, stream = team.settings.work, team.stream.branch("minibatch", at)
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
