"""Generates configurations and expressions, right and wrong, for Python and the command line."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import flat
import torch
from harness import Progress, Tally
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as drawn_from
from hypothesis import strategies as st
from typer.testing import CliRunner

import fedkeel as fk
from fedkeel.cli.app import app
from fedkeel.common.progress import RunProgress
from fedkeel.common.tomlfile import dump, inline
from fedkeel.data.sources import catalogue
from fedkeel.experiments import expression
from fedkeel.experiments.experiment import Experiment

NAME = "configurations"
FAULT = (
    "generated configurations and expressions (hypothesis), to Python, experiment files and the command line"
)
MUST_HOLD = "a valid one runs a round; an invalid one gets key, reason, suggestion; 0 tracebacks"
COUNT = 20_000
BATCH = 50  # configurations per try: hypothesis draws them together

RUNNER = CliRunner()
SMALL = ["data.clients=4", "cohort=2", "rounds=1", "work.epochs=1", "engine=serial", "model.name=logistic"]
METHODS = [
    "fedavg", "FedProx(mu=0.1)", "scaffold", "feddyn(0.1)", "fedcm", "FedSAM(0.05)", "fedadam",
    "fedinit(0.1)",
    "relaxed(scaffold, beta=0.1)", "sharp(fedcm, rho=0.1)", "stages((feddyn, 1), fedavg)", "moon", "fedspeed",
]  # fmt: skip
SPLITS = ["IID()", "DirichletByClass(0.3)", "DirichletByClass(alpha=0.1, min_samples=2)", "Shards(2)", "iid"]
SCHEDULES = ["Constant()", "StepDrop(at=(0.5, 0.75), factor=0.1)", "Cosine()", "Warmup(3)"]
PROBES = ["divergence", "diversity(every=5)", "cosine", "drift()", "switching"]

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**12, 10**30, 2**63, -(2**70)]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["", "none", "all", "[", "[[[[", "{}", "1e999", "nan", "'", '"', "\\", "a" * 300, "[" * 2000]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@st.composite
def written(draw: Any, known: list[str]) -> str:
    """Draw an expression: a right one, or one with a character changed, lost or put in, or nested wrongly."""
    text = draw(st.sampled_from(known))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        new = draw(
            st.sampled_from(["", "(", ")", ",", "=", "0", "-", "é", "x", " ", "'", "[", "1e400", "\n"])
        )
        text = text[:at] + new + text[at + draw(st.integers(0, 1)) :]
    depth = draw(st.sampled_from([0, 0, 0, 0, 1, 2, 60]))
    return "sharp(" * depth + text + ")" * draw(st.sampled_from([depth, depth, max(0, depth - 1)]))


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def small(limit: int) -> st.SearchStrategy[Any]:
    """Draw a count that a round takes no time with, or one that is refused."""
    return st.one_of(st.integers(-2, limit), some("x", 1.5, True, [], -(10**30), ""))


FREE: dict[str, st.SearchStrategy[Any]] = {
    "method": st.one_of(written(METHODS), junk),
    "cohort": st.one_of(some(1, 2, 4, 0.5, 1.0), junk),
    "rounds": st.one_of(some(1, 2, 10**30), junk),
    "seed": st.one_of(st.integers(0, 5), junk),
    "sampling": st.one_of(some("fixed", "bernoulli", "Fixed"), junk),
    "weighting": st.one_of(some("uniform", "samples"), junk),
    "eval_every": st.one_of(some(1, 3), junk),
    "evaluate_on": st.one_of(some("test", "clients", "nothing"), junk),
    "engine": st.one_of(some("serial", "stacked-uncompiled", "stackd"), st.text(max_size=8)),
    "threads": st.one_of(some(1, 2, 10**9), junk),
    "workers": st.one_of(some(1, 10**9), junk),
    "device": st.one_of(some("cpu", "cuda", "meta", "nonsense", "cpu:7", "xla"), st.text(max_size=8)),
    "checkpoint_every": st.one_of(some(1, 5), junk),
    "keep_client_states": st.one_of(st.booleans(), junk),
    "target": st.one_of(some(0.5, 2), junk),
    "probes": st.one_of(st.lists(written(PROBES), max_size=2), junk),
    "data.name": st.one_of(some("digits", "synthetic", "digit"), st.text(max_size=8)),
    "data.clients": st.one_of(small(12), some(10**12, "all")),
    "data.split": st.one_of(written(SPLITS), junk),
    "data.seed": st.one_of(st.integers(0, 3), junk),
    "data.held_out": small(4),
    "data.validation": st.one_of(some(0.1, 0.5, 1.0), junk),
    "data.client_tests": st.one_of(some(0.2, 0.0), junk),
    "data.noise": st.one_of(some("ChannelGains(0.2)"), junk),
    "data.augment": st.one_of(some("Augment(pad=4)"), junk),
    "model.name": st.one_of(some("logistic", "mlp", "cnn", "resnet"), st.text(max_size=8)),
    "model.seed": st.one_of(some(1), junk),
    "model.dtype": st.one_of(some("float32", "float64", "float16", "int8"), junk),
    "model.init": some("nowhere", "", ".", "Pretrain(", "Pretrain('digit')", "\0", "/dev/null", "none", 3),
    "work.epochs": small(2),
    "work.steps": small(3),
    "work.batch_size": st.one_of(some(5, "all", 10**30), junk),
    "work.lr": st.one_of(some(0.1, 1e308, 0.0), junk),
    "work.lr_decay": st.one_of(some(0.99, 1.0), junk),
    "work.weight_decay": st.one_of(some(1e-3), junk),
    "work.clip": st.one_of(some(1.0), junk),
    "work.schedule": st.one_of(written(SCHEDULES), junk),
    "work.optimizer": st.one_of(some("AdamW()", "AdamW(lr=0)", "Adam"), junk),
    "work.last_batch": st.one_of(some("keep", "drop"), junk),
}
pairs = st.one_of([st.tuples(st.just(key), values) for key, values in FREE.items()])
keyed = st.one_of(pairs, pairs, pairs, st.tuples(st.text("abcdelr.work_", min_size=1, max_size=8), junk))
configurations = st.lists(keyed, min_size=1, max_size=4, unique_by=lambda pair: pair[0])
READERS = (
    (expression.parse_method, METHODS), (expression.parse_split, SPLITS), (expression.parse_probe, PROBES),
    (expression.parse_schedule, SCHEDULES), (expression.parse_noise, ["ChannelGains(0.2)"]),
    (expression.parse_augment, ["Augment(pad=4)"]), (expression.parse_optimizer, ["AdamW()"]),
    (expression.parse_init, ["Pretrain('digits')"]),
)  # fmt: skip


def run(scratch: Path, count: int, seed: int, progress: Progress) -> Tally:
    tally = Tally()
    torch.set_num_threads(1)
    os.environ["FEDKEEL_CACHE"] = os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
    for name, make in catalogue._GENERATED.items():  # made once, not for each of thousands of runs
        catalogue._GENERATED[name] = cache(make)
    own = RunProgress.row
    RunProgress.row = _one_round  # type: ignore[method-assign]
    try:
        with chdir(scratch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in progress.tries(-(-count // BATCH)):
                batch(number, seed, min(BATCH, count), tally)
    finally:
        RunProgress.row = own  # type: ignore[method-assign]
    return tally


def _one_round(*_: Any) -> None:
    """End a run of the command line after its first round, as Ctrl-C does."""
    raise KeyboardInterrupt


def batch(number: int, seed: int, size: int, tally: Tally) -> None:
    forms = [by_line, by_file, by_python, by_expression]

    @drawn_from(seed * 1_000_003 + number)
    @settings(max_examples=size, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def tried(data: st.DataObject) -> None:
        form = data.draw(st.sampled_from(forms))
        told = form(data)
        if told is None:
            tally.exact += 1
        elif told == "":
            tally.refused += 1
        else:
            tally.fail(number, f"{form.__name__}: {told}")

    tried()


def by_line(data: st.DataObject) -> str | None:
    chosen = data.draw(configurations)
    words = [f"--set={key}={value if isinstance(value, str) else _toml(value)}" for key, value in chosen]
    result = RUNNER.invoke(app, ["run", *(f"--set={one}" for one in SMALL), *words, "--out=o"])
    shutil.rmtree("o", ignore_errors=True)
    return judged_call(result, words, [key for key, _ in chosen])


def by_file(data: st.DataObject) -> str | None:
    chosen = data.draw(configurations)
    table = Experiment().with_settings(SMALL).table()
    for key, value in chosen:
        inner, *parents = table, *key.split(".")[:-1]
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                break
        else:
            inner[key.rpartition(".")[2]] = value
    text = dump(table)
    if data.draw(st.integers(0, 9)) == 0:
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["[", "=", "\n", '"', "\0", "[" * 3000, "9" * 5000]))
            + text[at:]
        )
    Path("f.toml").write_text(text, errors="surrogatepass")
    result = RUNNER.invoke(app, ["run", "f.toml", "--out=o"])
    shutil.rmtree("o", ignore_errors=True)
    return judged_call(result, [text], [*(key for key, _ in chosen), "f.toml"])


def judged_call(result: Any, given: list[str], keys: list[str]) -> str | None:
    told = f"{result.stderr[-200:]!r} of {given!r}"
    if not isinstance(result.exception, SystemExit | None):
        return f"{type(result.exception).__name__}: {result.exception} {told}"[:1500]
    if result.exit_code in (0, 130):
        return None
    if result.exit_code not in (2, 3, 4):
        return f"code {result.exit_code}: {told}"
    return "" if result.exit_code == 4 or names_one(result.stderr, keys) else f"names no key: {told}"


def names_one(message: str, keys: Iterable[str]) -> bool:
    """Tell whether a message names one of the keys, in the words of a file, of Python or of the line."""
    plain = message.lower().replace("-", "_")
    return any(key.rpartition(".")[2].lower() in plain or key in message for key in keys) or any(
        word in plain for word in ("data set", "clients", "method", "model", "probe", "split", "--set")
    )


def by_python(data: st.DataObject) -> str | None:
    plain = (
        "cohort", "seed", "sampling", "weighting", "eval_every", "evaluate_on", "engine", "threads",
        "device", "checkpoint_every", "keep_client_states", "workers", "rounds",
    )  # fmt: skip
    chosen = {
        key: data.draw(FREE[key])
        for key in data.draw(st.lists(st.sampled_from(plain), max_size=3, unique=True))
    }
    work = {
        key: data.draw(FREE[f"work.{key}"])
        for key in data.draw(
            st.lists(st.sampled_from(["steps", "lr", "clip", "batch_size"]), max_size=2, unique=True)
        )
    }
    options: dict[str, Any] = {"rounds": 1, "cohort": 2, "engine": "serial", **chosen}
    keys = [*chosen, *work]

    def job() -> None:
        made = fk.Work(**{"steps": 1, "batch_size": 5, "lr": 0.1, **work})
        federation = fk.Federation.from_arrays(CLIENTS, test=CLIENTS[0])
        task = fk.Task(lambda: torch.nn.Linear(3, 2))
        flat.train(
            task, federation, fk.FedAvg(), work=made, progress=False, callbacks=lambda row: True, **options
        )

    return judged(job, keys, repr({**chosen, "work": work}))


def by_expression(data: st.DataObject) -> str | None:
    read, known = data.draw(st.sampled_from(READERS))
    text = data.draw(st.one_of(written(known), st.text(max_size=20)))
    return judged(lambda: read(text), [], f"{read.__name__}({text!r})")


def judged(job: Callable[[], object], keys: list[str], given: str) -> str | None:
    try:
        job()
    except fk.Diverged:
        return ""
    except (fk.ConfigError, fk.DataError) as problem:
        return "" if not keys or names_one(str(problem), keys) else f"names no key: {problem} of {given}"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem} of {given}"[:1500]
    return None


def _toml(value: Any) -> str:
    return "none" if value is None else str(inline(value))


CLIENTS = [
    (torch.randn(6, 3, generator=torch.Generator().manual_seed(n)), torch.arange(6) % 2) for n in range(4)
]
