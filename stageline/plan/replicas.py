"""The same pipeline in another number of copies."""

import msgspec

from stageline.errors import BadInput
from stageline.plan.check import MAX_REPLICAS
from stageline.plan.schema import Plan


def with_replicas(plan: Plan, number: int) -> Plan:
    """The plan with so many replicas, each as it is. Raises BadInput for a number that no plan has."""
    if not 1 <= number <= MAX_REPLICAS:
        raise BadInput("--replicas", number, f"not between 1 and {MAX_REPLICAS:,}", "give a number of copies")
    info = plan.info | ({"dp": number} if "dp" in plan.info else {})
    return msgspec.structs.replace(plan, replicas=number, info=info)
