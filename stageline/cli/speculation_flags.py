"""Flags of speculative decoding, shared by run, up and search."""

import re
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.groups import SPECULATION
from stageline.cli.numbers import WHOLE
from stageline.engine.settings import MAX_DRAFTS
from stageline.engine.speculation import PPM
from stageline.errors import BadInput
from stageline.units import NS_PER_S, parse_duration_ns, parse_ratio

MAX_DRAFT_NS = NS_PER_S
_ZERO = re.compile(r"0+(\.0*)?")


@Parameter(name="*", group=SPECULATION)
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationFlags:
    """Draft tokens that decode steps verify."""

    speculate: Annotated[int | None, WHOLE, Parameter(help="Draft tokens per decode step; 0: none.")] = None
    acceptance: Annotated[str | None, Parameter(help="Probability that a draft token is accepted, like 0.7.")] = None
    draft_cost: Annotated[
        str | None,
        Parameter(help="Time to draft one token for a microbatch, like 500us; default: 0 (n-gram look-up)."),
    ] = None

    def given(self) -> dict[str, int]:
        """Fields of `Scheduling`, each in its range. Raises BadInput."""
        given: dict[str, int] = {}
        if self.speculate is not None:
            if not 0 <= self.speculate <= MAX_DRAFTS:
                raise BadInput(
                    "--speculate", self.speculate, f"not between 0 and {MAX_DRAFTS}", f"give 0 to {MAX_DRAFTS}"
                )
            given["speculate"] = self.speculate
        if self.acceptance is not None:
            given["acceptance_ppm"] = _ppm(self.acceptance)
        if self.draft_cost is not None:
            draft_ns = given["draft_ns"] = parse_duration_ns(self.draft_cost, "--draft-cost")
            if draft_ns > MAX_DRAFT_NS:
                raise BadInput("--draft-cost", self.draft_cost, "above 1 second per draft token", "give a shorter time")
        return given


def _ppm(text: str) -> int:
    """A probability in whole parts per million, the nearest (half-even)."""
    if _ZERO.fullmatch(text.strip()):
        return 0
    ratio = parse_ratio(text, "--acceptance")
    if ratio > 1:
        raise BadInput("--acceptance", text, "more than every draft", "give a probability from 0 to 1")
    return round(ratio * PPM)
