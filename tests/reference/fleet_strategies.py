"""Random small fleets with a workload. A kind and a number name one of them."""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request, Workload
from stageline.plan.schema import Plan, Serving
from tests.reference import plans, queueing, routing, strategies
from tests.reference.fleet_types import FIRST_TOKENS, LOADS, OFFLOADS, TRANSFERS, Fleet, Pool, Port, Tier
from tests.reference.strategies import Scenario

MODELS = ("one", "two")
ROLES = (
    ("prefill", "decode"),
    ("prefill", "decode"),
    ("prefill", "decode", "both"),
    ("prefill", "prefill", "decode"),
    ("prefill", "both"),
    ("both", "both"),
    ("decode", "both", "prefill", "decode"),
)


@dataclass(frozen=True, slots=True)
class FleetScenario:
    """Everything that decides a run: `like` gives the workload and the seed, its plan and settings count no more."""

    fleet: Fleet
    like: Scenario
    models: dict[int, str]

    def workload(self) -> Workload:
        """A workload that has not been used."""
        return self.like.workload()


def build(rnd: random.Random) -> FleetScenario:
    """Pools of every role, plans of every shape, both orders of a hand-over."""
    like = rnd.choice([strategies.build, strategies.build_sharing, strategies.build_leaving])(rnd)
    requests = [r for user in like.users for r in user]
    worst_tokens = max(r.prompt_tokens + r.max_output_tokens for r in requests)
    two_models = rnd.randint(0, 5) == 0 and not like.starts_ns
    pools = [random_pool(rnd, like, role, worst_tokens) for role in rnd.choice(ROLES)]
    models = {}
    if two_models:
        pools = [renamed(pool, rnd.choice(MODELS)) for pool in pools]
        models = {r.index: rnd.choice([*MODELS, *MODELS, *MODELS, "none"]) for r in requests if rnd.randint(0, 9)}
    return FleetScenario(random_fleet(rnd, like, tuple(pools)), like, models)


def random_fleet(rnd: random.Random, like: Scenario, pools: tuple[Pool, ...]) -> Fleet:
    """Any settings of a hand-over."""
    handover = rnd.choice(["source-first", "destination-first"])
    caches = any(pool.scheduling.prefix_cache for pool in pools)
    needy = () if caches else routing.NEED_CACHE
    return Fleet(
        pools=pools,
        balance=rnd.choice(strategies.without(routing.CHOICES, needy)),
        handover=handover,
        first_token=rnd.choice([FIRST_TOKENS[0], *FIRST_TOKENS]),
        transfer=rnd.choice(TRANSFERS) if caches else "all",
        streamed=handover == "destination-first" and rnd.randint(0, 1) == 1,
        conditional_tokens=rnd.choice([None, None, rnd.randint(0, 12)]),
        both_decodes="decode" not in {pool.role for pool in pools} or rnd.randint(0, 1) == 1,
    )


def random_pool(rnd: random.Random, like: Scenario, role: str, worst_tokens: int, *, pressing: int = 1) -> Pool:
    """A plan and settings of its own, pressed for KV in `pressing` of three cases; caches as those of the workload."""
    pressed = rnd.randint(0, 2) < pressing
    plan = plans.random_plan(rnd, worst_tokens, pressed=pressed)
    plan = msgspec.structs.replace(plan, replicas=rnd.choice([1, 1, 2]))
    if rnd.randint(0, 2) == 0:
        plan = plans.with_windows(rnd, plan)
    if rnd.randint(0, 4) == 0:
        plan = msgspec.structs.replace(plan, serving=Serving(engine="random", ranks=rnd.choice([2, 3])))
    scheduling = strategies.random_scheduling(rnd, len(plan.visits), pressed=pressed)
    plan, scheduling = strategies.with_limits(plan, scheduling, worst_tokens, rnd.randint(0, 2**32))
    if rnd.randint(0, 2) == 0:
        scheduling = drafting(rnd, scheduling)
    front_end_ns = like.scheduling.front_end_ns
    scheduling = msgspec.structs.replace(scheduling, front_end_ns=front_end_ns)
    if like.scheduling.prefix_cache:
        plan, scheduling = caching(rnd, plan, scheduling, like.scheduling.hash_block_tokens)
    return Pool(plan, scheduling, role, random_port(rnd))


