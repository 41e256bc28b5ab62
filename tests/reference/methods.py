"""`simulate`: run any method, with any plug-in, on given cohorts and minibatches."""

import numpy as np

from .local import Local, weighted_mean
from .methods_average import MOON, FedAvg, FedNova, FedNTD, FedProx, FedSAM
from .methods_control import SCAFFOLD, FedDyn, FedSMOO, FedSpeed
from .methods_momentum import FedACG, FedANAG, FedCM, FedLNAG, FedSAGD, MimeLite
from .methods_server import FedAdagrad, FedAdam, FedAvgM, FedYogi
from .relaxed import Relaxed

CLASSES = [FedAvg, FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad, SCAFFOLD, FedDyn, FedCM, FedSAM, MimeLite]
CLASSES += [FedLNAG, FedANAG, FedACG, FedSAGD, FedNova, FedNTD, MOON, FedSpeed, FedSMOO]
METHODS = {cls.__name__: cls for cls in CLASSES}
OWN_SHARP = ("FedSAM", "FedSpeed", "FedSMOO")
ALIASES = ("FedInit", "MoFedSAM", "FedGamma", "Lookahead")


def resolve(name, knobs):
    """Replace an alias by the method and the knobs it stands for."""
    knobs = dict(knobs)
    if name == "FedInit":
        options = ("beta", "decay", "adaptive", "first", "aggregate", "gamma")
        knobs["relaxed"] = {key: knobs.pop(key) for key in options if key in knobs}
        return "FedAvg", knobs
    if name in ("MoFedSAM", "FedGamma"):
        knobs["sharp"] = knobs.pop("rho", 0.1)
        return ("FedCM" if name == "MoFedSAM" else "SCAFFOLD"), knobs
    if name == "Lookahead":
        return "FedAvg", {"server_lr": knobs["alpha"]}
    return name, knobs


class Stage:
    """One method with its plug-ins, from x on."""

    def __init__(self, name, x, knobs):
        name, knobs = resolve(name, knobs)
        relaxed, self.rho = knobs.pop("relaxed", None), knobs.pop("sharp", None)
        if self.rho is not None and name in OWN_SHARP:
            raise ValueError(f"{name} has a sharp of its own")
        self.method = METHODS[name](x, **knobs)
        self.relaxed = None if relaxed is None else Relaxed(x, **relaxed)
        self.method.gamma_from_end = relaxed is not None and self.relaxed.gamma == "end"
        self.kind = (name, relaxed is not None, self.rho is not None)

    def adopt(self, other):
        """Carry the server's and the clients' memories over from an earlier stage of the same kind."""
        if self.kind != other.kind:
            raise ValueError(f"nothing to carry from {other.kind} to {self.kind}")
        self.method.adopt(other.method)
        if self.relaxed is not None:
            self.relaxed.adopt(other.relaxed)

    def state(self):
        return self.method.state() | ({} if self.relaxed is None else self.relaxed.state())


def schedule(method, rounds, knobs):
    """The stages as (name, knobs, first round, memory)."""
    if method != "stages":
        return [(method, knobs, 0, "auto")]
    plan, begin = [], 0
    for entry in knobs["stages"]:
        own = {key: value for key, value in entry.items() if key not in ("method", "until", "memory")}
        plan.append((entry["method"], own, begin, entry.get("memory", "auto")))
        until = entry.get("until", rounds)
        begin = round(until * rounds) if isinstance(until, float) else until
    return plan


def hand_over(old, name, knobs, memory):
    """The next stage, which begins at the old one's x."""
    new = Stage(name, old.method.x, knobs)
    if memory == "carry" or (memory == "auto" and new.kind == old.kind):
        new.adopt(old)
    return new


def one_round(stage, r, cohort, make_local, weights, population):
    """All clients of a cohort, then the server. Returns what happened."""
    x = stage.method.broadcast()
    uploads, starts, ends, lengths = [], {}, {}, {}
    for i in cohort:
        local = make_local(r, i, stage.rho or 0.0)
        start, seen = x, x
        if stage.relaxed is not None:
            start = stage.relaxed.start(i, x, r)
            seen = start if stage.relaxed.aggregate == "walk" else x
        upload, end = stage.method.client(local, i, seen, start)
        if stage.relaxed is not None:
            stage.relaxed.remember(i, end)
        uploads.append(upload | {"end": end})
        starts[i], ends[i], lengths[i] = start, end, local.length
    chosen = [weights[i] for i in cohort]
    share = sum(chosen) / population
    mean, before = weighted_mean(uploads, chosen), stage.method.x.copy()
    stage.method.server(mean, share)
    if stage.relaxed is not None:
        stage.relaxed.moved(stage.method.x - before, share)
    return {
        "broadcast": x.copy(),
        "starts": starts,
        "ends": ends,
        "lengths": lengths,
        "share": share,
        "mean": mean,
    }


def simulate(
    method,
    problem,
    clients,
    x0,
    rounds,
    cohorts,
    batches,
    lr,
    lr_decay=1.0,
    weight_decay=0.0,
    clip=None,
    clip_on="gradient",
    clip_eps=1e-6,
    weights=None,
    population_weight=None,
    adamw=None,
    momentum=0.0,
    nesterov=False,
    schedule_factor=None,
    **knobs,
):
    """Run `rounds` rounds and return one dictionary a round.

    `clients[i]` is (X, Y); `cohorts[r]` the clients of round r in drawn order; `batches(r, i)` the index
    arrays of client i's local steps. `weights[i]` is client i's weight (1 each by default), and
    `population_weight` their sum unless given. `adamw` is (beta1, beta2, eps, weight decay), where the steps
    are AdamW's. `momentum` is local, with an empty buffer each round; `schedule_factor(round, rounds, step,
    steps)` is a factor on every step's rate. `lr` is the local rate; a method's own is `server_lr`. Every
    method takes `relaxed={...}` and `sharp=rho`; `method="stages"` takes `stages=[{"method", "until",
    "memory", **knobs}, ...]`.
    Each dictionary holds `x` (after the round), what the method keeps (dictionaries are by client and hold
    only those that took part), `broadcast`, `starts`, `ends`, `lengths`, `share`, `mean` (of the uploads).
    """
    assert clip_on in ("gradient", "direction", "corrected")
    weights = [1.0] * len(clients) if weights is None else list(weights)
    population = sum(weights) if population_weight is None else population_weight

    def make_local(r, i, rho):
        X, Y = clients[i]
        rate, own = lr * lr_decay**r, batches(r, i)
        factors = schedule_factor and [schedule_factor(r, rounds, k, len(own)) for k in range(len(own))]
        walk = {"momentum": momentum, "nesterov": nesterov, "factors": factors or None}
        return Local(problem, X, Y, own, rate, weight_decay, clip, clip_on, clip_eps, rho, adamw, **walk)

    plan = schedule(method, rounds, knobs)
    name, first_knobs, _, _ = plan.pop(0)
    sizes = [len(X) for X, _ in clients]
    stage = Stage(name, np.array(x0, dtype=np.float64), first_knobs)
    history = []
    for r in range(rounds):
        while plan and plan[0][2] <= r:
            name, next_knobs, _, memory = plan.pop(0)
            stage = hand_over(stage, name, next_knobs, memory)
        assert len(set(cohorts[r])) == len(cohorts[r]), "a client is in a cohort once"
        stage.method.sizes = sizes
        happened = one_round(stage, r, cohorts[r], make_local, weights, population)
        history.append({"x": stage.method.x.copy()} | stage.state() | happened)
    return history
