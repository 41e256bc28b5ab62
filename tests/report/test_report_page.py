"""The page: one file, no network, everything on it, and its numbers are the runs'."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from typing import Any

import pytest
from pages import Tags, block, document_in, texts

from fedkeel.common.columns import DECLARED
from fedkeel.report import Trial, find_verdict, summarise
from fedkeel.report.page.comparison import metrics_of, runs_document
from fedkeel.report.page.document import Document, Verdict
from fedkeel.report.page.rendering import asset, page_js, plotly_js, render
from fedkeel.report.page.runs import ReportedRun, page_runs
from fedkeel.report.table_columns import COST_COLUMNS
from fedkeel.report.tables import UNFINISHED, cells

EVIL = "<script>alert(1)</script>"


def rows(*accuracies: float | None, **columns: Any) -> list[dict[str, Any]]:
    """Return a history; the i-th round sent 20 bytes and took (i + 1) / 8 seconds."""
    return [
        {
            "round": i,
            "cohort": [i % 2, 2],
            "accuracy": accuracy,
            "train_loss": 1 / (i + 1),
            "gradients": 7,
            "bytes_down": 12,
            "bytes_up": 8,
            "seconds": (i + 1) / 8,
            **{name: values[i] for name, values in columns.items()},
        }
        for i, accuracy in enumerate(accuracies)
    ]


def run(method: str, seed: int, *accuracies: float | None, **more: Any) -> ReportedRun:
    return ReportedRun(Trial(method, seed, rows(*accuracies)), **more)


RUNS = [
    run("FedAvg", 0, 0.1, 0.5, 0.7),
    run("FedAvg", 1, 0.2, 0.4, 0.8),
    run("relaxed(SCAFFOLD, beta=<b>)", 0, 0.1, 0.6, 0.9),
    run("relaxed(SCAFFOLD, beta=<b>)", 1, 0.2, 0.6, 0.9),
]


def made(runs: list[ReportedRun], **more: Any) -> Document:
    trials = [one.trial for one in runs]
    return runs_document("A & B", runs, **{"verdict": find_verdict(trials), "target": 0.5, **more})


def test_a_page_is_one_file_that_can_ask_for_nothing() -> None:
    text = render(made(RUNS))
    tags = Tags(text)
    assert tags.open == []
    assert [name for name, _ in tags.found].count("script") == 3
    for name, attributes in tags.found:
        assert name not in {"link", "img", "iframe"}
        assert not {"src", "onclick", "onload", "style"} & set(attributes)
        assert not (attributes.get("href") or "#").startswith(("http", "/"))
    policy = next(a["content"] for n, a in tags.found if n == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    for script in (plotly_js(), page_js()):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
        assert f"<script>{script}</script>" in text


def test_the_pages_own_files_name_no_address() -> None:
    for text in (page_js(), asset("style.css"), asset("template.html")):
        addresses = set(re.findall(r"https?://[^\"' ]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not an address
        assert not re.search(r"\beval\(|new Function|innerHTML|outerHTML|document\.write|@import|url\(", text)


def test_a_script_as_title_method_path_or_setting_stays_text() -> None:
    evil = [
        run(EVIL, 0, 0.5, 0.6, directory=EVIL, settings={EVIL: EVIL, "method": EVIL}),
        run("<!--<script>", 0, 0.4, 0.6, directory="]]>\u2028</style>", settings={EVIL: 1}),
    ]
    document = made(evil, commands=[EVIL], settings=EVIL, subject=EVIL)
    document = document.model_copy(update={"title": EVIL, "verdict": Verdict(text=EVIL)})
    text = render(document)
    tags = Tags(text)
    assert tags.open == []
    assert [name for name, _ in tags.found].count("script") == 3
    assert tags.texts["title"] == [EVIL]
    assert document_in(text).to_json() == document.to_json()
    assert "<!--" not in text.split("</head>")[1].split("</script>")[0]


def test_the_documents_numbers_are_those_of_the_runs() -> None:
    document = document_in(render(made(RUNS)))
    for shown, one in zip(document.runs, RUNS, strict=True):
        assert (shown.method, shown.seed, shown.done) == (one.trial.label, one.trial.seed, 3)
        accuracy = shown.columns["accuracy"]
        assert (accuracy.first, accuracy.step) == (1, 1)
        assert list(accuracy.values) == [row["accuracy"] for row in one.trial.rows]
        assert shown.axes["bytes"].values == (20, 40, 60)
        assert shown.axes["gradients"].values == (7, 14, 21)
        assert shown.axes["seconds"].values == (0.125, 0.375, 0.75)


def test_rounds_without_a_value_are_left_out() -> None:
    shown = page_runs([run("A", 0, None, 0.5, None, 0.25, 0.125)]).curves[0]
    assert shown.columns["accuracy"].rounds == (2, 4, 5)
    assert shown.columns["accuracy"].values == (0.5, 0.25, 0.125)
    every = page_runs([run("A", 0, None, 0.5, None, 0.25)]).curves[0].columns["accuracy"]
    assert (every.first, every.step, every.rounds) == (2, 2, None)


def test_bold_is_what_is_best_in_its_column_or_not_significantly_worse() -> None:
    """B leads at the end, beyond doubt; at its top A is above it, and C cannot be told from A."""

    def runs(label: str, *curves: tuple[float, float]) -> list[ReportedRun]:
        return [run(label, seed, top, end) for seed, (top, end) in enumerate(curves)]

    every = [
        *runs("A", (0.90, 0.500), (0.91, 0.510), (0.90, 0.505)),
        *runs("B", (0.71, 0.700), (0.70, 0.705), (0.71, 0.710)),
        *runs("C", (0.89, 0.300), (0.92, 0.310), (0.90, 0.300)),
    ]
    table = block(made(every, columns=("score", "top", "seconds")), "scores")
    assert [row[0] for row in table.rows] == ["A", "B", "C"]
    assert set(table.bold) == {(1, 1), (0, 2), (2, 2)}
    assert "not significantly worse" in table.note
    alone = block(made([one for one in every if one.trial.seed == 0]), "scores")
    assert not alone.bold
    assert "Bold" not in alone.note


def test_the_tables_have_every_score_and_every_cost_to_the_target() -> None:
    document, trials = made(RUNS), [one.trial for one in RUNS]
    scores, costs = block(document, "scores"), block(document, "costs-to-target")
    asked = ("score", "top", "smoothed:50", "seconds")
    assert scores.rows == tuple(cells(line, asked) for line in summarise(trials, 0.5, columns=asked))
    assert costs.rows == tuple(
        cells(line, tuple(COST_COLUMNS)) for line in summarise(trials, 0.5, columns=tuple(COST_COLUMNS))
    )
    assert not costs.bold, "costs are not tested"
    assert scores.headings[1:4] == (
        "final accuracy",
        "top accuracy",
        "smoothed top accuracy of the last 50 rounds",
    )
    chosen = made(RUNS, columns=("top", "rounds_to_target"), subject="value")
    assert block(chosen, "scores").headings == ("value", "top accuracy", "rounds to 50 %")
    assert "costs-to-target" not in [one.id for section in chosen.sections for one in section.blocks]


def test_the_verdict_has_its_interval_and_its_tone() -> None:
    unclear = made(RUNS)
    assert unclear.verdict is not None
    assert unclear.verdict.tone == "unclear"
    assert "95 % interval" in unclear.verdict.text
    assert "2 seeds" in unclear.verdict.text
    clear = made([run(m, s, 0.1, a + s / 1000) for m, a in (("A", 0.2), ("B", 0.9)) for s in range(4)])
    assert clear.verdict is not None
    assert clear.verdict.tone == "good"
    pairs = block(clear, "pairs")
    assert pairs.rows[0][:2] == ("A", "yes")


def test_every_panel_is_there_and_says_what_is_missing() -> None:
    document = made(RUNS)
    assert [section.id for section in document.sections] == [
        "curves",
        "numbers",
        "drift",
        "generalisation",
        "clients",
        "costs",
        "settings",
        "provenance",
    ]
    told = " ".join(texts(document))
    for probe in (
        "divergence",
        "diversity",
        "cosine",
        "drift",
        "layers",
        "losses",
        "excessrisk",
        "clientaccuracy",
    ):
        assert f"--probe {probe}" in told


def test_what_probes_report_is_drawn_in_its_panel() -> None:
    columns = ("divergence", "diversity", "cosine/previous", "drift", "losses/gap", "excess/optimisation")
    columns = (*columns, "layers/fc.weight", "clients/worst", "own_metric", "cosine/error", "costs/bytes")
    history = rows(0.5, 0.6, **{name: [0.25, 0.5] for name in columns})
    document = made([ReportedRun(Trial("A", 0, history))])
    assert block(document, "drift-curves").columns == ("divergence", "diversity", "cosine/previous", "drift")
    assert block(document, "layers").columns == ("layers/fc.weight",)
    assert block(document, "generalisation-curves").columns == ("losses/gap", "excess/optimisation")
    assert block(document, "worst-curves").columns == ("clients/worst",)
    assert block(document, "explorer").metrics == ("accuracy", "train_loss", "own_metric")
    assert "costs/bytes" not in document.runs[0].columns


def test_curves_begin_with_what_runs_are_ranked_by() -> None:
    names = ["loss", "accuracy", "drift", "accuracy/gamma", "f1"]
    assert metrics_of(names, "drift", DECLARED) == ("drift", "accuracy", "loss", "f1")
    assert metrics_of(names, "f1", DECLARED) == ("f1", "accuracy", "loss")


def test_unfinished_and_diverged_runs_say_so() -> None:
    trials = [Trial("A", 0, rows(0.5), UNFINISHED), Trial("B", 0, rows(0.5), "round 1: the loss is nan")]
    shown = page_runs([ReportedRun(trial) for trial in trials]).curves
    assert [one.state for one in shown] == ["unfinished", "diverged"]
    assert shown[1].problem == "round 1: the loss is nan"


def test_a_number_that_is_none_becomes_no_number() -> None:
    history = rows(0.5, 0.25, own=[float("nan"), float("inf")])
    document = made([ReportedRun(Trial("A", 0, history))])
    assert json.loads(document.to_json())["runs"][0]["columns"]["own"]["values"] == [None, None]


def test_settings_that_differ_are_listed() -> None:
    runs = [
        run("A", seed, 0.5, settings={"method": "A", "seed": seed, "work.lr": lr, "rounds": 1})
        for seed, lr in ((0, 0.1), (1, 0.1), (2, 0.5))
    ]
    document = made(runs)
    table = block(document, "differences")
    assert table.headings == ("run", "work.lr", "seeds")
    assert table.rows == (("A", "0.1", "0, 1"), ("A", "0.5", "2"))
    assert document.subtitle == "3 runs, 3 seeds; they differ in work.lr"
    assert "differences" not in [one.id for s in made(runs[:2]).sections for one in s.blocks]


def test_provenance_has_commands_seeds_hashes_versions_and_engine() -> None:
    manifest = {
        "identity": {
            "federation": "f" * 64,
            "task": {"initial": "a" * 64},
            "work": "Work(lr=0.1)",
            "cohort": 2,
        },
        "engine": "serial",
        "threads": 1,
        "rounds": 1,
        "data": {"dataset": "digits", "clients": 3},
        "versions": {"fedkeel": "9.9", "torch": "2.0"},
    }
    document = made([run("A", 5, 0.5, manifest=manifest, directory="runs/a")], commands=["fedkeel run"])
    assert block(document, "commands").text == "fedkeel run"
    assert dict(block(document, "versions").rows)["versions"] == "fedkeel 9.9, torch 2.0"
    row = block(document, "runs").rows[0]
    assert row == ("A", "5", "finished", "1", "serial", "f" * 12, "a" * 12, "runs/a")


def test_clients_have_labels_visits_and_those_left_out() -> None:
    history = rows(0.5, 0.6)
    history[1]["skipped"] = [{"client": 7, "reason": "sent NaN"}]
    manifest = {
        "label_counts": {"classes": ["cat", "dog"], "clients": ["3 0", "1 2"]},
        "data": {"clients": 3, "splitter": "IID()"},
    }
    document = made([ReportedRun(Trial("A", 0, history), manifest)])
    labels = block(document, "labels")
    assert labels.classes == ("cat", "dog")
    assert labels.counts == ((3, 0), (1, 2))
    assert block(document, "visits").series[0].y == (1, 1, 2)
    assert block(document, "skipped").rows == (("A", "0", "2", "7", "sent NaN"),)


def test_many_clients_are_shown_in_little_space() -> None:
    facts = {"samples": 4, "visits": 1, "evaluated_on": "test", "evaluated": 2, "loss": 0.5}
    clients = [{"client": i, **facts, "accuracy": i / 10_000} for i in range(10_001)]
    document = made([run("A", 0, 0.5, clients=clients), run("B", 0, 0.5, clients=clients[:3])])
    drawn = block(document, "per-client")
    assert [len(series.x) for series in drawn.series] == [100, 3]
    assert drawn.series[0].y[0] == 0.0
    assert drawn.series[0].y[-1] == 1.0
    assert len(block(document, "worst-clients").rows) == 5 + 3
    assert "10,001 clients, each on a test set of its own" in drawn.note


@pytest.mark.parametrize("probes", [0, 15])
@pytest.mark.slow
def test_ten_runs_of_a_thousand_rounds_stay_small(probes: int) -> None:
    draw = random.Random(0)
    names = ("loss", "norm", *(f"own{i}" for i in range(probes)))

    def history() -> list[dict[str, Any]]:
        columns = {name: [draw.random() for _ in range(1000)] for name in names}
        return rows(*(draw.random() for _ in range(1000)), **columns)

    runs = [ReportedRun(Trial(f"method {i // 2}", i % 2, history())) for i in range(10)]
    document = made(runs)
    text = render(document)
    assert len(text.encode()) < 6_000_000
    assert len(text.encode()) - len(plotly_js().encode()) < 1_000_000
    shown = document.runs[0].columns["accuracy"]
    rounds = shown.rounds or [shown.first + shown.step * i for i in range(len(shown.values))]
    for round, value in zip(rounds, shown.values, strict=True):
        assert value == pytest.approx(runs[0].trial.rows[round - 1]["accuracy"], rel=1e-5)
    assert rounds[-1] == 1000
    assert len(rounds) == 1000 if probes == 0 else 300 < len(rounds) < 1000
    assert ("fedkeel export" in block(document, "explorer").note) == (probes > 0)
