"""Doors that strangers can reach."""

import ipaddress
import logging

log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def warn_of_open_port(door: str, host: str, *, tls: bool, asks: str) -> None:
    """Warns of a door beyond loopback without TLS, or that lets anybody in; `asks` is what would change that."""
    lacking = ([] if tls else ["TLS (--tls-cert)"]) + ([asks] if asks else [])
    if lacking and not is_loopback(host):
        log.warning(
            f"the {door} door is open to the network without {' and without '.join(lacking)}", extra={"host": host}
        )
