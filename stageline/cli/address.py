"""A router's address, checked before connecting: gRPC would retry a wrong one until its deadline."""

import re

from stageline.errors import BadInput

_FORM = re.compile(r"(?:grpcs?://)?([^\s:/\[\]]+|\[[0-9a-fA-F:.%\w]+\]):(\d{1,9})")
_WAY_OUT = "give the router's gRPC address, like localhost:50051 or grpcs://localhost:50051"


def router_address(place: str, text: str) -> str:
    """HOST:PORT unchanged, with or without grpcs:// or grpc://. BadInput for anything else; `place` names it there."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadInput(place, text, "not HOST:PORT", _WAY_OUT)
    if not 1 <= int(found[2]) <= 65535:
        raise BadInput(place, text, f"port {found[2]} is not between 1 and 65535", _WAY_OUT)
    return text