def drafting(rnd: random.Random, scheduling: Scheduling) -> Scheduling:
    """With draft tokens."""
    return msgspec.structs.replace(
        scheduling,
        speculate=rnd.randint(1, 4),
        acceptance_ppm=rnd.choice([0, 300_000, 1_000_000]),
        draft_ns=rnd.choice([0, 1, 20]),
    )


def caching(rnd: random.Random, plan: Plan, scheduling: Scheduling, tokens: int) -> tuple[Plan, Scheduling]:
    """With a prefix cache, nine times in ten; its blocks are those of the workload, in whole blocks of the ledger."""
    block_tokens = rnd.choice([n for n in range(1, tokens + 1) if tokens % n == 0])
    more = -(-plan.block_tokens // block_tokens)
    stages = tuple(msgspec.structs.replace(s, kv_budget_bytes=more * s.kv_budget_bytes) for s in plan.stages)
    plan = msgspec.structs.replace(plan, block_tokens=block_tokens, stages=stages)
    if rnd.randint(0, 9) == 0:
        return plan, scheduling
    return plan, msgspec.structs.replace(
        scheduling,
        prefix_cache=True,
        hash_block_tokens=tokens,
        snapshot_tokens=tokens * rnd.choice([1, 2]),
        queueing=rnd.choice([scheduling.queueing, *queueing.NEED_CACHE]),
    )


def random_port(rnd: random.Random) -> Port:
    """From a nanosecond for all that there is to milliseconds."""
    speeds = (10**7, 10**8, 10**9, 3 * 10**9, 10**12)
    return Port(rnd.choice(speeds), rnd.choice(speeds), rnd.choice([0, 0, 3, 200]))


def renamed(pool: Pool, model: str) -> Pool:
    """The same with another model."""
    return dataclasses.replace(pool, plan=msgspec.structs.replace(pool.plan, model=model))


def build_leaving(rnd: random.Random) -> FleetScenario:
    """Half of the clients leave, at any time."""
    scenario = build(rnd)
    if scenario.like.starts_ns:
        return scenario
    leaving = tuple(left_at(rnd, r) for r in scenario.like.users[0] if rnd.randint(0, 1))
    return dataclasses.replace(scenario, like=dataclasses.replace(scenario.like, leaving=leaving))


def left_at(rnd: random.Random, request: Request) -> Cancellation:
    """Some while after its arrival."""
    wait_ns = rnd.choice([0, rnd.randint(1, 60), rnd.randint(1, 600), rnd.randint(1, 6000)])
    return Cancellation(index=request.index, at_ns=request.arrival_ns + wait_ns)


def build_crowded(rnd: random.Random) -> FleetScenario:
    """Reserved prompts, in small chunks, that have to make room for each other; some of their clients leave."""
    like = rnd.choice([strategies.build, strategies.build_sharing])(rnd)
    sizes = [strategies.request_sizes(rnd, 24, 4) for _ in range(rnd.randint(4, 14))]
    users = (tuple(msgspec.structs.replace(r, index=i, arrival_ns=i // 2) for i, r in enumerate(sizes)),)
    leaving = tuple(left_at(rnd, r) for r in users[0] if rnd.randint(0, 2) == 0)
    scheduling = msgspec.structs.replace(like.scheduling, prefix_cache=False, balance="round-robin")
    like = dataclasses.replace(like, users=users, leaving=leaving, starts_ns=(), think_ns=0, scheduling=scheduling)
    worst_tokens = max(r.prompt_tokens + r.max_output_tokens for r in sizes)
    pools = [random_pool(rnd, like, role, worst_tokens) for role in ("prefill", "decode")]
    growing = msgspec.structs.replace(pools[0].scheduling, kv="grow", batched_tokens=rnd.choice([3, 6]), credits=3)
    growing = msgspec.structs.replace(growing, batching="greedy", microbatch=4, max_running=None)
    pools[0] = dataclasses.replace(pools[0], scheduling=growing)
    plan = pools[1].plan
    roomy = tuple(msgspec.structs.replace(s, kv_budget_bytes=9 * s.kv_budget_bytes) for s in plan.stages)
    pools[1] = dataclasses.replace(pools[1], plan=msgspec.structs.replace(plan, stages=roomy))
    fleet = random_fleet(rnd, like, tuple(pools))
    fleet = dataclasses.replace(fleet, handover="destination-first", streamed=rnd.randint(0, 2) == 0)
    return FleetScenario(dataclasses.replace(fleet, conditional_tokens=None), like, {})


def build_tiers(rnd: random.Random) -> FleetScenario:
    """Caches that are too small for what they are asked for, tiers below them, and hand-overs in half of the fleets."""
    like = retold(rnd, strategies.build_sharing(rnd))
    worst_tokens = max(r.prompt_tokens + r.max_output_tokens for r in like.users[0])
    roles = rnd.choice([("both",), ("both",), ("both", "both"), ("prefill", "decode"), ("prefill", "both")])
    pools = []
    for role in roles:
        pool = random_pool(rnd, like, role, worst_tokens, pressing=2)
        pool = dataclasses.replace(pool, plan=whole_attention(pool.plan) if rnd.randint(0, 3) else pool.plan)
        block_bytes = 1 + sum(stage.kv_block_bytes + stage.state_bytes for stage in pool.plan.stages)
        host = random_tier(rnd, 80 * block_bytes) if pool.scheduling.prefix_cache and rnd.randint(0, 4) else None
        pools.append(dataclasses.replace(pool, host=host))
    fleet = dataclasses.replace(
        random_fleet(rnd, like, tuple(pools)),
        store=random_tier(rnd, 3000) if rnd.randint(0, 1) else None,
        offload=rnd.choice(OFFLOADS),
        load=rnd.choice(["always", "always", *LOADS]),
        sees_host=rnd.randint(0, 1) == 1,
    )
    return FleetScenario(fleet, like, {})


def whole_attention(plan: Plan) -> Plan:
    """The same without states and windows, in which most hits would end."""
    stages = tuple(msgspec.structs.replace(s, state_bytes=0, kv_windows=msgspec.UNSET) for s in plan.stages)
    return msgspec.structs.replace(plan, stages=stages)


def retold(rnd: random.Random, like: Scenario) -> Scenario:
    """Many requests whose prompts come back after others; one client in six leaves."""
    tokens = rnd.choice([1, 2, 4])
    families = [[rnd.randint(1, 3) for _ in range(30)] for _ in range(rnd.randint(2, 5))]
    sizes = [strategies.request_sizes(rnd, 20, 4) for _ in range(rnd.randint(8, 24))]
    every_ns = rnd.choice([1, 50, 300, 1000])
    requests = tuple(
        strategies.with_identities(rnd, msgspec.structs.replace(r, index=i, arrival_ns=i * every_ns), tokens, families)
        for i, r in enumerate(sizes)
    )
    leaving = tuple(left_at(rnd, r) for r in requests if rnd.randint(0, 5) == 0)
    scheduling = msgspec.structs.replace(like.scheduling, hash_block_tokens=tokens, balance="round-robin")
    return dataclasses.replace(
        like, users=(requests,), starts_ns=(), think_ns=0, leaving=leaving, scheduling=scheduling
    )


def random_tier(rnd: random.Random, capacity_bytes: int) -> Tier:
    """From one that holds next to nothing to one that holds all; slow, or fast enough to be worth it."""
    capacity_bytes = rnd.choice([capacity_bytes, rnd.randint(0, capacity_bytes)])
    return Tier(
        capacity_bytes,
        rnd.choice([10**8, 10**9, 10**10]),
        rnd.choice([10**7, 10**9, 10**11]),
        rnd.choice([0, 0, 2, 40]),
    )


KINDS: dict[str, Callable[[random.Random], FleetScenario]] = {
    "handover": build,
    "handover-leaving": build_leaving,
    "handover-crowded": build_crowded,
    "tiers": build_tiers,
}


def numbered(kind: str, number: int) -> FleetScenario:
    """The scenario of this name: always the same one, until this module changes."""
    return KINDS[kind](random.Random(number))
