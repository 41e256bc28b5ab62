"""Who gets an answer from the live page, what stands in it, and that it only reads unless told otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from children import interruptible
from watched import WrittenRun

from fedkeel.running.requests import REQUEST_FILE
from fedkeel.web import server


@pytest.fixture
def written(tmp_path: Path) -> WrittenRun:
    return WrittenRun(tmp_path / "a").is_worked_on().add(3)


def first(served: Any, query: str = "") -> dict[str, Any]:
    events = served.events(query)
    name, data = next(events)
    events.close()
    assert name == "document"
    return json.loads(data)


def test_the_page_and_its_files_are_there_with_strict_headers(serve: Callable, written: WrittenRun) -> None:
    served = serve()
    for path, kind in (
        ("", "text/html"),
        ("style.css", "text/css"),
        ("page.js", "text/javascript"),
        ("plotly.js", "text/javascript"),
    ):
        reply = served.ask(path)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith(kind)
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "server" not in reply.headers
        assert "set-cookie" not in reply.headers
    assert "http" not in served.ask("").text.replace("http-equiv", "")


def test_without_the_token_nothing_is_answered(serve: Callable, written: WrittenRun) -> None:
    served = serve(control=True)
    right = served.guard.token
    for token in ("", "x", right[:-1], right + "x", right.swapcase(), "%2e%2e", "☃".encode().hex()):
        for path in ("", "events", "style.css", "control"):
            reply = served.ask(path, token=token)
            assert reply.status == 403
            assert "fedkeel watch" in reply.text
            assert right not in reply.text
            assert reply.headers["x-content-type-options"] == "nosniff"
    assert served.ask("control", token="x", method="POST", body="{}").status == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        "evil.example:{port}",
        "",
        "[::1]:{port}",
        "127.0.0.1:{port}.evil.example",
    ],
)
def test_a_foreign_host_is_refused(serve: Callable, written: WrittenRun, host: str) -> None:
    served = serve()
    reply = served.ask("", Host=host.format(port=served.port))
    assert reply.status == 400
    assert served.guard.token not in reply.text
    assert served.ask("", Host=f"localhost:{served.port}").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "../",
        "..%2f..%2fetc%2fpasswd",
        "a/metrics.jsonl",
        "%2e%2e/a",
        "style.css/..",
        "page.js%00",
        "control/x",
    ],
)
def test_no_path_leads_to_files(serve: Callable, written: WrittenRun, path: str) -> None:
    assert serve().ask(path).status == 404


def test_it_can_only_be_read(serve: Callable, written: WrittenRun) -> None:
    served = serve()
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert served.ask("", method=method).status == 405
    assert served.ask("control", method="POST", body="{}").status == 403
    assert "--control" in served.ask("control").text
    assert not (written.path / REQUEST_FILE).exists()


def control(served: Any, body: object, **headers: str) -> Any:
    given = {"Origin": f"http://127.0.0.1:{served.port}", "Content_Type": "application/json"} | headers
    text = body if isinstance(body, str) else json.dumps(body)
    return served.ask("control", method="POST", body=text, **given)


def test_control_reaches_the_run(serve: Callable, written: WrittenRun) -> None:
    served = serve(control=True)
    run = first(served)["runs"][0]["id"]
    reply = control(served, {"run": run, "request": "pause"})
    assert (reply.status, reply.text) == (200, "asked to pause after this round")
    assert (written.path / REQUEST_FILE).read_text() == "pause"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_control_from_elsewhere_is_refused(
    serve: Callable, written: WrittenRun, headers: dict[str, str], status: int
) -> None:
    served = serve(control=True)
    run = first(served)["runs"][0]["id"]
    assert control(served, {"run": run, "request": "stop"}, **headers).status == status
    assert not (written.path / REQUEST_FILE).exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[]", 400),
        ("{}", 400),
        ("x" * 100_000, 400),
        ({"run": "../..", "request": "stop"}, 409),
        ({"run": ["a"], "request": "stop"}, 409),
    ],
)
def test_control_that_makes_no_sense_is_refused(
    serve: Callable, written: WrittenRun, body: object, status: int
) -> None:
    served = serve(control=True)
    first(served)
    assert control(served, body).status == status
    assert not (written.path / REQUEST_FILE).exists()


def test_an_unknown_request_is_refused(serve: Callable, written: WrittenRun) -> None:
    served = serve(control=True)
    run = first(served)["runs"][0]["id"]
    assert control(served, {"run": run, "request": "delete"}).status == 409
    assert not (written.path / REQUEST_FILE).exists()


def test_events_bring_the_rounds_as_they_are_written(serve: Callable, written: WrittenRun) -> None:
    events = serve().events()
    name, data = next(events)
    assert (name, json.loads(data)["runs"][0]["done"]) == ("document", 3)
    written.add(2)
    name, data = next(events)
    (run,) = json.loads(data)["runs"]
    assert (name, run["done"], run["columns"]["loss"]["rounds"]) == ("changes", 5, [4, 5])
    events.close()


@pytest.mark.slow
def test_a_run_that_starts_later_appears(serve: Callable, tmp_path: Path) -> None:
    events = serve().events()
    assert json.loads(next(events)[1])["runs"] == []
    WrittenRun(tmp_path / "late" / "er").is_worked_on().add(1)
    (run,) = json.loads(next(events)[1])["runs"]
    assert run["directory"] == "late/er"
    events.close()


def test_names_stay_text(serve: Callable, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    WrittenRun(tmp_path / "<img src=x onerror=alert(1)>", method=evil).add(1)
    served = serve()
    assert first(served)["runs"][0]["method"] == evil  # as data, in an event that no parser of HTML sees
    assert evil not in served.ask("").text


def test_a_group_is_shown_where_it_is_asked_for(serve: Callable, tmp_path: Path) -> None:
    WrittenRun(tmp_path / "one").add(1)
    WrittenRun(tmp_path / "sweep" / "0.1" / "seed-0").add(2)
    (tmp_path / "sweep" / "study.json").write_text('{"study": "sweep"}')
    served = serve()
    assert first(served, "?group=sweep")["title"] == "sweep"
    assert first(served, "?group=single")["runs"][0]["directory"] == "one"
    assert first(served, "?group=../..")["runs"]


def test_too_many_pages_are_refused(
    serve: Callable, written: WrittenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_PAGES", 2)
    served = serve()
    streams = [served.events() for _ in range(2)]
    for stream in streams:
        next(stream)
    assert served.ask("events").status == 503
    for stream in streams:
        stream.close()


def test_nobody_looks_at_files_while_no_page_is_open(
    serve: Callable, written: WrittenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    first(served)
    looks: list[int] = []
    monkeypatch.setattr(server.Watch, "look", lambda watch: looks.append(1))
    served.ask("")
    assert looks == []


@pytest.mark.slow(12, thorough=False)
@pytest.mark.parametrize("streams", [0, 2])
def test_ctrl_c_ends_the_server_also_with_open_streams(
    tmp_path: Path, written: WrittenRun, streams: int
) -> None:
    import http.client
    import signal

    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fedkeel", "watch", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,  # noqa: PLW1509
    )
    assert process.stdout is not None
    address = process.stdout.readline().split(": ")[1].strip()
    host, _, path = address.removeprefix("http://").partition("/")
    opened = []
    for _ in range(max(1, streams)):
        connection = http.client.HTTPConnection(host, timeout=30)
        connection.request("GET", f"/{path}events" if streams else f"/{path}")
        reply = connection.getresponse()
        assert reply.readline()
        opened.append((connection, reply))
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (0, "")
    for connection, reply in opened:
        if streams:
            assert "event: end" in reply.read().decode()
        connection.close()
