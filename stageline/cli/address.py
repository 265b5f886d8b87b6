"""A router's address, checked before anyone connects: gRPC would try a wrong one until its time is up."""

import re

from stageline.errors import BadInput

_FORM = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.%\w]+\]):(\d{1,9})")
_WAY_OUT = "give the router's gRPC address, like localhost:50051"


def router_address(place: str, text: str) -> str:
    """HOST:PORT as it came. BadInput, naming the flag or argument, for anything else."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadInput(place, text, "not HOST:PORT", _WAY_OUT)
    if not 1 <= int(found[2]) <= 65535:
        raise BadInput(place, text, f"port {found[2]} is not between 1 and 65535", _WAY_OUT)
    return text
