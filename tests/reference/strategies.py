"""Random small scenarios: a plan, a scheduling and a workload. A kind and a number name one of them."""

import dataclasses
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from stageline.engine.settings import Scheduling
from stageline.engine.types import Cancellation, Request, Workload
from stageline.plan.schema import Plan, Serving
from stageline.testing import ListWorkload, UsersWorkload
from tests.reference import batching, kv, plans, queueing, routing

LONGEST = ((1, 1), (40, 10), (5, 30), (10, 10))


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that decides a run. `workload()` is new at every call."""

    plan: Plan
    scheduling: Scheduling
    users: tuple[tuple[Request, ...], ...]  # one user: an open workload with the arrivals written in its requests
    starts_ns: tuple[int, ...]  # empty: an open workload
    think_ns: int
    seed: int
    leaving: tuple[Cancellation, ...] = ()  # clients of an open workload that leave

    def workload(self) -> Workload:
        """A workload that has not been used."""
        if self.starts_ns:
            return UsersWorkload(self.users, self.starts_ns, self.think_ns)
        return ListWorkload(self.events())

    def events(self) -> list[Request | Cancellation]:
        """Of an open workload: who arrives and who leaves, in the order of time; equal times: arrivals first."""
        events = [*self.users[0], *self.leaving]
        return sorted(events, key=lambda e: e.at_ns if isinstance(e, Cancellation) else e.arrival_ns)


def build(rnd: random.Random, longest_pairs: Sequence[tuple[int, int]] = LONGEST) -> Scenario:
    """One scenario; every kind of it has a fair chance, and one in three is pressed for KV.

    `longest_pairs`: prompt and output of the longest request, where it is not pressed.
    """
    pressed = rnd.randint(0, 2) == 0
    longest = (5, 30) if pressed else rnd.choice(longest_pairs)
    sizes = [request_sizes(rnd, *longest) for _ in range(rnd.randint(1, 16))]
    worst_tokens = max(r.prompt_tokens + r.max_output_tokens for r in sizes) - rnd.randint(0, 1)
    plan = plans.random_plan(rnd, worst_tokens, pressed=pressed)
    scheduling = random_scheduling(rnd, len(plan.visits), pressed=pressed)
    seed = rnd.randint(0, 2**32)
    plan, scheduling = with_limits(plan, scheduling, worst_tokens, seed)
    scenario = build_workload(rnd, plan, scheduling, sizes, seed)
    return speculating(rnd, scenario) if rnd.randint(0, 2) == 0 else scenario


def build_workload(rnd: random.Random, plan: Plan, scheduling: Scheduling, sizes: list[Request], seed: int) -> Scenario:
    """Open, or users who wait for their answers."""
    if rnd.randint(0, 2):
        return Scenario(plan, scheduling, (open_workload(rnd, sizes),), (), 0, seed)
    users = rnd.randint(1, 6)
    shares = tuple(tuple(sizes[u::users]) for u in range(users))
    starts_ns = tuple(rnd.choice([0, rnd.randint(0, 300)]) for _ in range(users))
    return Scenario(plan, scheduling, shares, starts_ns, rnd.choice([0, 0, 1, rnd.randint(0, 500)]), seed)


def speculating(rnd: random.Random, scenario: Scenario) -> Scenario:
    """The same with draft tokens: none of them right, some, or all."""
    scheduling = msgspec.structs.replace(
        scenario.scheduling,
        speculate=rnd.randint(1, 5),
        acceptance_ppm=rnd.choice([0, 300_000, 700_000, 1_000_000]),
        draft_ns=rnd.choice([0, 0, 1, rnd.randint(0, 40)]),
    )
    return dataclasses.replace(scenario, scheduling=scheduling)


def build_speculating(rnd: random.Random) -> Scenario:
    """One scenario with draft tokens, every other one with a prefix cache too."""
    return speculating(rnd, rnd.choice([build, build_sharing])(rnd))


def build_windows(rnd: random.Random) -> Scenario:
    """One scenario on a plan with sliding windows; any policy, often pressed for KV."""
    scenario = build(rnd)
    if rnd.randint(0, 2) == 0:
        scenario = speculating(rnd, scenario)
    return dataclasses.replace(scenario, plan=plans.with_windows(rnd, scenario.plan))


def build_cached_windows(rnd: random.Random) -> Scenario:
    """One scenario with a prefix cache on a plan with sliding windows, every third one with draft tokens too."""
    scenario = build_sharing(rnd)
    if rnd.randint(0, 2) == 0:
        scenario = speculating(rnd, scenario)
    return dataclasses.replace(scenario, plan=plans.with_windows(rnd, scenario.plan))


def build_ranks(rnd: random.Random) -> Scenario:
    """One scenario of any other kind on data-parallel ranks, with prompts that are longer than a rank's budget."""
    scenario = rnd.choice([build, build_sharing, build_windows, build_speculating])(rnd)
    ranks = rnd.choice([1, 2, 2, 3, 4, rnd.randint(5, 20)])
    plan = msgspec.structs.replace(scenario.plan, serving=Serving(engine="random", ranks=ranks))
    scheduling = scenario.scheduling
    if rnd.randint(0, 2):
        scheduling = msgspec.structs.replace(scheduling, batched_tokens=rnd.choice([2, 5, 16, 30]))
    return dataclasses.replace(scenario, plan=plan, scheduling=scheduling)


