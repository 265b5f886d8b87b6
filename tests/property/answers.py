"""What `search` and `tune` answer, against brute force on random questions."""

import random
import time
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import stageline
from stageline.api.ranking import score
from stageline.api.search_bounds import refused
from stageline.api.trials import Candidate, Trial
from stageline.api.workload_totals import WorkloadTotals
from stageline.engine.settings import Scheduling
from stageline.plan.schema import Plan
from stageline.report.slo import Slo

CLOSE = 0.99  # what a search may lose of the grid's best: its margin, or its tokens per second
SHARE = 0.1  # of the grid's CPU that a search may take
LEAST_POINTS = 300


class SearchQuestion(NamedTuple):
    """A random question; `vary` has four flags."""

    model: str
    device: str
    devices: int
    workload: str
    requests: int
    slo: str | None
    vary: dict[str, list[Any]]

    def ask(self, **more: Any) -> stageline.SearchResult:
        """Asks it."""
        return stageline.search(
            self.model, self.device, devices=self.devices, workload=self.workload, requests=self.requests,
            slo=self.slo, vary=self.vary, **more,
        )  # fmt: skip


def search_question(number: int) -> SearchQuestion:
    """Question `number`: a load near the limit of the devices, or without an objective."""
    draw = random.Random(number)
    model = draw.choice(["llama-3.1-8b", "qwen2.5-7b"])
    size, out = draw.choice([(512, 32), (1024, 32), (2048, 16)])
    rate = draw.choice([40, 60, 90])
    arrivals = draw.choice([f"poisson:rate={rate}", f"gamma:rate={rate},cv=2", "closed:users=48"])
    slo = None if arrivals.startswith("closed") else draw.choice(["ttft=200ms,tpot=25ms", "ttft=1s,tpot=15ms"])
    return SearchQuestion(
        model=model,
        device=draw.choice(["h100-sxm", "a100-80g"]),
        devices=4,
        workload=f"{arrivals},input={size},output={out}",
        requests=800,
        slo=slo,
        vary={
            "batched_tokens": [256, 512, 1024, 2048, 8192],
            "balance": ["round-robin", "least-loaded"],
            "max_num_seqs": [8, 32, 128, 512],
            "kv": ["grow", "reserve"],
        },
    )  # fmt: skip


def search_finds_the_grids_best(number: int) -> tuple[Trial, Trial, float]:
    """The search against all points in full, none of them left out by a bound; both in this process."""
    asked = search_question(number)
    started = time.process_time()
    found = asked.ask(headroom=False)
    spent = time.process_time() - started
    started = time.process_time()
    forbidden: set[str] = set()
    with mock.patch("stageline.api.search_space.refused", partial(_noted, asked, forbidden)):
        grid = asked.ask(exhaustive=True, headroom=False)
    share = spent / (time.process_time() - started)
    best, wanted = found.best(), grid.best()
    assert best is not None and wanted is not None
    points = len(grid.trials)
    assert points >= LEAST_POINTS, points
    _as_good(best, wanted)
    assert not [t for t in grid.trials if t.slo_met and t.key in forbidden], (
        "a bound leaves out what meets the objective"
    )
    assert share <= SHARE, f"{share:.1%} of the CPU of {points} points"
    return best, wanted, share


def _noted(
    asked: SearchQuestion, forbidden: set[str], plan: Plan, scheduling: Scheduling, totals: WorkloadTotals, slo: Slo
) -> None:
    """Runs the bounds, notes what they would leave out, and leaves out nothing."""
    if refused(plan, scheduling, totals, slo) is None:
        return
    candidate = Candidate(
        model="", device="", name="", devices=0, plan=plan, workload=asked.workload, seed=0, rate_scale="1",
        requests=asked.requests, slo=asked.slo, scheduling=scheduling,
    )  # fmt: skip
    forbidden.add(candidate.key())


def _as_good(best: Trial, wanted: Trial) -> None:
    assert best.slo_met == wanted.slo_met, (best, wanted)
    assert best.devices == wanted.devices
    figure = 1 if best.slo_met is not None else 0
    ours, theirs = score(best)[figure], score(wanted)[figure]
    assert ours >= CLOSE * theirs, (
        f"{best.name} {best.settings}: {ours:.4g}; {wanted.name} {wanted.settings}: {theirs:.4g}"
    )
