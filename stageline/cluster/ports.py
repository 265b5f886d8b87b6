"""Ports for servers that must find them free when they restart."""

import contextlib
import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")  # Linux: what outgoing connections are given
_LOWEST = 10_000
_TRIES = 64


def is_free(host: str, port: int) -> bool:
    """Whether a server can listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            probe.listen()
            return True
    return False


def steady_port(host: str) -> int:
    """A free port that no outgoing connection is given while its server is down; 0, any, if the system names none."""
    try:
        low = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    draw = random.SystemRandom()  # seeds of runs must not make two clusters choose the same
    tries = (draw.randrange(_LOWEST, low) for _ in range(_TRIES if low > _LOWEST else 0))
    return next((port for port in tries if is_free(host, port)), 0)
