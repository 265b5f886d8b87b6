"""What a router tells of the requests that it has."""

from stageline.engine.router import Router


def requests_running(router: Router) -> int:
    """Requests that are admitted somewhere. One that is handed over may be at two replicas."""
    return len(set[int]().union(*(replica.running for replica in router.replicas)))


def requests_waiting(router: Router) -> int:
    """Requests in the system that are admitted nowhere."""
    return len(router.sequences) - requests_running(router)
