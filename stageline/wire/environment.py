"""The variables that gRPC reads once, at its first import; so this module must not import gRPC."""

import os
from typing import Final

GRPC_ENVIRONMENT: Final = {
    # These two experiments wake gRPC's threads twice as often for every message: a fifth of the CPU of a hop.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # A lost peer is reported by Stageline, not logged as an error by the library.
    "GRPC_VERBOSITY": "ERROR",
    # Children are started, never forked.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


def prepare() -> None:
    """Sets the variables that the user has not set. Call before the first import of grpc."""
    for name, value in GRPC_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
