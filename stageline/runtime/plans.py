"""Reading a plan file that a user names."""

from pathlib import Path

from stageline.errors import BadInput
from stageline.plan.parse import parse_plan
from stageline.plan.schema import Plan


def read_plan_file(path: Path) -> Plan:
    """The plan in a file. BadInput with the place inside the document when it is damaged or makes no sense."""
    if path.is_char_device():  # it may never end
        raise BadInput(f"plan {path}", None, "is a device and no file", "make one with stageline plan -o")
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"plan {path}", None, f"can't be read: {reason}", "make one with stageline plan -o") from None
    return parse_plan(data, f"plan {path}")
