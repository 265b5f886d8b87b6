"""The fleet file: pools of replicas behind one router, and what moves between them (rules 10-12).

Canonical JSON as the plan file; people write TOML, which `stageline.api` turns into it. Times are integers of
nanoseconds, sizes integers of bytes, bandwidths bytes per second.
"""

import hashlib
from typing import Annotated, Literal

import msgspec

from stageline.engine.settings import Count, Natural, Scheduling
from stageline.plan.schema import Plan, PlanStruct

FLEET_FORMAT = "stageline-fleet/1"

Role = Literal["both", "prefill", "decode"]
Order = Literal["source-first", "destination-first"]
Offload = Literal["evict", "write-through"]
LoadPolicy = Literal["cheaper", "always"]
Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


class Tier(PlanStruct, frozen=True):
    """A place for KV below prefix caches (rule 12)."""

    capacity_bytes: Natural
    write_bytes_per_s: Count
    read_bytes_per_s: Count
    latency_ns: Natural = 0  # of a read: from its end until its KV is on the device


class Pool(PlanStruct, frozen=True):
    """Replicas of one plan, and how they are driven."""

    name: Name
    plan: Plan  # its `replicas` are the pool's
    role: Role = "both"
    scheduling: Scheduling = Scheduling()
    egress_bytes_per_s: Natural = 0  # of the port through which a replica sends KV; 0: the hand-over's bandwidth
    ingress_bytes_per_s: Natural = 0  # of the port through which it receives KV
    port_latency_ns: Natural | None = None  # None: the hand-over's; of both ends of a transfer the larger one counts
    host: Tier | None = None  # host memory of each replica, below its prefix cache


class HandOver(PlanStruct, frozen=True):
    """How KV goes from a prefill replica to a decode replica (rule 11)."""

    bytes_per_s: Count  # of a port, unless its pool says otherwise
    latency_ns: Natural = 0  # of a port: from the end of a transfer until its KV can be used
    order: Order = "source-first"
    first_token: Literal["prefill", "decode"] = "prefill"  # where the first token counts
    transfer: Literal["all", "missing"] = "all"  # "missing": not what the decode replica has cached
    streamed: bool = False  # each chunk's KV leaves when the chunk is done; destination-first only
    local_prefill_tokens: Natural = 0  # prompts with at most so many uncached tokens are prefilled where they decode
    decode_on_both: bool = False  # whether pools with the role `both` take hand-overs, too


class Fleet(PlanStruct, frozen=True):
    """Pools in the order in which their replicas are numbered."""

    pools: tuple[Pool, ...]
    hand_over: HandOver | None = None
    balance: str = "round-robin"  # routing policy of arrivals and of hand-overs
    front_end_ns: Natural = 0  # from a request's arrival until the router sees it
    store: Tier | None = None  # below the host memory, or else the prefix cache, of all replicas
    offload: Offload = "evict"  # when KV goes down: when the prefix cache evicts it, or when it has been computed
    load: LoadPolicy = "cheaper"  # what is loaded: what lands before it would have been prefilled, or all
    balance_sees_host: bool = False  # whether the policy `prefix` and `local_prefill_tokens` count host memory, too
    format: str = FLEET_FORMAT

    def canonical(self) -> bytes:
        """The bytes that the digest covers: JSON with sorted keys and no spaces."""
        return msgspec.json.encode(self, order="sorted")

    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON."""
        return hashlib.sha256(self.canonical()).hexdigest()
