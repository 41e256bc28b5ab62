"""Ports on loopback: free ones, and whether one is."""

from __future__ import annotations

import socket

from fedkeel.common.errors import ConfigError

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def check_port(port: int) -> None:
    """Refuse a port that somebody listens on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as problem:
            raise ConfigError(
                f"port {port} on {HOST}: {problem.strerror}: choose another with --port, or leave it out"
            ) from None
        except OverflowError:
            raise ConfigError(f"port {port}: give a number from 1024 to 65000") from None
