"""The server of the live page: Starlette and uvicorn, on 127.0.0.1 alone, events sent as they happen."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fedkeel.common.errors import ConfigError, FedkeelError
from fedkeel.report.page.rendering import asset, fill_template, page_js, plotly_js
from fedkeel.web.guarding import HEADERS, Guard, Refused
from fedkeel.web.live_page import empty_page
from fedkeel.web.subscription import Subscription
from fedkeel.web.watching import Watch

try:
    import uvicorn
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
except ImportError:
    raise ConfigError('fedkeel watch needs Starlette and uvicorn: pip install "fedkeel[web]"') from None

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_SECONDS = 0.5  # between two looks at the files, while somebody has the page open
_KEEP_ALIVE = 15.0  # seconds after which an empty line says that the server is there
_MOST_PAGES = 16  # that may be open at once
_LONGEST = 2000  # bytes of a request's body


class LivePage:
    """The application: the page, its files, the events, and requests to runs where they are allowed."""

    def __init__(self, watch: Watch, guard: Guard) -> None:
        self.watch, self.guard = watch, guard
        self.ending = asyncio.Event()
        self._lock = asyncio.Lock()  # one thread at a time has the watch
        self._open = 0
        self._looked = -_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        wanted, refused = self.guard.check(scope["path"], headers)
        if refused is None:
            response = await self._answer(scope, wanted, headers, receive)
        else:
            response = _text(refused)
        response.headers.update(HEADERS)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, wanted: str, headers: dict[str, str], receive: Receive) -> Response:
        if wanted == "control":
            return await self._control(scope["method"], headers, receive)
        if scope["method"] not in ("GET", "HEAD"):
            return _text(Refused(405, "This page can only be read.\n"))
        if wanted == "events":
            return self._events(_group(scope["query_string"]))
        if wanted == "":
            return Response(self._page(), media_type="text/html")
        content = {"style.css": "text/css", "plotly.js": "text/javascript", "page.js": "text/javascript"}
        if wanted not in content:
            return _text(Refused(404, "There is no such page.\n"))
        return Response(_file(wanted), media_type=content[wanted])

    def _page(self) -> str:
        return fill_template(
            empty_page(self.watch),
            policy="",
            style='<link rel="stylesheet" href="style.css">',
            scripts=['<script src="plotly.js"></script>', '<script src="page.js"></script>'],
            foot="Served by fedkeel watch on this machine; nothing leaves it.",
        )

    def _events(self, group: str | None) -> Response:
        if self._open >= _MOST_PAGES:
            return _text(Refused(503, f"{_MOST_PAGES} pages are open already: close one.\n"))
        return StreamingResponse(self._stream(group), media_type="text/event-stream")

    async def _stream(self, group: str | None) -> AsyncIterator[bytes]:
        """Send what is new, until the page is closed or the server ends."""
        subscription, said = Subscription(self.watch, group), asyncio.get_running_loop().time()
        self._open += 1
        try:
            while not self.ending.is_set():
                event = await self._next(subscription)
                now = asyncio.get_running_loop().time()
                if event is not None:
                    name, data = event
                    yield f"event: {name}\ndata: {data}\n\n".encode()
                    said = now
                elif now - said > _KEEP_ALIVE:
                    yield b": here\n\n"
                    said = now
                await self._pause()
            yield b"event: end\ndata: {}\n\n"
        finally:
            self._open -= 1

    async def _next(self, subscription: Subscription) -> tuple[str, str] | None:
        """Look at the files, once for all pages, and return what a page lacks."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now - self._looked >= _SECONDS * 0.9 or self.watch.is_behind:
                await asyncio.to_thread(self.watch.look)
                self._looked = asyncio.get_running_loop().time()
            return await asyncio.to_thread(subscription.event)

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self.ending.wait(), 0.05 if self.watch.is_behind else _SECONDS)
        except TimeoutError:
            return

    async def _control(self, method: str, headers: dict[str, str], receive: Receive) -> Response:
        if not self.watch.control:
            return _text(Refused(403, "Read only: start `fedkeel watch` with --control.\n"))
        if method != "POST":
            return _text(Refused(405, "Ask with POST.\n"))
        refused = self.guard.check_control(headers)
        if refused is not None:
            return _text(refused)
        try:
            asked = json.loads(await _body(receive))
            async with self._lock:
                said = await asyncio.to_thread(self.watch.ask, str(asked["run"]), str(asked["request"]))
        except FedkeelError as problem:
            return _text(Refused(409, f"{problem}\n"))
        except (ValueError, KeyError, TypeError):
            return _text(Refused(400, "Name the run and the request.\n"))
        return PlainTextResponse(said)


class Server(uvicorn.Server):
    """uvicorn, which tells the application at once that it is to end: open streams then end by themselves."""

    def __init__(self, config: uvicorn.Config, page: LivePage) -> None:
        super().__init__(config)
        self._page = page

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Hear of Ctrl-C."""
        self.end()
        super().handle_exit(sig, frame)

    def end(self) -> None:
        """End, as Ctrl-C does."""
        self._page.ending.set()
        self.should_exit = True


def serve(watch: Watch, listening: socket.socket, guard: Guard) -> None:
    """Serve the live page on a socket until Ctrl-C."""
    make_server(watch, guard).run(sockets=[listening])


def make_server(watch: Watch, guard: Guard) -> Server:
    """Return the server of the live page; `run(sockets=[…])` serves it."""
    page = LivePage(watch, guard)
    config = uvicorn.Config(
        page,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=4 * _MOST_PAGES,
        timeout_graceful_shutdown=1,
    )
    return Server(config, page)


def _group(query: bytes) -> str | None:
    return parse_qs(query.decode("latin-1")).get("group", [None])[0]


def _file(name: str) -> str:
    if name == "plotly.js":
        return plotly_js()
    if name == "style.css":
        return asset("style.css") + _own("live.css")
    return page_js() + _own("live.js")


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _text(refused: Refused) -> Response:
    return PlainTextResponse(refused.text, status_code=refused.status)


async def _body(receive: Receive) -> bytes:
    content = b""
    while len(content) <= _LONGEST:
        message = await receive()
        content += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return content
    raise ValueError("the request is too long")