def build_front_end(rnd: random.Random) -> Scenario:
    """One scenario of any other kind, whose clients stay, behind a front end."""
    return fronted(rnd, rnd.choice([build, build_sharing, build_windows, build_speculating, build_ranks])(rnd))


def build_leaving_front_end(rnd: random.Random) -> Scenario:
    """One scenario whose clients may leave, also while their requests are still in the front end."""
    return fronted(rnd, build_leaving(rnd))


def fronted(rnd: random.Random, scenario: Scenario) -> Scenario:
    """The same with a front end that all requests pass before the router sees them."""
    front_end_ns = rnd.choice([1, rnd.randint(1, 60), rnd.randint(1, 600), rnd.randint(1, 6000)])
    scheduling = msgspec.structs.replace(scenario.scheduling, front_end_ns=front_end_ns)
    return dataclasses.replace(scenario, scheduling=scheduling)


def build_sharing(rnd: random.Random) -> Scenario:
    """One scenario with a prefix cache: prompts from a few families that part somewhere."""
    scenario = build(rnd, [(40, 10), (40, 3), (15, 10)])
    tokens = scenario.plan.block_tokens * rnd.choice([1, 1, 2])
    families = [[rnd.randint(1, 3) for _ in range(60)] for _ in range(rnd.randint(1, 3))]
    users = tuple(tuple(with_identities(rnd, request, tokens, families) for request in u) for u in scenario.users)
    scheduling = msgspec.structs.replace(
        scenario.scheduling,
        prefix_cache=True,
        hash_block_tokens=tokens,
        snapshot_tokens=tokens * rnd.choice([1, 1, 2, 3]),
        balance=rnd.choice([*2 * routing.NEED_CACHE, *without(routing.CHOICES, routing.NEED_CACHE)]),
        queueing=rnd.choice([scenario.scheduling.queueing, *queueing.NEED_CACHE]),
    )
    scenario = dataclasses.replace(scenario, scheduling=scheduling, users=users)
    return crowded(rnd, scenario) if scheduling.queueing in queueing.NEED_CACHE and rnd.randint(0, 3) else scenario


