"""Who may ask the live page for something: a browser of this machine that has its address with the token.

The token is a part of the address, so no cookie is sent along by itself with requests that other pages make.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import NamedTuple

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(NamedTuple):
    """Why a request is not answered: the status and a text."""

    status: int
    text: str


class Guard:
    """Tells which requests are answered."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")

    @property
    def address(self) -> str:
        """Return the address of the page, token and all."""
        return f"http://{self.hosts[0]}/{self.token}/"

    def check(self, path: str, headers: Mapping[str, str]) -> tuple[str, Refused | None]:
        """Return what is asked for behind the token, and why it is refused, if it is."""
        if headers.get("host", "") not in self.hosts:
            return "", Refused(400, "This page answers to 127.0.0.1 and localhost alone.\n")
        token, _, rest = path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return "", Refused(403, "Open the address that `fedkeel watch` printed, with its token.\n")
        return rest, None

    def check_control(self, headers: Mapping[str, str]) -> Refused | None:
        """Return why a request that changes something is refused: it must come from the page itself."""
        if headers.get("origin", "") not in [f"http://{host}" for host in self.hosts]:
            return Refused(403, "Only the page itself may ask for that.\n")
        if headers.get("content-type", "").partition(";")[0] != "application/json":
            return Refused(415, "Ask in JSON.\n")
        return None
