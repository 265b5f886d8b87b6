"""Warnings of ports that strangers can reach."""

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


def warn_of_open_port(server: str, host: str, *, tls: bool, asks: str) -> None:
    """Log a warning if a port beyond loopback has no TLS, or asks for no credentials: `asks` names what would."""
    lacking = ([] if tls else ["TLS (--tls-cert)"]) + ([asks] if asks else [])
    if lacking and not is_loopback(host):
        log.warning(
            f"the {server} port is open to the network without {' and without '.join(lacking)}", extra={"host": host}
        )
