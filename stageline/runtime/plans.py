"""Reading a plan file that a user names, and telling it from a fleet file."""

from pathlib import Path

import msgspec

from stageline.errors import BadInput
from stageline.plan.parse import parse_plan
from stageline.plan.schema import Plan

_FLEET = "stageline-fleet"  # how the format of a canonical fleet file begins


class _Format(msgspec.Struct):
    """The field that tells canonical files apart."""

    format: str = ""


def read_plan_file(path: Path) -> Plan:
    """The plan in a file. BadInput with the place inside the document when it is damaged or makes no sense."""
    if path.is_char_device():  # it may never end
        raise BadInput(f"plan {path}", None, "is a device and no file", "make one with stageline plan -o")
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"plan {path}", None, f"can't be read: {reason}", "make one with stageline plan -o") from None
    if _names_a_fleet(path, data):
        reason = "is a fleet file, and this command takes the plan of one pipeline"
        raise BadInput(
            f"plan {path}", None, reason, "give the plan of one pool, or use stageline run, which takes fleets"
        )
    return parse_plan(data, f"plan {path}")


def is_fleet_file(path: Path) -> bool:
    """Whether a file is a fleet's, in TOML or in its canonical form; False for what can't be read."""
    try:
        return path.is_file() and _names_a_fleet(path, path.read_bytes())
    except (OSError, ValueError):
        return False


def _names_a_fleet(path: Path, data: bytes) -> bool:
    return b"pool" in data if path.suffix == ".toml" else is_fleet(data)


def is_fleet(data: bytes) -> bool:
    """Whether a document in canonical form says that it is a fleet."""
    try:
        return msgspec.json.decode(data, type=_Format).format.startswith(_FLEET)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
