"""docs/from-0.1.md: what version 0.1 called otherwise. The arguments of `train` come from the code."""

from __future__ import annotations

from fedkeel.common.older import COLUMNS, FILES, FUNCTIONS, IDENTITY, SETTINGS, VALUES
from fedkeel.running.from_0_1 import ARGUMENTS

# what has another name, where, and as it is now
NAMES = [
    *((f"`{old}`", "function of a method and of a probe", f"`{now}`") for old, now in FUNCTIONS.items()),
    ("`result.memories`", "the states of clients", "`result.client_states`"),
    ("`seen.memories`", "what a probe's `report` sees", "`seen.client_states`"),
    ("`epsilon(memories=)`", "`fedkeel.core.privacy`", "`epsilon(client_states=)`"),
    *((f"`{old}`", "key of an experiment and of `--set`", f"`{now}`") for old, now in SETTINGS.items()),
    *(
        (f"`--{old.replace('_', '-')}`", "option", f"`--{now.replace('_', '-')}`")
        for old, now in SETTINGS.items()
    ),
    *(
        (f'`{key} = "{old}"`', "value of a setting", f'`{key} = "{now}"`')
        for key, words in VALUES.items()
        for old, now in words.items()
    ),
    *((f"`{old}`", "column of the history", f"`{now}`") for old, now in COLUMNS.items()),
    *(
        (f"`identity.{old}`", "key of a run's manifest, of `show --json`", f"`identity.{now}`")
        for old, now in IDENTITY.items()
    ),
    *((f"`{old}`", "file of a checkpoint", f"`{now}`") for old, now in FILES.items()),
    ("`Experiment.train(callback=)`", "`fk.Experiment`", "`Experiment.train(callbacks=)`"),
    ("`accuracy`", "of a line of `compare --json` and `sweep --json`, and of their verdict", "`score`"),
    ("`accuracy`", "of `tune --json`", "`score`"),
    ("`accuracy`", "column of a table, of `--columns` and `columns=`; still taken", "`score`"),
    ("`method`", "of a line of `sweep --json`, and of a verdict's ranking", "`label`"),
    ("`MethodSummary.accuracy`, `.method`", "what `RunGrid.table` has", "`.score`, `.label`"),
    ("`Trial.method`", "what `RunGrid.trials` has", "`Trial.label`"),
    (
        "`comparison.toml`, `sweep.json`, `stability.json`, …",
        "in the directory of a study",
        "`study.json`, `result.json`",
    ),
    ("`method`", "column of CSV and Parquet that `export` writes; in a sweep it was the value", "`label`"),
    ("`Experiment.algorithm()`", "`fk.Experiment`", "`Experiment.make_method()`"),
    ("`seen.algorithm`", "what a probe's `report` sees", "`seen.method`"),
    ("`explain(algorithm=)`", "`fedkeel.explain`", "`explain(method=)`"),
    (
        "`memory`, `knobs`",
        "of `explain --json` and `methods --json`; attributes of an `Explanation`",
        "`client_state`, `settings`",
    ),
    ("`fedkeel.explain.knobs`", "function", "`fedkeel.explain.method_settings`"),
    ("`memory`", "column of `fedkeel methods`", "`client state`"),
    ("`RunSettings(algorithm=)`", "`fedkeel.settings.run_settings`", "`RunSettings(method=)`"),
]

# modules as version 0.1 had them, and where they are
MODULES = {
    "fedkeel.metrics": "fk.metrics, fedkeel.core.metrics",
    **{
        f"fedkeel.{name}": f"fedkeel.core.{name}"
        for name in ("algorithm", "losses", "oracle", "privacy", "schedules", "task", "walk", "work")
    },
    **{
        f"fedkeel.{name}": f"fedkeel.tensors.{name}"
        for name in ("layout", "records", "streams", "trees", "vector")
    },
    **{f"fedkeel.{name}": f"fedkeel.common.{name}" for name in ("errors", "frozen", "progress", "version")},
    "fedkeel.options": "fedkeel.settings.options",
    "fedkeel.faults": "fedkeel.settings.faults",
    "fedkeel.settings": "fedkeel.settings.run_settings",
    **{
        f"fedkeel.experiments.{name}": f"fedkeel.studies.{name}"
        for name in ("comparison", "grid", "robustness", "sweep", "tune")
    },
    "fedkeel.experiments.recipes": "fedkeel.papers.recipes",
    "fedkeel.experiments.reproduce": "fedkeel.papers.reproduce",
    "fedkeel.trackers.ml_flow": "fedkeel.trackers.mlflow",
    "fedkeel.trackers.tensor_board": "fedkeel.trackers.tensorboard",
    "fedkeel.trackers.wand_b": "fedkeel.trackers.wandb",
}

_HEAD = """<!-- written by docs/generate.py: make docs -->
# From 0.1

Version 0.2 changes the call of `train` and some names. It is a clean break: an old argument is refused, and the message says what
to write instead. Results do not change: a run of version 0.2 has the bits of the same run of version 0.1.

```python
import fedkeel as fk

federation = fk.data.load("digits").split(fk.DirichletByClass(0.3), clients=50, seed=0)
work = fk.Work(epochs=1, batch_size=20, lr=0.1)
result = fk.train(
    fk.Task(fk.models.mlp), federation, fk.SCAFFOLD(), rounds=4, cohort=fk.Bernoulli(10), work=work,
    aggregation=fk.Aggregation(weighting="samples"),
    evaluation=fk.Evaluation(every=2, on="clients"),
    failures=fk.Failures("skip", min_clients=2),
    execution=fk.Execution("serial", threads=1),
)
```

In 0.1 this was `fk.train(…, cohort=10, sampling="bernoulli", weighting="samples", eval_every=2, evaluate_on="clients",
on_client_error="leave_out", min_clients=2, engine="serial", threads=1)`.

**Files are read as they are.** Runs, comparisons, sweeps, searches, studies and histories that version 0.1 wrote are read and resumed,
and experiment files with old keys are read. The keys of experiment files and of `--set` stay flat (`engine`, `eval_every`,
`weighting`, …); only those in the table of names below are called otherwise. What version 0.2 wrote, version 0.1 does not read.

## Arguments of `train`
"""


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (headings, *rows)]
    return [lines[0], "|---" * len(headings) + "|", *lines[1:], ""]


def older_page() -> str:
    """Return the page."""
    arguments = [(f"`{old}`", f"`{now}`") for old, now in ARGUMENTS.items()]
    modules = [
        (f"`{old}`", ", ".join(f"`{part}`" for part in now.split(", "))) for old, now in MODULES.items()
    ]
    lines = [
        _HEAD,
        *_table(("0.1", "0.2"), arguments),
        '`cohort=fk.Bernoulli(10)` stands for `cohort=10, sampling="bernoulli"`; a count or a fraction draws exactly that many.',
        "",
        "## Names",
        "",
        *_table(("0.1", "what it is", "0.2"), NAMES),
        "## Modules",
        "",
        "Most names are in `fk`. Who imports modules finds them here:",
        "",
        *_table(("0.1", "0.2"), modules),
    ]
    return "\n".join(lines).rstrip() + "\n"
