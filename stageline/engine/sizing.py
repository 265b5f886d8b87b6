"""How many sequences a microbatch may hold (rule 5)."""

from abc import ABC, abstractmethod

from stageline.cost.totals import BatchTotals
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling
from stageline.engine.speculation import expected_tokens
from stageline.errors import UsageError


class Sizing(ABC):
    """One batching policy, one class."""

    def __init__(self, route: Route, credits_: int, largest: int) -> None:
        self.route, self.credits, self.largest = route, credits_, largest

    @abstractmethod
    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """Largest number of members now; `context_tokens` is the mean KV length of the running sequences. >= 1."""


class Balanced(Sizing):
    """Spread what there is evenly over the credits: clamp(ceil((running + waiting) / credits), 1, largest)."""

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        return max(1, min(self.largest, -(-(running + waiting) // self.credits)))


class Greedy(Sizing):
    """As many as are there."""

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        return self.largest


class Slo(Sizing):
    """The largest that keeps TPOT under a target, by the closed form of a full pipeline.

    With decode microbatches of m sequences at the mean context, a token takes max(L(m), credits * T(m)): its trip, or
    its turn behind all others at the busiest stage. With speculation a step carries K drafts per sequence, takes their
    drafting longer, and may take the target times its mean yield. The context is rounded up to a multiple of 256 tokens
    so that the answer is computed once for each; when even one sequence misses the target the limit is 1.
    """

    CONTEXT_STEP = 256

    def __init__(self, route: Route, credits_: int, largest: int, tpot_ns: int, scheduling: Scheduling) -> None:
        super().__init__(route, credits_, largest)
        self._drafts = scheduling.speculate
        self._drafting_ns = scheduling.speculate * scheduling.draft_ns
        tokens, of = expected_tokens(scheduling.speculate, scheduling.acceptance_ppm)
        self._step_ns = tpot_ns * tokens // of  # what a step may take, rounded down
        self._known: dict[int, int] = {}

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        step = -(-context_tokens // self.CONTEXT_STEP)
        if step not in self._known:
            low, high = 1, self.largest
            while low < high:
                middle = (low + high + 1) // 2
                if self._step(middle, max(1, step * self.CONTEXT_STEP)) <= self._step_ns:
                    low = middle
                else:
                    high = middle - 1
            self._known[step] = low
        return self._known[step]

    def _step(self, members: int, context_tokens: int) -> int:
        drafts, tokens = self._drafts, members * (1 + self._drafts)
        kv = members * (context_tokens + drafts)
        pairs = tokens * context_tokens + members * (drafts * (drafts + 1) // 2)
        totals = BatchTotals(members, tokens, kv, pairs, sampled=tokens)
        times = [m.service_ns(totals) for m in self.route.models]
        per_stage = [0] * len(self.route.plan.stages)
        for visit, ns in enumerate(times):
            per_stage[self.route.stage_of[visit]] += ns
        per_stage[self.route.stage_of[0]] += self._drafting_ns
        hops = (self.route.link(v, replica=0, seed=0) for v in range(len(times) + 1))
        trip = self._drafting_ns + sum(times) + sum(h.latency_ns + h.serialisation_ns(tokens) for h in hops)
        return max(trip, self.credits * max(per_stage))


def make_sizing(scheduling: Scheduling, route: Route, credits_: int, largest: int) -> Sizing:
    """The policy of the settings. Raises UsageError when `slo` has no target, and for a name that there is not."""
    name = scheduling.batching
    if name == "slo":
        if scheduling.tpot_slo_ns is None:
            raise UsageError("--batching slo: no target; give one with --slo tpot=50ms")
        return Slo(route, credits_, largest, scheduling.tpot_slo_ns, scheduling)
    policies: dict[str, type[Sizing]] = {"balanced": Balanced, "greedy": Greedy}
    if name not in policies:
        raise UsageError(f"batching policy {name!r}: there is none of this name; known: {', '.join(policies)}, slo")
    return policies[name](route, credits_, largest)
