"""Reading a plan file that a user names."""

from pathlib import Path

import msgspec

from stageline.errors import BadInput
from stageline.plan.check import check_plan
from stageline.plan.schema import Plan


def load_plan(path: Path) -> Plan:
    """The plan in a file. BadInput with the place inside the document when it is damaged or makes no sense."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"plan {path}", None, f"can't be read: {reason}", "make one with stageline plan -o") from None
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(f"plan {path}", None, str(error), "make it again with stageline plan -o") from None
    check_plan(plan, f"plan {path}")
    return plan
