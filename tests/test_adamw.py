"""AdamW as the local optimiser: equal to the reference where it makes sense, else refused with the reason."""

from __future__ import annotations

import flat
import pytest
import torch
from problems import expect, play
from test_reference import CASES, agree, make, problems_of
from torch import nn

import fedkeel as fk

WORK = fk.Work(epochs=2, batch_size=3, lr=0.05, lr_decay=0.9, optimizer=fk.AdamW(0.8, 0.95, 1e-6, 0.1))
REFUSED = [  # methods that want to know more of a walk than where it ends
    name
    for name in CASES
    if name.split()[0] in ("FedNova", "FedCM", "FedANAG", "FedLNAG", "FedSAGD", "MoFedSAM", "FedGamma")
    or name in ("SCAFFOLD", "SCAFFOLD by size")
]


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_methods_that_look_at_the_ends_equal_the_reference(name):
    algorithm, reference, knobs, server, client = CASES[name]
    given = make(problems_of(name)[-1], "ragged")
    played = play(given, algorithm, rounds=3, cohort=2, work=WORK)
    agree(played, expect(given, reference, rounds=3, cohort=2, work=WORK, **knobs), server, client)


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_ask_for_more_are_refused_with_the_reason(name):
    given = make(problems_of(name)[-1], "ragged")
    told = r"optimizer = AdamW: .* asks for (the sum of a walk's rates|a momentum of its own).*FedAvg"
    with pytest.raises(fk.ConfigError, match=told):
        play(given, CASES[name][0], rounds=1, cohort=2, work=WORK)


def clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(6, 3, generator=generator), torch.arange(6) % 2) for _ in range(4)]


def run(
    engine: str, work: fk.Work = WORK, method: fk.Algorithm | None = None, **options: object
) -> fk.Result:
    torch.manual_seed(0)
    settings = {"rounds": 3, "cohort": 2, "work": work, "engine": engine, "workers": 2, **options}
    federation = fk.Federation.from_arrays(clients())
    return flat.train(fk.Task(nn.Linear(3, 2)), federation, method or fk.FedAvg(), **settings)


def test_one_client_walks_as_torch_does():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    x, y = clients()[0]
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    torch.manual_seed(0)
    work = fk.Work(steps=5, lr=0.05, optimizer=fk.AdamW(0.8, 0.95, 1e-6, 0.1))
    federation = fk.Federation.from_arrays(clients()[:1])
    result = fk.train(
        fk.Task(nn.Linear(3, 2)),
        federation,
        fk.FedAvg(),
        rounds=1,
        cohort=1,
        work=work,
        execution=fk.Execution("serial"),
    )
    assert torch.allclose(result.server.x, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_processes_equal_serial_and_auto_falls_back():
    serial = run("serial").server.x
    assert torch.equal(run("processes", threads=1).server.x, serial)
    assert torch.allclose(run("auto").server.x, serial)
    with pytest.raises(fk.ConfigError, match=r"AdamW's steps are taken client by client.*engine='serial'"):
        run("stacked")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            lambda: fk.Work(steps=1, weight_decay=0.1, optimizer=fk.AdamW()),
            r"with AdamW give it there, as in",
        ),
        (lambda: fk.AdamW(beta1=1), r"AdamW: beta1 = 1: the average would never move"),
        (lambda: fk.AdamW(eps=0), r"AdamW: eps = 0"),
        (lambda: fk.Work(steps=1, optimizer=torch.optim.AdamW), r"Work: optimizer = .*an instance of AdamW"),
    ],
)
def test_what_makes_no_sense_is_refused(build, told):
    with pytest.raises(fk.ConfigError, match=told):
        build()


def test_files_and_lines_say_it_as_an_expression():
    from fedkeel.experiments.experiment import Experiment

    given = Experiment().with_settings(["work.optimizer=AdamW(weight_decay=0.1)", "work.last_batch=drop"])
    assert given.work.optimizer == fk.AdamW(weight_decay=0.1)
    assert given.work.last_batch == "drop"
