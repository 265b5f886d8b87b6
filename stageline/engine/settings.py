"""Scheduling settings of the router. They decide what a run computes, and so its digest."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from stageline.plan.schema import Plan

MAX_COUNT = 1 << 40
MAX_SEED = (1 << 63) - 1  # what the wire takes
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
MAX_DRAFTS = 64  # so many drafts in a row are never all accepted
Drafts = Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFTS)]
Ppm = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Scheduling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The router's settings. None: the plan's default. Policies by name: `stageline/engine/policies`."""

    microbatch: Count | None = None  # maximum number of sequences in a microbatch
    credits: Count | None = None  # in-flight limit: microbatches in flight per replica
    batched_tokens: Count | None = None  # maximum number of new tokens in a microbatch: decodes and chunked prefill
    max_running: Count | None = None  # maximum number of running sequences per replica
    batching: str = "balanced"
    queueing: str = "fcfs"
    kv: str = "reserve"
    balance: str = "round-robin"  # routing policy
    tpot_slo_ns: Count | None = None  # target of `slo` batching
    overhead_ns: Natural = 0  # router time per microbatch
    front_end_ns: Natural = 0  # from a request's arrival until the router sees it
    prefix_cache: bool = False
    snapshot_tokens: Count = 8192  # tokens between state snapshots of linear layers in the prefix cache
    hash_block_tokens: Natural = 0  # tokens that one identity of a prompt's blocks stands for; 0: the plan's KV block
    speculate: Drafts = 0  # draft tokens of a decode step; 0: no speculation
    acceptance_ppm: Ppm = 0  # probability that a draft is right, in parts per million
    draft_ns: Natural = 0  # router time per draft token of a microbatch

    @property
    def users_classes(self) -> list[str]:
        """The policies that are named as "package.module:Class": whoever runs with these settings runs that code."""
        return [name for name in (self.batching, self.queueing, self.kv, self.balance) if ":" in name]


def plan_scheduling(plan: Plan) -> Scheduling:
    """The settings with which the plan's serving engine runs; the defaults for a plan that names none."""
    engine = plan.serving
    if not engine:
        return Scheduling()
    return Scheduling(
        microbatch=engine.largest_microbatch or None,
        max_running=engine.max_running or None,
        batching=engine.batching,
        queueing=engine.queueing,
        kv=engine.kv,
        prefix_cache=engine.prefix_cache,
        overhead_ns=engine.overhead_ns,
        front_end_ns=engine.front_end_ns or 0,
        speculate=engine.speculate or 0,
    )


def data_parallel_ranks(plan: Plan) -> int:
    """Data-parallel ranks inside one replica, each with the limits of its own engine."""
    return plan.serving.ranks if plan.serving else 1


def read_scheduling(text: bytes | str, base: Scheduling = Scheduling()) -> Scheduling:  # noqa: B008  (frozen)
    """Settings from JSON, of older versions too; `base` has what it leaves out.

    Raises `msgspec.MsgspecError` and says where.
    """
    given = upgraded(msgspec.json.decode(text, type=dict[str, Any]))
    return msgspec.convert(msgspec.structs.asdict(base) | given, Scheduling)


def upgraded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Scheduling` as today's. Older versions named a user's queueing policy in a field of its own."""
    now = dict(fields)
    users_class = now.pop("policy", None)
    return now | {"queueing": users_class} if users_class else now
