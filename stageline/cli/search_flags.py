"""What a search is asked for."""

import math
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from stageline.cli.flags import check_seed
from stageline.errors import BadInput, UsageError
from stageline.workload import open_workload

MAX_DEVICES, MAX_CONTEXT = 4096, 4096
MAX_PRICE = 1e9


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """The load, the objective, and how devices may be divided."""

    workload: Annotated[str, Parameter(help="trace FILE, or poisson:rate=4,input=1024,output=128 and the like")]
    devices: Annotated[str, Parameter(help="how many in all: 8, or 46..118 for the curve of what each adds")]
    slo: Annotated[str | None, Parameter(help="ttft=2s,tpot=50ms,attainment=0.99")] = None
    microbatches: Annotated[str, Parameter(help="sizes to try, like 1,8,64; default: the planner's choice")] = ""
    most_context_parallel: Annotated[int, Parameter(help="largest context-parallel degree to try")] = 1
    requests: Annotated[int | None, Parameter(help="at most so many requests of the workload")] = 200
    rate_scale: Annotated[str, Parameter(help="arrivals come that many times as fast")] = "1"
    seed: Annotated[int, Parameter(help="of every random draw, 0 or more")] = 0
    prefix_cache: Annotated[bool, Parameter(negative="", help="keep the KV of prompts and reuse it")] = False
    price: Annotated[float | None, Parameter(help="of one device for an hour: adds the cost of tokens")] = None

    def check(self) -> None:
        """Raises UsageError or BadInput naming the flag."""
        self.counts()
        self.sizes()
        if self.price is not None and not (math.isfinite(self.price) and 0 < self.price <= MAX_PRICE):
            raise BadInput("--price", self.price, f"not above 0 and at most {MAX_PRICE:g}", "give a price such as 2.5")
        if not 1 <= self.most_context_parallel <= MAX_CONTEXT:
            way_out = f"give 1 to {MAX_CONTEXT}"
            raise BadInput("--most-context-parallel", self.most_context_parallel, "no such degree", way_out)
        check_seed(self.seed)
        open_workload(self.workload, seed=self.seed, rate_scale=self.rate_scale, requests=self.requests)

    def counts(self) -> list[int]:
        """ "8" -> [8]; "4..6" -> [4, 5, 6]. Raises UsageError for anything else."""
        first, dots, last = self.devices.partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            reason = "give a number such as 8, or a range such as 46..118"
            raise UsageError(f"--devices {self.devices!r}: {reason}") from None
        if not 1 <= low <= high <= MAX_DEVICES:
            raise UsageError(
                f"--devices {self.devices}: must lie between 1 and {MAX_DEVICES}, the smaller number first"
            )
        return list(range(low, high + 1))

    def sizes(self) -> list[int | None]:
        """Microbatches to try; None: the planner's choice. Raises UsageError for what is no list of sizes."""
        if not self.microbatches:
            return [None]
        try:
            sizes = [int(part) for part in self.microbatches.split(",")]
        except ValueError:
            sizes = [0]
        if min(sizes) < 1:
            raise UsageError(f"--microbatches {self.microbatches!r}: give sizes such as 1,8,64")
        return list(sizes)
