"""What gRPC reads from the environment, once, when it is first imported: nothing here may import it."""

import os
from typing import Final

GRPC_ENVIRONMENT: Final = {
    # Without these two gRPC's own threads are woken twice as often for every message, a fifth of the CPU of a hop.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # A peer that goes away is a user's event, not an error log of the library.
    "GRPC_VERBOSITY": "ERROR",
    # Children are started, never forked.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


def prepare() -> None:
    """Sets what the user has not set. Call before the first import of grpc."""
    for name, value in GRPC_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
