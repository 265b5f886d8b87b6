"""The plan file: layers -> stages -> devices, and everything that an engine needs to run them.

One JSON document for the planner, the engines, the launchers and the dashboards. Times are integers of nanoseconds,
sizes integers of bytes; the only floats are the coefficients of cost entries.
"""

import hashlib
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from stageline.cost.entries import CostEntry

PLAN_FORMAT = "stageline-plan/1"


class PlanStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of a plan's parts, which refuse unknown fields, so that a misspelt one is not ignored."""


class ReadLimit(PlanStruct, frozen=True):
    """Caches of which a query reads only some tokens: sliding windows, chunks, what an indexer chooses."""

    read_tokens: int  # at most, by one query
    pair_flops: int  # per query-key pair
    kv_bytes: int = 0  # per token, of caches that are kept whole all the same


class StageWork(PlanStruct, frozen=True):
    """Useful work of a stage, and what its devices could do, all of them together. Reports need it, engines do not."""

    token_flops: int
    pair_flops: int  # per query-key pair, of caches that are read whole
    row_flops: int  # per sampled row
    step_bytes: int  # weights that every step reads
    flops_per_s: int  # peak
    bytes_per_s: int  # peak memory bandwidth
    expert_bytes: int = 0  # one routed expert of every layer
    experts: int = 0
    experts_per_token: int = 0
    read_limits: tuple[ReadLimit, ...] | UnsetType = UNSET  # absent if all caches are read whole


class KvWindow(PlanStruct, frozen=True):
    """Sliding-window layers of a stage."""

    most_blocks: int  # of the ledger that they keep of one sequence
    block_bytes: int  # of one block, all layers with this window


class StagePlan(PlanStruct, frozen=True):
    """One stage: a group of devices with its layer shards and its KV budget."""

    name: str
    layers: tuple[int, ...]  # 0-based, ascending; of all its visits
    devices: int = 1  # size of the TP x EP x CP group
    device: str = ""  # catalogue name
    weight_bytes: int = 0  # of all devices of the group
    memory_bytes: int = 0  # usable memory of the group
    kv_budget_bytes: int = 0  # that the ledger may hold
    kv_block_bytes: int = 0  # of one block of `block_tokens` tokens, all full-attention layers without a window
    state_bytes: int = 0  # constant state of one sequence, all linear-attention layers of the stage
    work: StageWork | None = None
    kv_windows: tuple[KvWindow, ...] | UnsetType = UNSET  # absent without sliding-window layers

    @property
    def windows(self) -> tuple[KvWindow, ...]:
        """Sliding-window layers; usually none."""
        return self.kv_windows or ()

    def kv_bytes(self, blocks: int, states: int) -> int:
        """Bytes in the ledger of a sequence with that many blocks and states."""
        return blocks * self.kv_block_bytes + states * self.state_bytes + self.window_bytes(blocks)

    def window_bytes(self, context_blocks: int) -> int:
        """Bytes that sliding-window layers keep of a context of that many blocks."""
        return sum(min(context_blocks, w.most_blocks) * w.block_bytes for w in self.windows)


class Visit(PlanStruct, frozen=True):
    """One visit of the route."""

    stage: int  # index into Plan.stages
    layers: tuple[int, ...]  # 0-based, ascending, consecutive
    cost: int  # index into Plan.costs
    min_service_ns: int  # lower bound of the service time of any microbatch; at least 1


class LinkPlan(PlanStruct, frozen=True):
    """One visit boundary. Link v enters visit v; link `len(visits)` returns to the router."""

    latency_ns: int
    bytes_per_s: int
    bytes_per_token: int  # per new token; on the return link per sampled token
    jitter_ns: int = 0  # uniform integer in [0, jitter_ns], counter-based


class Defaults(PlanStruct, frozen=True):
    """Settings of a run, unless flags replace them."""

    microbatch: int  # most sequences in a microbatch; the plan's times are nominal at this number
    credits: int  # most microbatches in flight per replica
    batched_tokens: int = 2048  # most new tokens in a microbatch


BuiltIn = Annotated[str, msgspec.Meta(pattern="^[^:]*$")]  # a policy's name: a file may not name code to import


class Serving(PlanStruct, frozen=True):
    """How the serving engine of a plan schedules: settings of a run, unless flags replace them.

    Policies are names of `stageline.engine.policies`.
    """

    engine: str  # catalogue name
    release: str = ""
    batching: BuiltIn = "balanced"
    queueing: BuiltIn = "fcfs"
    kv: BuiltIn = "reserve"
    prefix_cache: bool = False
    largest_microbatch: int = 0  # most sequences in a microbatch; 0: that of `Defaults`
    max_running: int = 0  # most running sequences per replica, all data-parallel ranks together; 0: no limit
    ranks: int = 1  # data-parallel ranks of one replica; an engine's limits are per rank
    overhead_ns: int = 0  # host time per microbatch
    front_end_ns: int | UnsetType = UNSET  # per request, before the router sees it; absent: none
    speculate: int | UnsetType = UNSET  # draft tokens of a decode step; absent: none


class Plan(PlanStruct, frozen=True):
    """A pipeline, of which `replicas` copies stand behind one router."""

    model: str
    device: str
    stages: tuple[StagePlan, ...]
    visits: tuple[Visit, ...]
    links: tuple[LinkPlan, ...]  # len(visits) + 1
    costs: tuple[CostEntry, ...]
    defaults: Defaults
    block_tokens: int = 16
    max_context_tokens: int = 0  # 0: no limit
    replicas: int = 1
    format: str = PLAN_FORMAT
    serving: Serving | UnsetType = UNSET  # absent in plans that name no serving engine
    info: dict[str, str | int | float | bool] = {}  # how the plan was made; engines ignore it

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * sum(stage.devices for stage in self.stages)

    def canonical(self) -> bytes:
        """The bytes that the digest covers: JSON with sorted keys and no spaces."""
        return msgspec.json.encode(self, order="sorted")

    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON; router and stages compare it when a session opens."""
        return hashlib.sha256(self.canonical()).hexdigest()
