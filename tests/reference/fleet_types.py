"""Rules 10 to 12: what a fleet is, and what is told of each request. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stageline.engine.settings import Scheduling
from stageline.engine.types import RequestRecord, StageRecord
from stageline.plan.schema import Plan

ROLES = ("both", "prefill", "decode")
HANDOVER_ORDERS = ("source-first", "destination-first")
FIRST_TOKENS = ("prefill", "decode")
TRANSFERS = ("all", "missing")
OFFLOADS = ("evict", "write-through")
LOADS = ("cheaper", "always")


@dataclass(frozen=True, slots=True)
class Port:
    """One egress and one ingress port per replica, each a FIFO."""

    egress_bytes_per_s: int = 50 * 10**9
    ingress_bytes_per_s: int = 50 * 10**9
    latency_ns: int = 0  # of a transfer: the larger one of both ends


@dataclass(frozen=True, slots=True)
class Tier:
    """Host memory of a replica, or the store of a fleet."""

    capacity_bytes: int
    write_bytes_per_s: int
    read_bytes_per_s: int
    latency_ns: int = 0


@dataclass(frozen=True, slots=True)
class Pool:
    """`plan.replicas` replicas of one plan, one role and one way to schedule."""

    plan: Plan
    scheduling: Scheduling
    role: str = "both"
    port: Port = Port()
    host: Tier | None = None  # below each replica's prefix cache


@dataclass(frozen=True, slots=True)
class Fleet:
    """Pools behind one router; replicas are numbered through them in this order."""

    pools: tuple[Pool, ...]
    balance: str = "round-robin"  # for arrivals and for hand-overs
    handover: str = "source-first"
    first_token: str = "prefill"
    transfer: str = "all"
    streamed: bool = False  # chunk by chunk; destination-first only
    conditional_tokens: int | None = None  # prompts with no more uncached tokens are prefilled where they decode
    both_decodes: bool = False  # hand-overs may go to `both` pools
    store: Tier | None = None  # shared by all
    offload: str = "evict"
    load: str = "cheaper"
    sees_host: bool = False  # the `prefix` policy and the conditional hand-over count blocks in host memory, too

    def __post_init__(self) -> None:
        for name, value, values in (
            ("handover", self.handover, HANDOVER_ORDERS),
            ("first_token", self.first_token, FIRST_TOKENS),
            ("transfer", self.transfer, TRANSFERS),
            ("offload", self.offload, OFFLOADS),
            ("load", self.load, LOADS),
            *(("role", pool.role, ROLES) for pool in self.pools),
        ):
            if value not in values:
                raise ValueError(f"{name} is {value!r}, not one of {values}")
        if self.streamed and self.handover != "destination-first":
            raise ValueError("streamed needs destination-first: the chunks need a place to go to")
        if any(pool.host is not None and not pool.scheduling.prefix_cache for pool in self.pools):
            raise ValueError("host memory keeps what a prefix cache gives up: its pool needs one")
        if len({pool.scheduling.front_end_ns for pool in self.pools}) != 1:
            raise ValueError("a fleet has one front end: front_end_ns differs between pools")

    @property
    def front_end_ns(self) -> int:
        """What every request passes before it is bound to a replica."""
        return self.pools[0].scheduling.front_end_ns


@dataclass(frozen=True, slots=True)
class HandOverRecord:
    """Of a request that was bound to a prefill replica. None: it did not come to that."""

    prefill_replica: int
    decode_replica: int | None = None
    reserved_ns: int | None = None  # admitted at the decode replica, before the transfer or before the prefill
    transfer_start_ns: int | None = None
    transfer_end_ns: int | None = None
    landed_ns: int | None = None
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """Prompt tokens found below the device's cache at the last admission that loaded any."""

    host_tokens: int
    store_tokens: int
    start_ns: int
    landed_ns: int


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One request: today's record, whose replica is the one that it was bound to first, and what fleets add."""

    request: RequestRecord
    handover: HandOverRecord | None = None
    load: LoadRecord | None = None


@dataclass(frozen=True, slots=True)
class PortRecord:
    """What a replica's ports were busy with."""

    replica: int
    egress_bytes: int
    egress_busy_ns: int
    ingress_bytes: int
    ingress_busy_ns: int


@dataclass(frozen=True, slots=True)
class TierRecord:
    """What a tier did. `replica` None: the store."""

    replica: int | None
    hit_blocks: int  # loaded from it
    written_blocks: int
    evicted_blocks: int
    dropped_blocks: int  # found no room in it
    read_bytes: int
    written_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class FleetResults:
    """What the product has to reproduce to the nanosecond."""

    requests: list[FleetRecord]  # by index
    stages: list[StageRecord]  # by replica, stage
    window_start_ns: int
    window_end_ns: int
    tokens_ns: Mapping[int, list[int]] = field(default_factory=dict)
    ports: list[PortRecord] = field(default_factory=list)  # by replica; empty without hand-overs
    tiers: list[TierRecord] = field(default_factory=list)  # by replica, the store last
    stories: Mapping[int, str] = field(default_factory=dict)  # by index: what happened to the request
