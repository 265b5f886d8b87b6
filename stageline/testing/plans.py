"""Plans without a model or a device: every number is given, or small and round."""

from collections.abc import Sequence

import msgspec

from stageline.cost.entries import Affine
from stageline.plan.schema import Defaults, LinkPlan, Plan, StagePlan, Visit


def uniform_plan(
    stages: int = 4,
    *,
    route: Sequence[int] = (),
    service_ns: int | Sequence[int] = 100,
    token_ns: int = 0,
    latency_ns: int = 0,
    bytes_per_s: int = 10**9,
    bytes_per_token: int = 0,
    jitter_ns: int = 0,
    kv_budget_bytes: int = 1 << 40,
    kv_block_bytes: int = 0,
    state_bytes: int = 0,
    block_tokens: int = 16,
    max_context_tokens: int = 0,
    microbatch: int = 4,
    credits: int = 0,  # noqa: A002 - the name of the setting
    batched_tokens: int = 2048,
    replicas: int = 1,
    model: str = "test",
) -> Plan:
    """A pipeline of equal stages and equal links.

    `route` names the stage of each visit, by default every stage once; with a route, `stages` counts for nothing.
    A visit takes `service_ns` (one number, or one per visit) + `token_ns` per new token. Links take no time unless
    asked to: a byte takes 1 ns. KV is unbounded unless `kv_block_bytes` or `state_bytes` are given.
    `credits` 0: one per stage. Raises ValueError when `service_ns` has not one number per visit.
    """
    if not route:
        route = range(stages if isinstance(service_ns, int) else len(service_ns))
    times_ns = [service_ns] * len(route) if isinstance(service_ns, int) else list(service_ns)
    if len(times_ns) != len(route):
        raise ValueError(f"service_ns has {len(times_ns)} numbers for {len(route)} visits")
    costs = sorted(set(times_ns))
    link = LinkPlan(
        latency_ns=latency_ns, bytes_per_s=bytes_per_s, bytes_per_token=bytes_per_token, jitter_ns=jitter_ns
    )
    stage = StagePlan(
        name="", layers=(), kv_budget_bytes=kv_budget_bytes, kv_block_bytes=kv_block_bytes, state_bytes=state_bytes
    )
    return Plan(
        model=model,
        device="test",
        stages=tuple(_numbered(stage, number, route) for number in range(max(route) + 1)),
        visits=tuple(
            Visit(stage=at, layers=(visit,), cost=costs.index(ns), min_service_ns=max(ns, 1))
            for visit, (at, ns) in enumerate(zip(route, times_ns, strict=True))
        ),
        links=(link,) * (len(route) + 1),
        costs=tuple(Affine(base_ns=ns, token_ns=token_ns) for ns in costs),
        defaults=Defaults(microbatch=microbatch, credits=credits or max(route) + 1, batched_tokens=batched_tokens),
        block_tokens=block_tokens,
        max_context_tokens=max_context_tokens,
        replicas=replicas,
    )


def _numbered(stage: StagePlan, number: int, route: Sequence[int]) -> StagePlan:
    layers = tuple(visit for visit, at in enumerate(route) if at == number)
    return msgspec.structs.replace(stage, name=f"stage-{number}", layers=layers)
