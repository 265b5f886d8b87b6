"""Settings of the router, and how it finds its stages."""

from typing import Annotated, Literal

import msgspec

from stageline.errors import UsageError
from stageline.plan.schema import Plan
from stageline.runtime.settings import ServerSettings


class RouterSettings(ServerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Routes requests through the stages of a Stageline pipeline."""

    plan: Annotated[str, msgspec.Meta(description="plan file; required")] = ""
    stages: Annotated[
        str,
        msgspec.Meta(
            description="addresses of all stages: host:port,... by replica and stage, or one pattern with {stage} and "
            "{replica}, such as stage-{stage}:50051; required"
        ),
    ] = ""
    advertise: Annotated[str, msgspec.Meta(description="host:port at which stages reach this router")] = ""
    window: Annotated[int, msgspec.Meta(ge=0, description="frames in flight per replica; 0: two per core")] = 0
    payload: Annotated[
        Literal["size", "capped", "full"],
        msgspec.Meta(description="activation bytes that are really sent, unless a run says otherwise"),
    ] = "size"


def stage_addresses(text: str, plan: Plan) -> list[list[str]]:
    """Addresses by replica, stage. Raises UsageError when there are not as many as the plan has stages."""
    replicas, stages = range(plan.replicas), range(len(plan.stages))
    if "{stage" in text:
        try:
            return [[text.format(stage=s, replica=r) for s in stages] for r in replicas]
        except (KeyError, IndexError, ValueError):
            raise UsageError(f"--stages {text!r}: only {{stage}} and {{replica}} may stand in a pattern") from None
    flat = [address.strip() for address in text.split(",") if address.strip()]
    count = len(replicas) * len(stages)
    if len(flat) != count:
        raise UsageError(
            f"--stages lists {len(flat)} addresses; {len(stages)} stages x {len(replicas)} replicas need {count}"
        )
    return [flat[r * len(stages) : (r + 1) * len(stages)] for r in replicas]
