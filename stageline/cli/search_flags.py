"""The flags of `stageline search` that say what is asked."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.api.scheduling import check_drafts
from stageline.api.searching import MAX_DEVICES, Question
from stageline.cli.groups import QUESTION
from stageline.cli.numbers import DECIMAL, WHOLE
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError


@Parameter(name="*", group=QUESTION)
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """The workload, the objective, and how devices may be divided."""

    workload: Annotated[
        str, Parameter(help="Trace file, or a synthetic workload like poisson:rate=4,input=1024,output=128.")
    ]
    devices: Annotated[
        str,
        Parameter(
            help="Total number of devices, like 8, or a range like 46..118 for the best division at every number."
        ),
    ]
    slo: Annotated[str | None, Parameter(help="Objective, like ttft=2s,tpot=50ms,attainment=0.99.")] = None
    microbatches: Annotated[
        str, Parameter(show_default=False, help="Microbatch sizes to try, like 1,8,64; default: the planner's choice.")
    ] = ""
    max_context_parallel: Annotated[
        int,
        WHOLE,
        Parameter(
            name=("--max-context-parallel", "--most-context-parallel"), help="Maximum context-parallel size to try."
        ),
    ] = 1
    requests: Annotated[int | None, WHOLE, Parameter(help="Maximum number of requests.")] = 200
    rate_scale: Annotated[str, Parameter(help="Factor on the arrival rate, like 2, 0.5 or 3/2.")] = "1"
    seed: Annotated[int, WHOLE, Parameter(help="Seed of every random draw, 0 or more.")] = 0
    prefix_cache: Annotated[
        bool, Parameter(negative="", help="Keep the KV of prompts and reuse it for prompts that begin alike.")
    ] = False
    price: Annotated[
        float | None, DECIMAL, Parameter(help="Price of one device per hour, to compute the cost of tokens.")
    ] = None

    def question(self, speculation: SpeculationFlags) -> Question:
        """As the API takes it. Raises UsageError or BadInput naming the flag."""
        drafts = speculation.given()
        check_drafts(Scheduling(), drafts)
        return Question(
            workload=self.workload,
            devices=_counts(self.devices),
            slo=self.slo,
            microbatches=_sizes(self.microbatches),
            max_context_parallel=self.max_context_parallel,
            requests=self.requests,
            rate_scale=self.rate_scale,
            seed=self.seed,
            given=drafts | ({"prefix_cache": True} if self.prefix_cache else {}),
            price=self.price,
        )


def _counts(text: str) -> tuple[int, ...]:
    """ "8" -> (8,); "4..6" -> (4, 5, 6). Raises UsageError for anything else."""
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last if dots else first)
    except ValueError:
        reason = "give a number such as 8, or a range such as 46..118"
        raise UsageError(f"--devices {text!r}: {reason}") from None
    if not 1 <= low <= high <= MAX_DEVICES:
        raise UsageError(f"--devices {text}: must lie between 1 and {MAX_DEVICES}, the smaller number first")
    return tuple(range(low, high + 1))


def _sizes(text: str) -> tuple[int | None, ...]:
    """Microbatches to try; None: the planner's choice. Raises UsageError for what is no list of sizes."""
    if not text:
        return (None,)
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise UsageError(f"--microbatches {text!r}: give sizes such as 1,8,64")
    return tuple(sizes)
