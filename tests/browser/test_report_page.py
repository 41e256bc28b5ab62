"""The report page in a browser: it draws itself, every control and download works, and anyone can use it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from pages import block

from fedkeel.report import Trial, find_verdict
from fedkeel.report.export import table_to_csv, to_latex, to_markdown
from fedkeel.report.page.comparison import runs_document
from fedkeel.report.page.document import Document
from fedkeel.report.page.rendering import write_page
from fedkeel.report.page.runs import ReportedRun

EVIL = "<script>alert(1)</script>"
ROUNDS = 30
DRAWN = "document.documentElement.dataset.drawn === 'yes'"
EXPLORER = "document.querySelector('.plot.tall')"
CARD = "#curves .card"


def rows(method: int, seed: int) -> list[dict[str, Any]]:
    """Return a history whose numbers tell method, seed and round."""
    return [
        {
            "round": i,
            "cohort": [i % 5, 5],
            "accuracy": (i + 1) / ROUNDS * (0.5 + method / 40) + seed / 100,
            "loss": 3 / (i + 1) + seed / 10,
            "train_loss": 1.0 + 1 / (i + 2),
            "gradients": 10 * (method + 1),
            "bytes_down": 1000 * (method + 1),
            "bytes_up": 500,
            "seconds": 0.5 + method,
            "drift": 10.0 ** (-i / 10),
            "losses/gap": i / 100,
            "clients/worst": i / ROUNDS,
            "layers/fc.weight": 1.0 + i,
        }
        for i in range(ROUNDS)
    ]


def document(methods: int = 3, names: tuple[str, ...] = ()) -> Document:
    named = [*names, *(f"method {i}" for i in range(len(names), methods))]
    facts = {"samples": 4, "visits": 1, "evaluated_on": "test", "evaluated": 2, "loss": 0.5}
    runs = [
        ReportedRun(
            Trial(name, seed, rows(index, seed)),
            {
                "label_counts": {"classes": ["cat", "dog"], "clients": ["3 0", "1 2", "0 5"]},
                "data": {"dataset": "toys", "clients": 6, "splitter": "IID()"},
                "identity": {"cohort": 2, "federation": "f" * 64},
                "versions": {"fedkeel": "1"},
                "rounds": ROUNDS,
            },
            {"method": name, "seed": seed, "work.lr": 0.1 * (1 + index)},
            [{"client": i, **facts, "accuracy": i / 6} for i in range(6)],
            f"runs/{name}/{seed}",
        )
        for index, name in enumerate(named)
        for seed in (0, 1)
    ]
    trials = [run.trial for run in runs]
    return runs_document(
        "Toys",
        runs,
        verdict=find_verdict(trials),
        target=0.4,
        commands=["fedkeel compare"],
        settings="rounds = 3",
    )


@pytest.fixture(scope="module")
def made() -> Document:
    return document()


@pytest.fixture(scope="module")
def file(made: Document, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(made, tmp_path_factory.mktemp("page") / "page.html")


def lines(shown: Any) -> list[dict[str, Any]]:
    """Return the lines of the explorer that are no bands, when everything is drawn."""
    shown.wait_until(DRAWN)
    found = shown.page.evaluate(
        f"{EXPLORER}.data.filter((t) => !t.fill).map(({{name, x, y, line}}) => ({{name, x, y, line}}))"
    )
    return list(found)


def save(shown: Any, locator: Any) -> tuple[str, bytes]:
    shown.page.wait_for_timeout(150)  # chromium drops what is saved more than ten times in a second
    with shown.page.expect_download() as download:
        locator.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


@pytest.mark.parametrize(("dark", "phone"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_page_draws_itself_without_an_error_or_a_request(
    open_page: Any, file: Path, dark: bool, phone: bool
) -> None:
    shown = open_page(file, dark=dark, phone=phone)
    shown.wait_until(DRAWN)
    plots = shown.page.locator(".plot").count()
    assert plots > 8
    assert shown.page.locator(".plot .main-svg").count() >= plots
    width = shown.page.evaluate("document.documentElement.scrollWidth")
    assert width <= shown.page.viewport_size["width"]
    assert shown.serious_faults() == []
    shown.check_quiet()


def test_lines_are_means_over_seeds_on_every_axis(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    first = lines(shown)[1]
    assert first["name"] == "method 1"
    assert first["x"] == list(range(1, ROUNDS + 1))
    each = [rows(1, seed) for seed in (0, 1)]
    assert first["y"] == pytest.approx(
        [sum(r[i]["accuracy"] for r in each) / 2 for i in range(ROUNDS)], rel=1e-4
    )
    for label, total in (("Bytes", 2500), ("Gradient steps", 20), ("Seconds", 1.5)):
        shown.page.get_by_label(label, exact=True).check()
        assert lines(shown)[1]["x"] == pytest.approx([total * (i + 1) for i in range(ROUNDS)], rel=1e-4)
    shown.page.locator(f"{CARD} select").select_option("loss")
    assert lines(shown)[0]["y"][0] == pytest.approx(3.05)
    shown.check_quiet()


def test_smoothing_scales_seeds_and_bands(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    raw = lines(shown)[0]["y"]
    slider = shown.page.locator(f"{CARD} input[type=range]")
    slider.fill("3")
    assert lines(shown)[0]["y"][10] == pytest.approx(sum(raw[8:11]) / 3)
    slider.focus()
    shown.page.keyboard.press("Home")
    assert lines(shown)[0]["y"] == raw
    for name, axis in (("log x", "xaxis"), ("log y", "yaxis")):
        shown.page.locator(CARD).get_by_label(name).check()
        assert shown.page.evaluate(f"{EXPLORER}.layout.{axis}.type") == "log"
    bands = f"{EXPLORER}.data.filter((t) => t.fill).length"
    assert shown.page.evaluate(bands) == 3
    shown.page.locator(CARD).get_by_label("band").uncheck()
    assert shown.page.evaluate(bands) == 0
    shown.page.get_by_label("Every seed").check()
    assert len(lines(shown)) == 6
    shown.page.locator(CARD).get_by_role("button", name="seed 1", exact=True).click()
    assert [line["name"] for line in lines(shown)] == [f"method {i}, seed 0" for i in range(3)]
    shown.check_quiet()


def test_methods_are_hidden_everywhere_and_by_keyboard(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    chip = shown.page.locator(CARD).get_by_role("button", name="method 1")
    chip.focus()
    shown.page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "false"
    assert shown.page.evaluate("document.activeElement.textContent").startswith("method 1")
    assert [line["name"] for line in lines(shown)] == ["method 0", "method 2"]
    shown.wait_until(DRAWN)
    names = "[...document.querySelectorAll('.plot.small')].map((p) => p.data.filter((t) => !t.fill).length)"
    assert set(shown.page.evaluate(names)) == {2}
    shown.page.locator(CARD).get_by_role("button", name="Hide all").click()
    assert lines(shown) == []
    shown.page.locator(CARD).get_by_role("button", name="Show all").click()
    assert len(lines(shown)) == 3
    shown.check_quiet()


def test_pointing_at_a_round_reads_the_values_of_all_methods(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    shown.page.locator(".plot.tall").first.scroll_into_view_if_needed()
    place = shown.page.evaluate(
        f"(() => {{ const plot = {EXPLORER}, box = plot.getBoundingClientRect();"
        "const axis = plot._fullLayout.xaxis;"
        "return [box.left + axis._offset + axis.l2p(10), box.top + box.height / 2] })()"
    )
    shown.page.mouse.move(place[0] - 5, place[1])
    shown.page.mouse.move(*place)
    shown.wait_until("document.querySelector('.at').textContent === 'Values at round 10'")
    values = shown.page.locator(f"{CARD} .chips b").all_inner_texts()
    means = [sum(rows(m, s)[9]["accuracy"] for s in (0, 1)) / 2 for m in range(3)]
    assert values == [f"{100 * mean:.1f} %" for mean in means]
    assert shown.page.locator(".plot.tall .hoverlayer .legend text").count() >= 3


def test_every_chart_is_saved_as_svg_png_and_csv(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    card = shown.page.locator(CARD)
    name, content = save(shown, card.get_by_role("button", name="save as SVG"))
    assert name.endswith(".svg")
    assert b"method 2" in content
    assert content.startswith(b"<svg")
    name, content = save(shown, card.get_by_role("button", name="save as PNG"))
    assert content.startswith(b"\x89PNG")
    name, content = save(shown, card.get_by_role("button", name="save as CSV"))
    found = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(found) == 3 * 2 * ROUNDS
    assert [float(row["accuracy"]) for row in found[:ROUNDS]] == pytest.approx(
        [row["accuracy"] for row in rows(0, 0)], rel=1e-5
    )
    for small in shown.page.locator(".card:has(.plot)").all()[1:]:
        name, content = save(shown, small.get_by_role("button", name="save as CSV"))
        assert content.count(b"\n") > 2
    shown.check_quiet()


def test_tables_are_saved_as_the_shell_writes_them(open_page: Any, file: Path, made: Document) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    for name in ("scores", "costs-to-target", "pairs", "costs-table", "runs", "differences"):
        table = block(made, name)
        card = shown.page.locator(
            ".card", has=shown.page.get_by_role("heading", name=table.title, exact=True)
        )
        for label, write in (("CSV", table_to_csv), ("LaTeX", to_latex), ("Markdown", to_markdown)):
            _, content = save(shown, card.get_by_role("button", name=f"save as {label}"))
            assert content.decode() == write(table), (name, label)
    shown.check_quiet()


def test_all_data_is_saved_at_once(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    name, content = save(shown, shown.page.get_by_role("button", name="All data as CSV"))
    assert name == "toys.csv"
    found = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(found) == 3 * 2 * ROUNDS
    last = found[-1]
    kept = rows(2, 1)[-1]
    for column in ("accuracy", "loss", "drift", "losses/gap", "clients/worst", "layers/fc.weight"):
        assert float(last[column]) == pytest.approx(kept[column], rel=1e-5)
    assert float(last["bytes"]) == ROUNDS * 3500


def test_the_theme_changes_and_charts_with_it(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    ground = "getComputedStyle(document.body).backgroundColor"
    light, colour = shown.page.evaluate(ground), lines(shown)[0]["line"]["color"]
    shown.page.locator(".plot.tall").first.scroll_into_view_if_needed()
    shown.page.locator("#theme").click()
    assert shown.page.locator("#theme").inner_text() == "Dark"
    assert shown.page.evaluate(ground) != light
    assert lines(shown)[0]["line"]["color"] != colour
    shown.page.locator("#theme").click()
    assert shown.page.evaluate(ground) == light
    shown.page.locator("#theme").click()
    shown.page.emulate_media(color_scheme="dark")
    shown.wait_until(f"{ground} !== '{light}'")
    shown.page.emulate_media(color_scheme="light", media="print")
    assert not shown.page.locator("#theme").is_visible()
    assert shown.page.locator("#verdict").is_visible()
    shown.check_quiet()


def test_every_chart_has_a_text_and_its_numbers_as_a_table(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    for plot in shown.page.locator(".plot").all():
        assert len(plot.get_attribute("aria-label")) > 30
    summary = shown.page.locator(CARD).get_by_text("The numbers as a table")
    summary.click()
    shown.page.locator(f"{CARD} details tbody tr").first.wait_for()  # it is filled once it is open
    cells = shown.page.locator(f"{CARD} details tbody tr").count()
    assert cells >= 3 * 2 * 10


def test_twenty_methods_are_told_apart(open_page: Any, tmp_path: Path) -> None:
    shown = open_page(write_page(document(20), tmp_path / "many.html"))
    shown.wait_until(DRAWN)
    looks = {(line["line"]["color"], line["line"]["dash"]) for line in lines(shown)}
    assert len(looks) == 20


def test_a_script_as_a_name_stays_text(open_page: Any, tmp_path: Path) -> None:
    evil = document(2, (EVIL, "<img src=x onerror=alert(1)>")).model_copy(update={"title": EVIL})
    shown = open_page(write_page(evil, tmp_path / "evil.html"))
    asked = []
    shown.page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    shown.wait_until(DRAWN)
    assert shown.page.title() == EVIL
    assert shown.page.locator("h1").inner_text() == EVIL
    assert shown.page.locator("main script, main img").count() == 0
    assert EVIL in shown.page.locator(f"{CARD} .chips").first.inner_text()
    save(shown, shown.page.locator(CARD).get_by_role("button", name="save as SVG"))
    assert asked == []
    shown.check_quiet()


def test_a_document_is_updated_and_rounds_are_added(open_page: Any, file: Path) -> None:
    shown = open_page(file)
    shown.wait_until(DRAWN)
    shown.page.locator(f"{CARD} input[type=range]").fill("2")
    shown.page.evaluate(
        "fedkeelPage.append('runs/method 0/0', {columns: {accuracy: {rounds: [31], values: [0.9]}}});"
        "fedkeelPage.append('runs/method 0/1', {columns: {accuracy: {rounds: [31], values: [0.9]}}});"
        "fedkeelPage.refreshCurves()"
    )
    assert lines(shown)[0]["x"][-1] == 31
    shown.page.evaluate(
        "fedkeelPage.update({...fedkeelPage.document, verdict: {text: 'Now another', tone: 'good'}})"
    )
    assert shown.page.locator("#verdict").inner_text() == "Now another"
    assert shown.page.locator(f"{CARD} input[type=range]").input_value() == "2"
    shown.check_quiet()
