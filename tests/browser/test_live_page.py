"""The live page in a browser: it grows with a run, says what happens, and keeps out what is foreign."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Background, OpenedPage, wait_for

from fedkeel.running.run_directory import read_rows

DRAWN = "document.querySelector('.plot.tall .scatterlayer') !== null"
TRACES = "[...document.querySelectorAll('.plot.tall')].flatMap((plot) => plot.data ?? [])"
LAST_ROUND = f"Math.max(0, ...{TRACES}.map((trace) => trace.x.at(-1)))"
NEWEST_ROUNDS = "document.querySelector('#rounds tbody').textContent"
POST = """fetch(ADDRESS, {method: "POST", mode: MODE, headers: {"Content-Type": TYPE}, body: "{}"})
    .then((reply) => reply.status).catch(() => "refused")"""
FRAME = """new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.src = ADDRESS;
    frame.onload = () => { try { done(frame.contentDocument === null) } catch { done(true) } };
    document.body.append(frame);
})"""


@pytest.fixture(scope="module")
def live(shared_background: Background) -> str:
    """The address of a page on which a run goes on, beside a comparison that has ended."""
    runs = shared_background.folder / "runs"
    write_comparison(runs / "compare")
    shared_background.train(runs / "one", "--method", "scaffold", "--probe", "drift")
    return f"{shared_background.watch(runs, '--control')}?group=single"


def write_comparison(path: Path, methods: tuple[str, ...] = ("FedAvg", "SCAFFOLD"), rounds: int = 30) -> None:
    """Write a comparison that has ended, as `fedkeel compare` leaves it."""
    for index, method in enumerate(methods):
        for seed in (0, 1):
            where = path / f"method-{index}" / f"seed-{seed}"
            where.mkdir(parents=True)
            identity = {"method": method, "seed": seed}
            end = {"rounds": rounds, "stopped_by": None, "best": None}
            manifest = {"identity": identity, "rounds": rounds, "data": {}, "end": end}
            rows = [
                {"round": r, "cohort": [0], "loss": 1 / (r + 1), "train_loss": 1.0, "accuracy": r / rounds}
                | {"bytes_down": 1, "bytes_up": 1, "gradients": 1, "lr": 0.1}
                for r in range(rounds)
            ]
            rows[-1]["skipped"] = [{"client": 37, "reason": f"sent {method}"}]
            (where / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            (where / "experiment.toml").write_text(f"method = {json.dumps(method)}\n")
            (where / "manifest.json").write_text(json.dumps(manifest))
    listed = json.dumps(list(methods), ensure_ascii=False)
    (path / "comparison.toml").write_text(f"methods = {listed}\nseeds = [0, 1]\n")


def text(shown: OpenedPage) -> str:
    return shown.page.inner_text("main")


def test_a_live_run_s_curve_grows(open_page: Any, live: str) -> None:
    shown = open_page(live)
    shown.page.wait_for_selector("h1:has-text('scaffold, seed 0')")
    shown.wait_until(DRAWN)
    before = shown.page.evaluate(LAST_ROUND)
    shown.wait_until(f"{LAST_ROUND} > {before} + 20")
    assert "running" in text(shown)
    assert shown.page.locator("#rounds tbody tr").count() == 12
    shown.check_quiet()


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_keeps_people_out(open_page: Any, live: str, dark: bool, phone: bool) -> None:
    shown = open_page(live, dark=dark, phone=phone)
    shown.wait_until(DRAWN)
    assert shown.serious_faults() == []
    wider = shown.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wider <= 0, "the page scrolls sideways"
    shown.check_quiet()


def test_the_keyboard_s_focus_stays_where_it_is(open_page: Any, live: str) -> None:
    shown = open_page(live)
    page = shown.page
    shown.wait_until(DRAWN)
    for selector in (".runs button", ".chips button", "#groups button", "select", "#rounds .scroll"):
        page.focus(selector)
        before = page.evaluate(NEWEST_ROUNDS)  # charts that are out of view are not drawn
        shown.wait_until(f"{NEWEST_ROUNDS} !== {json.dumps(before)}")
        assert page.evaluate(f"document.activeElement === document.querySelector({selector!r})"), selector


def test_another_page_can_neither_read_nor_control(
    open_page: Any, live: str, shared_background: Background, tmp_path: Path
) -> None:
    """Even one that knows the token: its requests are refused, or it cannot see what comes back."""
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><html lang=en><title>other</title><h1>other</h1></html>")
    page = open_page(other).page
    address = live.partition("?")[0]
    quoted = json.dumps(address)
    assert page.evaluate(f"fetch({quoted}).then((reply) => reply.text()).catch(() => 'refused')") == "refused"
    for mode, kind in (("cors", "application/json"), ("no-cors", "text/plain")):
        post = POST.replace("ADDRESS", json.dumps(f"{address}control")).replace("MODE", json.dumps(mode))
        assert page.evaluate(post.replace("TYPE", json.dumps(kind))) in {"refused", 0}  # 0: not to be seen
    assert page.evaluate(FRAME.replace("ADDRESS", quoted))
    assert not (shared_background.folder / "runs" / "one" / ".request").exists()


def test_a_run_appears_as_it_starts_and_can_be_paused_and_stopped(
    open_page: Any, background: Background, tmp_path: Path
) -> None:
    run = tmp_path / "runs" / "one"
    page = open_page(background.watch(tmp_path / "runs", "--control")).page
    page.wait_for_selector("text=No run here yet")
    process = background.train(run, "--checkpoint-every", "1000000")
    page.click("button:has-text('Checkpoint')")
    page.wait_for_selector("text=checkpoint written after round")
    assert any((run / "checkpoints").iterdir())
    page.click("button:has-text('Pause')")
    page.wait_for_selector(".state:has-text('paused')")
    rows = len(read_rows(run))
    page.wait_for_selector("button:has-text('Continue')")
    assert len(read_rows(run)) == rows
    page.click("button:has-text('Continue')")
    wait_for(lambda: len(read_rows(run)) > rows, process)
    page.wait_for_selector(".state:has-text('running')")
    page.click("button:has-text('Stop')")
    page.wait_for_selector(".state:has-text('stopped')")
    assert process.wait(PATIENCE) == 130
    assert "resume with: fedkeel resume" in (tmp_path / "stderr-1.txt").read_text()
    assert page.locator("button:has-text('Stop')").count() == 0


def test_without_control_there_are_no_buttons_and_requests_are_refused(
    open_page: Any, background: Background, live: str, shared_background: Background
) -> None:
    shown = open_page(f"{background.watch(shared_background.folder / 'runs')}?group=single")
    shown.page.wait_for_selector(".runs li")
    assert shown.page.locator(".runs button").count() == 0
    post = (
        POST.replace("ADDRESS", '"control"').replace("MODE", '"cors"').replace("TYPE", '"application/json"')
    )
    assert shown.page.evaluate(post) == 403


def test_names_that_look_like_markup_stay_text(
    open_page: Any, background: Background, tmp_path: Path
) -> None:
    evil = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>")
    write_comparison(tmp_path / "runs" / "<b onmouseover=alert(1)>", evil)
    shown = open_page(background.watch(tmp_path / "runs"))
    shown.page.on("dialog", lambda dialog: shown.errors.append(dialog.message))
    shown.wait_until(DRAWN)
    for name in evil:
        assert name in text(shown)
    assert shown.page.locator("main img, main script").count() == 0
    shown.page.hover(".plot.tall .nsewdrag", force=True)
    shown.check_quiet()


def test_groups_can_be_chosen_and_the_end_of_the_server_is_told(
    open_page: Any, background: Background, tmp_path: Path
) -> None:
    write_comparison(tmp_path / "runs" / "first")
    write_comparison(tmp_path / "runs" / "second", ("FedDyn", "MOON"))
    shown = open_page(f"{background.watch(tmp_path / 'runs')}?group=first")
    shown.page.wait_for_selector("h1:has-text('first')")
    shown.page.wait_for_selector("text=client 37 in round 30: skipped (sent SCAFFOLD)")
    shown.page.click("button:has-text('comparison second')")
    shown.page.wait_for_selector("h1:has-text('second')")
    shown.page.wait_for_selector(".chips button:has-text('FedDyn')")
    assert "sent MOON" in text(shown)
    assert "sent SCAFFOLD" not in text(shown)
    shown.check_quiet()
    background.started[0].send_signal(signal.SIGINT)
    shown.page.wait_for_selector("text=fedkeel watch has ended. The runs go on.")
    assert background.started[0].wait(PATIENCE) == 0
