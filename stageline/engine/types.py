"""The engine's interface: requests in, records out, and the protocols of both sides.

Times are integers of emulated nanoseconds. msgspec structs rather than dataclasses where one is made per request or
microbatch: creating one costs a fifth.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

NEVER = 1 << 62  # a time later than every event; fits a signed 64-bit field

Outcome = Literal["finished", "refused", "cancelled", "failed", "incomplete"]


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request as the router sees it arrive.

    `index` numbers the accepted rows of a workload from 0 in file order; it names the request everywhere.
    `output_tokens` is how many it will produce (>= 1), `max_output_tokens` how many it may: `reserve` allocates them.
    """

    index: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: int = 0  # lower goes first under the `priority` queueing policy
    conversation: str = ""  # the user's chat: `session` in trace files and on the wire, `user` over HTTP
    hash_ids: tuple[int, ...] = ()  # identities of the prompt's blocks (prefix cache)
    output_hash_ids: tuple[int, ...] = ()  # of those that the answer completes, from block floor(prompt / block) on
    model: str = ""  # that it asks for; empty: the fleet's only one


class Cancellation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A client left: the request ends once none of its microbatches is in flight. Ignored after its end."""

    index: int
    at_ns: int


class HandOverRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """How the KV of a request came from its replica to the one that decodes it. Times as in RequestRecord."""

    decode_replica: int | None = None
    reserved_ns: int | None = None  # when the decode replica had room: before the transfer, or before the prefill
    start_ns: int | None = None  # of the (first) transfer
    end_ns: int | None = None  # of the (last) one
    landed_ns: int | None = None
    sent_bytes: int = 0


class LoadRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """KV that a request found below the prefix cache, at its last admission that loaded any. Times as there."""

    host_tokens: int = 0  # of the blocks that were read from host memory
    store_tokens: int = 0  # from the store
    start_ns: int  # when it was admitted as a load
    landed_ns: int


class RequestRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The outcome of a request: one line of requests.jsonl. A time is None when that event did not happen."""

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
    hand_over: HandOverRecord | None = None  # None (left out): it was not bound to a prefill replica
    load: LoadRecord | None = None  # None (left out): it loaded nothing from a tier


class StageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How one stage spent the run's window: one element of stages.json. busy_ns + sum(idle_ns) = window_ns (L6)."""

    replica: int
    stage: int
    window_ns: int
    busy_ns: int
    idle_ns: dict[str, int]  # by cause (stageline/engine/causes.py), zero included but for optional ones
    kv_peak_bytes: int
    kv_budget_bytes: int
    microbatches: int  # services, all visits together
    visits: int  # times that the route visits this stage


class PrefixStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one replica's prefix cache. A request counts once, at its first admission."""

    queried_blocks: int = 0  # identities of all prompts, a last partial one included
    hit_blocks: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    evictions: int = 0  # blocks evicted to make room
    saved_prefill_ns: int = 0  # service time, summed over the route, of the prefill chunks that were not computed


class TierStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one tier: the host memory of a replica, or the store (`replica` None). Bytes are those of all items."""

    replica: int | None
    capacity_bytes: int
    peak_bytes: int = 0
    hit_blocks: int = 0  # read for loads
    hit_tokens: int = 0  # of those blocks
    read_bytes: int = 0
    written_bytes: int = 0
    written_blocks: int = 0
    evicted_blocks: int = 0  # to make room for others
    dropped_blocks: int = 0  # that came down and found no room


class SpeculationStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one replica's draft tokens, over the completed decode steps that carried any."""

    steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0  # drafts that became output; each step yields one token more

    def __add__(self, other: "SpeculationStats") -> "SpeculationStats":
        """The sum of both."""
        return SpeculationStats(
            steps=self.steps + other.steps,
            drafted_tokens=self.drafted_tokens + other.drafted_tokens,
            accepted_tokens=self.accepted_tokens + other.accepted_tokens,
        )


class Workload(Protocol):
    """Requests and cancellations in the order of their times; equal times in file order."""

    @property
    def reactive(self) -> bool:
        """Whether `finished` may create arrivals (closed loops). Replicas then can't run ahead of one another."""
        ...

    def next_arrival_ns(self) -> int | None:
        """Time of the next arrival; None while it is unknown (in a closed loop until a request finishes)."""
        ...

    def horizon_ns(self) -> int:
        """Lower bound on every arrival not yet known; NEVER if only `finished` can still create one."""
        ...

    def take(self) -> Request | Cancellation:
        """Remove and return the next request or cancellation. Call only when `next_arrival_ns()` is not None."""
        ...

    def finished(self, index: int, now_ns: int) -> None:
        """The request left the system. A closed loop may now schedule its user's next one."""
        ...


class Observer(Protocol):
    """Sees tokens and records while a run goes on. Per request, every engine calls it in the same order."""

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """A request got one token at `now_ns`; `since_ns` is the time of its previous token, None for the first."""
        ...

    def request(self, record: RequestRecord) -> None:
        """A request left the system. Called in the order of leaving, not of arrival."""
        ...


class MemberObserver(Protocol):
    """Sees which requests a microbatch carries. Stages do not know."""

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """A microbatch was formed; no stage has served it yet. `requests` are indexes."""
        ...


class StageObserver(Protocol):
    """Sees every service and gap of the stages. It slows a run down, so only --events and --otlp use it."""

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """A stage served microbatch `number` at `visit`, from `start_ns` to `end_ns`."""
        ...

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """The stage was idle from `start_ns` until its next service; `idle_ns` splits that time by cause."""
        ...

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """The stage's ledger changed, which happens when it serves a microbatch at its first visit."""
        ...


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals that the engine counts itself. Everything else follows from the records."""

    window_start_ns: int
    window_end_ns: int
    stages: tuple[StageRecord, ...]  # by replica, stage
    requests: int
    microbatches: int  # dispatched, all replicas
    stage_visits: int  # microbatches x visits
    binding_stage: int | None  # whose ledger had no room most often, by pool and stage; None if all always had
    prefix: tuple[PrefixStats, ...] = ()  # by replica; empty when there is no prefix cache
    speculation: tuple[SpeculationStats, ...] = ()  # by replica; empty without speculation
    tiers: tuple[TierStats, ...] = ()  # host memory by replica, then the store; empty without tiers
