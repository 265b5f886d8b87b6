"""Small values for the engine's unit tests."""

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Grant, Microbatch
from stageline.plan.schema import Plan
from stageline.testing import uniform_plan


def plan(route: tuple[int, ...] = (0, 1), **changes: int) -> Plan:
    """Equal stages and links, everything small and nothing zero; `changes` as `uniform_plan` takes them."""
    numbers = {
        "service_ns": 100, "latency_ns": 10, "bytes_per_token": 1, "kv_budget_bytes": 1 << 20, "kv_block_bytes": 1,
        "block_tokens": 4, "credits": 4, "batched_tokens": 64,
    }  # fmt: skip
    return uniform_plan(route=route, **(numbers | changes))


def microbatch(
    sequence: int = 0,
    *,
    tokens: int = 1,
    stamps: tuple[int, int, int, int] = (0, 0, 0, 0),
    releases: tuple[int, ...] = (),
    grants: tuple[Grant, ...] = (),
) -> Microbatch:
    """A decode microbatch; `stamps` are dispatch, work_since, empty_since, credit_since."""
    load = BatchTotals(tokens, tokens, tokens, tokens, sampled=tokens)
    return Microbatch(sequence, load, *stamps, releases, grants)
