"""The flags of `stageline plan` that say how long work takes."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.api.keywords import PlanKeywords
from stageline.cli.groups import COST, flag
from stageline.cli.numbers import DECIMAL
from stageline.units import parse_duration_ns


@Parameter(name="*", group=COST)
@dataclass(frozen=True, slots=True, kw_only=True)
class CostFlags:
    """How long work takes."""

    profile: Annotated[
        str | None,
        flag("Profile made by stageline calibrate: a file, or a name in profiles/ of a --catalog."),
    ] = None
    expert_imbalance: Annotated[
        float,
        DECIMAL,
        flag("Exponent of expert popularity (usually 1.01-1.2; 0: uniform); the most loaded rank sets the pace."),
    ] = 0.0
    host_floor: Annotated[
        str | None, flag("Minimum duration of a step, set by the host, like 28ms; default: none.")
    ] = None
    host_step: Annotated[
        str | None, flag("Host time per step that does not overlap, like 2ms; default: the engine's.")
    ] = None
    host_sequence: Annotated[
        str | None, flag("Host time per sequence in a step, like 340us; default: the engine's.")
    ] = None
    sampling_step: Annotated[
        str | None, flag("Device time per step to sample beside the LM head, like 500us; default: none.")
    ] = None
    sampling_sequence: Annotated[
        str | None,
        flag("Device time per sampled token, for penalties and a sort for top-p, like 60us; default: none."),
    ] = None
    front_end: Annotated[
        str | None, flag("Time from a request's arrival to the scheduler, like 8ms; default: the engine's.")
    ] = None
    ring_step: Annotated[
        str | None, flag("Overhead of one step of ring attention under --cp, like 500us; default: none.")
    ] = None

    def keywords(self) -> PlanKeywords:
        """As the API takes them. Raises BadInput for times that are none."""
        found: PlanKeywords = {"profile": self.profile, "expert_imbalance": self.expert_imbalance}
        for name, text in (
            ("--host-floor", self.host_floor),
            ("--host-step", self.host_step),
            ("--host-sequence", self.host_sequence),
            ("--sampling-step", self.sampling_step),
            ("--sampling-sequence", self.sampling_sequence),
            ("--front-end", self.front_end),
            ("--ring-step", self.ring_step),
        ):
            if text is not None:
                keyword = f"{name[2:].replace('-', '_')}_ns"
                found |= {keyword: parse_duration_ns(text, name)}  # type: ignore[misc]
        return found
