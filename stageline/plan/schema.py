"""The plan file: layers -> stages -> devices, and everything that an engine needs to run them.

One JSON document, shared by planner, engines, launchers and dashboards. All times are integers of nanoseconds, all
sizes integers of bytes; the only floats are the folded coefficients of the cost entries.
"""

import hashlib

import msgspec
from msgspec import UNSET, UnsetType

from stageline.cost.entries import CostEntry

PLAN_FORMAT = "stageline-plan/1"


class PlanStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Plans refuse unknown fields: a misspelt one must not be ignored."""


class StageWork(PlanStruct, frozen=True):
    """What a stage works per token and step, all devices of the group together; engines ignore it."""

    token_flops: int
    pair_flops: int  # per query-key pair
    row_flops: int  # per sampled row
    step_bytes: int  # weights that every step reads
    flops_per_s: int
    bytes_per_s: int
    expert_bytes: int = 0  # one routed expert of every layer
    experts: int = 0
    experts_per_token: int = 0


class KvWindow(PlanStruct, frozen=True):
    """Sliding-window layers of a stage: of a sequence they keep at most so many of the ledger's blocks."""

    most_blocks: int
    block_bytes: int  # one block, all layers of this window


class StagePlan(PlanStruct, frozen=True):
    """One stage: a group of devices with its layer shards and its KV budget."""

    name: str
    layers: tuple[int, ...]  # 0-based, ascending; every layer of every visit
    devices: int = 1  # size of the TP x EP x CP group
    device: str = ""  # catalogue name
    weight_bytes: int = 0  # per stage (all devices of the group together)
    memory_bytes: int = 0  # usable memory of the group
    kv_budget_bytes: int = 0  # what the ledger may hold
    kv_block_bytes: int = 0  # one block of `block_tokens` tokens, full-attention layers without a window
    state_bytes: int = 0  # constant state of one sequence, all linear-attention layers of the stage
    work: StageWork | None = None
    kv_windows: tuple[KvWindow, ...] | UnsetType = UNSET  # layers that forget; left out where there are none

    @property
    def windows(self) -> tuple[KvWindow, ...]:
        """Sliding-window layers; mostly none."""
        return self.kv_windows or ()

    def kv_bytes(self, blocks: int, states: int) -> int:
        """What an owner of that many blocks and states takes in the ledger."""
        size = blocks * self.kv_block_bytes + states * self.state_bytes
        return size + sum(min(blocks, w.most_blocks) * w.block_bytes for w in self.windows)


class Visit(PlanStruct, frozen=True):
    """One visit of the route: which stage, which layers, what it costs."""

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
    """What a run uses unless a flag says otherwise."""

    microbatch: int  # nominal and largest number of sequences in a microbatch
    credits: int  # microbatches in flight per replica
    batched_tokens: int = 2048  # largest number of new tokens in a microbatch


class Plan(PlanStruct, frozen=True):
    """A pipeline that can be run. `replicas` copies of it stand behind one router."""

    model: str
    device: str
    stages: tuple[StagePlan, ...]
    visits: tuple[Visit, ...]
    links: tuple[LinkPlan, ...]  # len(visits) + 1
    costs: tuple[CostEntry, ...]
    defaults: Defaults
    block_tokens: int = 16
    max_context_tokens: int = 0  # 0: not limited by the model
    replicas: int = 1
    format: str = PLAN_FORMAT
    info: dict[str, str | int | float | bool] = {}  # how the plan was made, for people; engines ignore it

    def canonical(self) -> bytes:
        """The bytes that the digest covers: sorted keys, no spaces."""
        return msgspec.json.encode(self, order="sorted")

    def digest(self) -> str:
        """sha256 (hex) of the canonical JSON; router and stages compare it when a session opens."""
        return hashlib.sha256(self.canonical()).hexdigest()
