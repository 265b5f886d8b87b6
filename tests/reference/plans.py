"""Small plans: random ones, and regular ones for the closed forms."""

import random
from collections.abc import Sequence

import msgspec

from stageline.cost.entries import Affine
from stageline.plan.schema import Defaults, KvWindow, LinkPlan, Plan, StagePlan, Visit
from stageline.testing import uniform_plan

GB_PER_S = 10**9


def random_plan(rnd: random.Random, worst_tokens: int, *, pressed: bool) -> Plan:
    """1-9 visits, revisits of any kind, short and zero times, KV budgets around one request of `worst_tokens`.

    `pressed`: small blocks and a budget of little more than one request, so that sequences have to make room.
    """
    stage_of = random_route(rnd)
    costs = tuple(random_cost(rnd) for _ in range(rnd.randint(1, 3)))
    jitter_ns = rnd.choice([0, 0, 1, 25])
    block_tokens = rnd.choice([1, 2] if pressed else [1, 2, 4, 16])
    tightness = rnd.choice([10, 13, 18] if pressed else [5, 10, 13, 25, 100])  # tenths of the largest request
    return Plan(
        model="random",
        device="random",
        stages=tuple(
            random_stage(rnd, [v for v, t in enumerate(stage_of) if t == s], block_tokens, worst_tokens, tightness)
            for s in range(max(stage_of) + 1)
        ),
        visits=tuple(random_visit(rnd, v, s, costs) for v, s in enumerate(stage_of)),
        links=tuple(random_link(rnd, jitter_ns) for _ in range(len(stage_of) + 1)),
        costs=costs,
        defaults=Defaults(
            microbatch=rnd.randint(1, 6),
            credits=rnd.choice([1, len(stage_of), rnd.randint(1, 2 * len(stage_of) + 1)]),
            batched_tokens=rnd.choice([1, 4, 16, 64]),
        ),
        block_tokens=block_tokens,
        replicas=rnd.choice([1, 1, 2, 3]),
    )


def random_route(rnd: random.Random) -> list[int]:
    """The stage of every visit; every stage is visited, numbered by any order."""
    visits = rnd.randint(1, 9)
    stages = rnd.randint((visits + 1) // 2, visits)
    stage_of = [v if v < stages else rnd.randrange(stages) for v in range(visits)]
    if rnd.randint(0, 1):
        rnd.shuffle(stage_of)
    if rnd.randint(0, 4) == 0:
        stage_of[-1] = stage_of[0]
    names = sorted(set(stage_of))
    return [names.index(s) for s in stage_of]


def random_cost(rnd: random.Random) -> Affine:
    """At least 1 ns for any microbatch: that has at least one new token."""
    token_ns = rnd.choice([0, 1, 3])
    return Affine(
        base_ns=rnd.randint(0 if token_ns else 1, rnd.choice([2, 60])),
        token_ns=token_ns,
        kv_token_ns=rnd.choice([0, 0, 1]),
        sampled_ns=rnd.choice([0, 0, rnd.randint(1, 9)]),
        imbalance_ns=rnd.choice([0, 1, 30]),
    )


def random_visit(rnd: random.Random, visit: int, stage: int, costs: tuple[Affine, ...]) -> Visit:
    """One layer per visit; the lower bound of its time is sometimes tight and sometimes not."""
    cost = rnd.randrange(len(costs))
    tight_ns = costs[cost].base_ns + costs[cost].token_ns + costs[cost].kv_token_ns
    return Visit(stage=stage, layers=(visit,), cost=cost, min_service_ns=rnd.choice([tight_ns, 1]))


def random_link(rnd: random.Random, jitter_ns: int) -> LinkPlan:
    """Zero latency and zero bytes are among them; a token takes a few nanoseconds on the wire."""
    return LinkPlan(
        latency_ns=rnd.choice([0, rnd.randint(0, 20), rnd.randint(0, 200)]),
        bytes_per_s=rnd.choice([700_000_000, GB_PER_S, 3 * GB_PER_S]),
        bytes_per_token=rnd.choice([0, 1, 4]),
        jitter_ns=jitter_ns,
    )


def random_stage(
    rnd: random.Random, layers: list[int], block_tokens: int, worst_tokens: int, tightness: int
) -> StagePlan:
    """A stage with no KV at all, with blocks, with a state, or with both."""
    block_bytes = rnd.choice([0, 1, rnd.randint(1, 5)])
    state_bytes = rnd.choice([0, rnd.randint(1, 20)])
    worst_bytes = -(-worst_tokens // block_tokens) * block_bytes + state_bytes
    return StagePlan(
        name=f"stage-{layers[0]}",
        layers=tuple(layers),
        kv_budget_bytes=worst_bytes * tightness // 10,
        kv_block_bytes=block_bytes,
        state_bytes=state_bytes,
    )


def with_windows(rnd: random.Random, plan: Plan) -> Plan:
    """Some stages get layers with sliding windows, and room for what those keep of about one sequence."""

    def stage(old: StagePlan) -> StagePlan:
        most = sorted(rnd.sample(range(1, 7), rnd.choice([0, 1, 1, 2])))
        windows = tuple(KvWindow(most_blocks=n, block_bytes=rnd.randint(1, 5)) for n in most)
        if not windows:
            return old
        room = sum(w.most_blocks * w.block_bytes for w in windows) * rnd.choice([9, 10, 15, 40]) // 10
        return msgspec.structs.replace(old, kv_windows=windows, kv_budget_bytes=old.kv_budget_bytes + room)

    return msgspec.structs.replace(plan, stages=tuple(stage(s) for s in plan.stages))


def pipeline(
    visit_ns: Sequence[int],
    *,
    stage_of: Sequence[int] = (),
    latency_ns: int = 0,
    microbatch: int = 1,
    credits_: int = 1,
) -> Plan:
    """A plan with constant visit times, equal hops, no bytes and KV without end."""
    return uniform_plan(
        route=stage_of, service_ns=visit_ns, latency_ns=latency_ns, microbatch=microbatch, credits=credits_
    )
