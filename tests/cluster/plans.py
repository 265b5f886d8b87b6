"""A small pipeline for tests that start processes."""

import msgspec

from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.testing import request, uniform_plan


def small_plan(stages: int = 3, replicas: int = 1, route: tuple[int, ...] = ()) -> Plan:
    """Equal stages; `route` names the stage of each visit, by default each once."""
    return uniform_plan(
        stages, route=route, service_ns=1000, token_ns=10, latency_ns=500, bytes_per_token=64, jitter_ns=20,
        kv_budget_bytes=1 << 20, kv_block_bytes=64, state_bytes=16, replicas=replicas,
    )  # fmt: skip


def some_requests(count: int = 20, output_tokens: int = 8) -> list[Request]:
    """Arrivals a little faster than they can be served."""
    return [request(i, i * 2000, prompt_tokens=10 + i % 7, output_tokens=output_tokens) for i in range(count)]


def with_digest_changed(plan: Plan) -> Plan:
    """The same pipeline under another name: another digest."""
    return msgspec.structs.replace(plan, model="other")
