"""Settings of a stage server."""

from typing import Annotated

import msgspec

from stageline.runtime.settings import ServerSettings


class StageSettings(ServerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Serves one stage of a Stageline pipeline."""

    plan: Annotated[str, msgspec.Meta(description="Plan file or fleet file; empty: the router sends the plan.")] = ""
    stage: Annotated[int, msgspec.Meta(ge=-1, description="Index of the stage; -1: the router sends it.")] = -1
    replica: Annotated[
        int, msgspec.Meta(ge=-1, description="Replica, numbered through all pools; -1: the router sends it.")
    ] = -1
