"""Reading a plan file."""

from pathlib import Path

import msgspec

from stageline.errors import BadInput
from stageline.plan.schema import Plan


def read_plan(path: str) -> Plan:
    """The plan in a file. Raises BadInput with place and reason."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    except OSError as error:
        raise BadInput(
            f"plan {path}", None, f"can't be read: {error.strerror}", "make one with stageline plan"
        ) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(f"plan {path}", None, str(error), "make it again with stageline plan") from None
