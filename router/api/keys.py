"""Checks clients' API keys."""

import hmac

from stageline.errors import Unauthenticated


def check_key(authorization: str, key: str) -> None:
    """Raises Unauthenticated unless the header or gRPC metadata `authorization` contains the key."""
    given = authorization.removeprefix("Bearer ").strip().encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, key.encode()):
        raise Unauthenticated("Incorrect API key provided; send it as Authorization: Bearer KEY.")
