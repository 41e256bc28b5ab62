"""The two apps that Flower runs: one at the server, one on every node."""

from __future__ import annotations

from typing import Any

from fedkeel.flower.deployment import Deployment
from fedkeel.flower.node import answer
from fedkeel.flower.serve import serve


def server_app(deployment: Deployment) -> Any:
    """Return the ServerApp of a deployment."""
    from fedkeel.flower import adapter  # noqa: PLC0415  an extra

    return adapter.server_app(lambda link, config: serve(deployment, link, config))


def client_app(deployment: Deployment) -> Any:
    """Return the ClientApp of a deployment."""
    from fedkeel.flower import adapter  # noqa: PLC0415  an extra

    return adapter.client_app(lambda kind, message, run, node: answer(deployment, kind, message, run, node))