def crowded(rnd: random.Random, scenario: Scenario) -> Scenario:
    """The same on one replica with more memory, in microbatches of a few, and all requests come at about once.

    So many wait for their turn, and much of their prompts is cached.
    """
    scheduling = msgspec.structs.replace(
        scenario.scheduling,
        batching="greedy",
        credits=rnd.randint(1, 2),
        microbatch=rnd.randint(2, 4),
        max_running=None,
        batched_tokens=rnd.choice([16, 64]),
        snapshot_tokens=scenario.scheduling.hash_block_tokens,
    )
    more = rnd.choice([1, 4])
    stages = tuple(msgspec.structs.replace(s, kv_budget_bytes=more * s.kv_budget_bytes) for s in scenario.plan.stages)
    plan = msgspec.structs.replace(scenario.plan, replicas=1, stages=stages)
    requests = sorted((r for user in scenario.users for r in user), key=lambda r: r.index)
    users = (tuple(msgspec.structs.replace(r, index=i, arrival_ns=i // 3) for i, r in enumerate(requests)),)
    return dataclasses.replace(scenario, plan=plan, scheduling=scheduling, users=users, starts_ns=(), think_ns=0)


def with_identities(rnd: random.Random, request: Request, tokens: int, families: list[list[int]]) -> Request:
    """Some blocks of a family, then some of its own; sometimes no identities at the end, or none at all.

    The answer of every other request goes on in the family, as if the next turn's prompt repeated it.
    """
    blocks = -(-request.prompt_tokens // tokens)
    family = rnd.choice(families)
    shared = family[: rnd.choice([blocks, rnd.randint(0, blocks)])]
    own = [rnd.randint(100, 10**6) for _ in range(blocks - len(shared))]
    answer = family[request.prompt_tokens // tokens :][: rnd.choice([0, 1, 60])] if rnd.randint(0, 1) else []
    ids = (shared + own)[: rnd.choice([blocks, blocks, blocks // 2])]
    return msgspec.structs.replace(request, hash_ids=tuple(ids), output_hash_ids=tuple(answer))


def request_sizes(rnd: random.Random, longest_prompt: int, longest_output: int) -> Request:
    """A request whose index and arrival are still to be given."""
    output_tokens = rnd.randint(1, longest_output)
    return Request(
        index=0,
        arrival_ns=0,
        prompt_tokens=rnd.randint(1, longest_prompt),
        output_tokens=output_tokens,
        max_output_tokens=output_tokens + rnd.choice([0, 0, rnd.randint(0, 6)]),
        priority=rnd.randint(0, 2),
    )


def with_limits(plan: Plan, scheduling: Scheduling, worst_tokens: int, seed: int) -> tuple[Plan, Scheduling]:
    """One in four with a context that the longest requests may exceed, one in four with a TPOT to keep."""
    kind, size = seed % 4, seed // 4
    if kind == 1:
        return msgspec.structs.replace(plan, max_context_tokens=max(1, worst_tokens + 2 - size % 8)), scheduling
    if kind == 2:
        return plan, msgspec.structs.replace(scheduling, batching="slo", tpot_slo_ns=1 + size % 6000)
    return plan, scheduling


def open_workload(rnd: random.Random, sizes: list[Request]) -> tuple[Request, ...]:
    """Bursts at equal times, scattered arrivals, and gaps long enough for the system to run empty."""
    span_ns = rnd.choice([0, 300, 3000, 30000])
    origin_ns = rnd.choice([0, 0, 1000])
    times = [origin_ns + rnd.choice([0, rnd.randint(0, span_ns), span_ns // 10 * rnd.randint(0, 10)]) for _ in sizes]
    return tuple(
        Request(
            index=i,
            arrival_ns=time_ns,
            prompt_tokens=size.prompt_tokens,
            output_tokens=size.output_tokens,
            max_output_tokens=size.max_output_tokens,
            priority=size.priority,
        )
        for i, (time_ns, size) in enumerate(zip(sorted(times), sizes, strict=True))
    )


def random_scheduling(rnd: random.Random, visits: int, *, pressed: bool) -> Scheduling:
    """Every policy that needs no other setting; None leaves the plan's default."""
    return Scheduling(
        microbatch=rnd.choice([None, rnd.randint(1, 6)]),
        credits=rnd.choice([1, 2, 3] if pressed else [None, 1, 2, rnd.randint(1, 2 * visits + 1)]),
        batched_tokens=rnd.choice([None, 1, 4, 16, 64]),
        max_running=rnd.choice([None, None, rnd.randint(1, 4)]),
        batching=rnd.choice(without(batching.LIMITS, batching.NEED_TPOT)),
        queueing=rnd.choice(without(queueing.KEYS, queueing.NEED_CACHE)),
        kv="grow" if pressed else rnd.choice(list(kv.ADMISSION_TOKENS)),
        balance=rnd.choice(without(routing.CHOICES, routing.NEED_CACHE)),
        overhead_ns=rnd.choice([0, 0, 1, rnd.randint(0, 40)]),
    )


def without(policies: Iterable[str], needy: Collection[str]) -> list[str]:
    """The policies that can do without another setting."""
    return [name for name in policies if name not in needy]


def build_leaving(rnd: random.Random) -> Scenario:
    """One scenario with a prefix cache whose clients may leave at any time after their arrival."""
    scenario = build_sharing(rnd)
    if scenario.starts_ns:
        return scenario
    leaving = []
    for r in scenario.users[0]:
        if rnd.randint(0, 1):
            at_ns = r.arrival_ns + rnd.choice([0, rnd.randint(1, 200), rnd.randint(1, 4000)])
            leaving.append(Cancellation(index=r.index, at_ns=at_ns))
    return dataclasses.replace(scenario, leaving=tuple(leaving))


KINDS: dict[str, Callable[[random.Random], Scenario]] = {
    "plain": build,
    "sharing": build_sharing,
    "windows": build_windows,
    "cached-windows": build_cached_windows,
    "speculating": build_speculating,
    "leaving": build_leaving,
    "ranks": build_ranks,
    "front-end": build_front_end,
    "leaving-front-end": build_leaving_front_end,
}


def numbered(kind: str, number: int) -> Scenario:
    """The scenario of this name: always the same one, until this module changes."""
    return KINDS[kind](random.Random(number))
