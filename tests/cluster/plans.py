"""A small pipeline for tests that start processes."""

import msgspec

from stageline.cost.entries import Affine
from stageline.engine.types import Request
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit


def small_plan(stages: int = 3, replicas: int = 1, route: tuple[int, ...] = ()) -> Plan:
    """Equal stages; `route` names the stage of each visit, by default each once."""
    route = route or tuple(range(stages))
    return Plan(
        model="small",
        device="test",
        stages=tuple(
            StagePlan(
                name=f"small-{s}",
                layers=tuple(v for v, stage in enumerate(route) if stage == s),
                kv_budget_bytes=1 << 20,
                kv_block_bytes=64,
                state_bytes=16,
            )
            for s in range(stages)
        ),
        visits=tuple(Visit(stage=s, layers=(v,), cost=0, min_service_ns=1000) for v, s in enumerate(route)),
        links=tuple(
            LinkPlan(latency_ns=500, bytes_per_s=10**9, bytes_per_token=64, jitter_ns=20) for _ in range(len(route) + 1)
        ),
        costs=(Affine(base_ns=1000, token_ns=10),),
        defaults=Defaults(microbatch=4, credits=stages),
        replicas=replicas,
    )


def some_requests(count: int = 20, output_tokens: int = 8) -> list[Request]:
    """Arrivals a little faster than they can be served."""
    return [
        Request(
            index=i, arrival_ns=i * 2000, prompt_tokens=10 + i % 7, output_tokens=output_tokens,
            max_output_tokens=output_tokens,
        )
        for i in range(count)
    ]  # fmt: skip


def with_digest_changed(plan: Plan) -> Plan:
    """The same pipeline under another name: another digest."""
    return msgspec.structs.replace(plan, model="other")
