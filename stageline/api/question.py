"""What a search is asked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stageline.api.fleet_file import KvTransferTable, hand_over
from stageline.api.keywords import PlanKeywords
from stageline.api.placement_limits import PlacementLimits
from stageline.api.running import check_seed
from stageline.api.variations import variations
from stageline.engine.settings import Scheduling
from stageline.errors import BadInput, UsageError
from stageline.report.measure import ARRIVALS, MeasureWindow
from stageline.workload import DescribedWorkload, open_workload

MAX_DEVICES, MAX_CONTEXT_PARALLEL = 4096, 4096
DEFAULT_REQUESTS = 2000
DISAGGREGATE = "--disaggregate"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a search is asked: the models and devices, the workload, the objective, and what may be varied."""

    models: tuple[str, ...]
    device_names: tuple[str, ...]
    workload: str
    devices: tuple[int, ...]  # numbers of devices, all replicas together
    slo: str | None = None
    vary: Mapping[str, Sequence[Any]] = {}  # values of keywords of `plan_model` and of fields of `Scheduling`
    max_context_parallel: int = 1
    requests: int | None = DEFAULT_REQUESTS
    rate_scale: str = "1"
    seed: int = 0
    scheduling: Scheduling | None = None  # None: as the serving engine of each plan schedules, changed by `given`
    given: dict[str, Any] = {}  # fields of Scheduling
    window: MeasureWindow = ARRIVALS  # in which rates are measured, and of whose requests attainment is
    keywords: PlanKeywords = {}  # of every plan, without its division
    catalog_dirs: tuple[Path, ...] = ()
    limits: PlacementLimits = PlacementLimits()
    every_count: bool = False  # go on to more devices when fewer meet the objective
    exhaustive: bool = False  # every point on the whole workload
    headroom: bool = True  # run the answer at other loads, too
    survive_loss: bool = False  # the objective must also be met with one replica lost
    disaggregate: KvTransferTable | None = None  # how KV moves in fleets that are tried, too; None: no fleets

    @property
    def every_request_counts(self) -> bool:
        """Whether the objective is judged by all requests, for which bounds are proved."""
        return self.window == ARRIVALS or self.window.kind == "all"

    def check(self) -> None:
        """Raises UsageError or BadInput naming the flag."""
        if not self.devices or not 1 <= min(self.devices) <= max(self.devices) <= MAX_DEVICES:
            raise UsageError(f"--devices: must lie between 1 and {MAX_DEVICES:,}, the smaller number first")
        if any(size is not None and size < 1 for size in self.vary.get("microbatch", ())):
            raise UsageError("--microbatches: must be 1 or more, such as 1,8,64")
        if self.survive_loss and self.slo is None:
            raise UsageError("--survive-loss needs an objective that is met without a replica, too: give --slo")
        if self.disaggregate is not None:
            self._check_fleets(self.disaggregate)
        self.limits.check()
        if not 1 <= self.max_context_parallel <= MAX_CONTEXT_PARALLEL:
            reason = f"not between 1 and {MAX_CONTEXT_PARALLEL:,}"
            raise BadInput("--max-context-parallel", self.max_context_parallel, reason, "give a smaller degree")
        check_seed(self.seed)
        variations(self.vary, self.scheduling)
        self.open()

    def _check_fleets(self, transfer: KvTransferTable) -> None:
        if self.survive_loss:
            raise UsageError(
                "--survive-loss can't be combined with --disaggregate: it tries no fleets that have lost a replica; "
                "without it the answer says what it serves with one lost"
            )
        if transfer.decode_on_both:
            reason = "prefill and decode are tried in two pools, and there is none with the role both"
            raise BadInput(f"{DISAGGREGATE}, decode-on-both", True, reason, "leave it out")
        if max(self.devices) < 2:
            raise BadInput(
                "--devices", max(self.devices), "there is no room for a prefill pool and a decode pool",
                "give 2 or more, or leave out --disaggregate",
            )  # fmt: skip
        hand_over(transfer, DISAGGREGATE)

    def open(self) -> DescribedWorkload:
        """The workload of a trial in full. Raises BadInput."""
        return open_workload(self.workload, seed=self.seed, rate_scale=self.rate_scale, requests=self.requests)
