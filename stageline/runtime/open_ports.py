"""Warnings of ports that strangers can reach."""

import ipaddress
import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def warn_of_open_port(server: str, hosts: Iterable[str], *, tls: bool, asks: str) -> None:
    """Log a warning if a port that is reached beyond loopback has no TLS, or asks for no credentials: `asks` names what
    would.
    """
    lacking = ([] if tls else ["TLS (--tls-cert)"]) + ([asks] if asks else [])
    open_at = sorted({host for host in hosts if not is_loopback(host)})
    if lacking and open_at:
        log.warning(
            f"the {server} port is open to the network without {' and without '.join(lacking)}",
            extra={"host": ",".join(open_at)},
        )
