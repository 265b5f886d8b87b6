"""Parses a plan file; the caller reads its bytes."""

import msgspec

from stageline.errors import BadInput
from stageline.plan.check import check_plan
from stageline.plan.schema import Plan


def parse_plan(data: bytes, place: str) -> Plan:
    """Decode and check a plan. Raises BadInput naming file and path, such as `plan.json: $.visits[3].stage`."""
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(place, None, f"not a plan: {error}", "make it again with stageline plan -o") from None
    check_plan(plan, place)
    return plan
