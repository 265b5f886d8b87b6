"""A whole run in one call."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from stageline.engine import inprocess
from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, one_pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request, RequestRecord, RunTotals, Workload
from stageline.plan.schema import Plan
from stageline.testing.observers import DigestObserver, Recorder
from stageline.testing.workloads import ListWorkload


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run."""

    totals: RunTotals
    seen: Recorder  # tokens, microbatches, services, gaps, ledgers

    @property
    def requests(self) -> list[RequestRecord]:
        """The records by index."""
        return self.seen.by_index()

    @property
    def admitted(self) -> list[int]:
        """Indices of the admitted requests in the order of their first admission; equal times by index."""
        times = [(r.admitted_ns, r.index) for r in self.requests if r.admitted_ns is not None]
        return [index for _, index in sorted(times)]

    @property
    def tokens_ns(self) -> dict[int, list[int]]:
        """When each token of a request came back, by index of the request."""
        return self.seen.tokens_ns

    @property
    def digest(self) -> str:
        """What must be equal between engines, machines and replays."""
        digest = DigestObserver()
        for record in self.seen.requests:
            digest.request(record)
        return digest.finish(self.totals.stages)


def run_plan(
    plan: Plan,
    requests: Iterable[Request | Cancellation] | Workload,
    scheduling: Scheduling | None = None,
    *,
    seed: int = 0,
    paranoid: bool = True,
    **changes: Any,
) -> Run:
    """Runs requests, in the order of their arrivals, or a workload through a plan.

    `changes` are fields of Scheduling. A class stands for "package.module:Class", so it must be importable.
    `paranoid` checks every law after every step and records what stages did; without it runs are as fast as those of
    `stageline run`. Raises LawBroken, TypeError for a field that Scheduling does not have, and UsageError.
    """
    named = {name: _name(value) if isinstance(value, type) else value for name, value in changes.items()}
    settings = msgspec.structs.replace(scheduling or Scheduling(), **named)
    return run_fleet(one_pool(Route(plan), settings), requests, seed=seed, paranoid=paranoid)


def run_fleet(
    fleet: ServedFleet,
    requests: Iterable[Request | Cancellation] | Workload,
    *,
    seed: int = 0,
    paranoid: bool = True,
) -> Run:
    """As `run_plan`, through a fleet."""
    seen = Recorder()
    totals = inprocess.run_fleet(
        fleet,
        ListWorkload(list(requests)) if isinstance(requests, Iterable) else requests,
        seed=seed,
        observer=seen,
        members=seen,
        stage_observer=seen if paranoid else None,
        paranoid=paranoid,
    )
    return Run(totals, seen)


def _name(policy: type) -> str:
    return f"{policy.__module__}:{policy.__qualname__}"
