"""The values that cross the engine's border: requests in, records out, and the protocols of both sides.

Times are integers of emulated nanoseconds. msgspec structs rather than dataclasses where one is made per request or
microbatch: they cost a fifth.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

NEVER = 1 << 62  # a time later than every event; fits a signed 64-bit field

Outcome = Literal["finished", "refused", "cancelled", "failed", "incomplete"]


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request as the router sees it arrive.

    `index` numbers the accepted rows of a workload from 0 in file order; it names the request everywhere.
    `output_tokens` is what it will produce (>= 1), `max_output_tokens` what it may (what `reserve` takes).
    """

    index: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: int = 0  # lower goes first under the `priority` queueing policy
    session: str = ""
    hash_ids: tuple[int, ...] = ()  # identities of the prompt's blocks (prefix cache)


class Cancellation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A client left: the request stops as soon as nothing of it is in flight. Does nothing once it has ended."""

    index: int
    at_ns: int


class RequestRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What became of a request: one line of requests.jsonl. None: it did not happen."""

    index: int
    replica: int | None
    arrival_ns: int
    admitted_ns: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    prompt_tokens: int
    output_tokens: int  # produced
    preemptions: int
    outcome: Outcome
    cached_tokens: int | None = None  # prompt tokens found in the prefix cache; None (left out): there is none


class StageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where one stage spent the run's window: one element of stages.json. busy_ns + sum(idle_ns) = window_ns (L6)."""

    replica: int
    stage: int
    window_ns: int
    busy_ns: int
    idle_ns: dict[str, int]  # by cause (stageline/engine/causes.py), zero included but for optional ones
    kv_peak_bytes: int
    kv_budget_bytes: int
    microbatches: int  # services, all visits together
    visits: int  # visits of the route per microbatch


class PrefixStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica's prefix cache did. Counted at first admissions, so that a preempted request counts once."""

    queried_blocks: int = 0  # identities of all prompts, a last partial one included
    hit_blocks: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    evictions: int = 0  # blocks given up to make room
    saved_prefill_ns: int = 0  # service time, summed over the route, of the prefill chunks that were not computed


class SpeculationStats(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one replica's draft tokens: decode steps that carried any and came back."""

    steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0  # drafts that became output; each step yields one token more

    def __add__(self, other: "SpeculationStats") -> "SpeculationStats":
        """Both together."""
        return SpeculationStats(
            steps=self.steps + other.steps,
            drafted_tokens=self.drafted_tokens + other.drafted_tokens,
            accepted_tokens=self.accepted_tokens + other.accepted_tokens,
        )


class Workload(Protocol):
    """Where requests and cancellations come from, in the order of their times (equal times: in file order)."""

    @property
    def reactive(self) -> bool:
        """Whether `finished` may create arrivals (closed loops): replicas then can't run ahead of one another."""
        ...

    def next_arrival_ns(self) -> int | None:
        """Time of the next arrival as far as it is known now; None when none is (closed loops: until one finishes)."""
        ...

    def horizon_ns(self) -> int:
        """Nothing that is not known yet comes before this; NEVER when all is known but for what `finished` creates."""
        ...

    def take(self) -> Request | Cancellation:
        """The next request or cancellation; only when `next_arrival_ns()` is not None."""
        ...

    def finished(self, index: int, now_ns: int) -> None:
        """The request left the system (finished or refused): a closed loop may plan its user's next one."""
        ...


class Observer(Protocol):
    """Who watches a run. Called while it goes, in an order that is the same on every engine per request."""

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """One sampled token of a request; `since_ns` is the time of its previous token, None for the first."""
        ...

    def request(self, record: RequestRecord) -> None:
        """A request left the system. In the order of leaving, not of arrival."""
        ...


class MemberObserver(Protocol):
    """Who wants to know which requests a microbatch carries; stages never do."""

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """A microbatch has been formed, before any stage serves it. `requests` by index."""
        ...


class StageObserver(Protocol):
    """Who watches stages (only with `--events`; it costs)."""

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None: ...

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """An idle gap before a service, split by cause."""
        ...

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """The stage's ledger after a change, made when a microbatch is served at the first visit."""
        ...


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine itself counts; everything else is derived from the records."""

    window_start_ns: int
    window_end_ns: int
    stages: tuple[StageRecord, ...]  # by replica, stage
    requests: int
    microbatches: int  # dispatched, all replicas
    stage_visits: int  # microbatches x visits
    binding_stage: int | None  # the stage whose ledger refused most often, if any did
    prefix: tuple[PrefixStats, ...] = ()  # by replica; empty when there is no prefix cache
    speculation: tuple[SpeculationStats, ...] = ()  # by replica; empty when nothing is drafted
