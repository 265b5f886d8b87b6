"""How many sequences a microbatch may hold (rule 5)."""

from stageline.cost.totals import BatchTotals
from stageline.engine.policies.batching_policy import BatchingPolicy
from stageline.engine.policies.engine_batching import (
    DecodeCap,
    GlobalCap,
    Natural,
    NaturalAsync,
    SlotBatches,
    TokenBalanced,
    VirtualEngineBatches,
)
from stageline.engine.policies.registry import Registry
from stageline.engine.route import Route
from stageline.engine.settings import Scheduling
from stageline.engine.speculation import expected_tokens


class Balanced(BatchingPolicy):
    """Spread the sequences evenly over the credits: clamp(ceil((running + waiting) / credits), 1, largest)."""

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        return max(1, min(self.largest, -(-(running + waiting) // self.credits)))


class Greedy(BatchingPolicy):
    """As many as there are."""

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        return self.largest


class TpotTarget(BatchingPolicy):
    """The largest that keeps TPOT under a target, by the closed form of a full pipeline.

    With decode microbatches of m sequences at the mean context, a token takes max(L(m), credits * T(m)): its trip, or
    its turn behind all others at the busiest stage. With speculation a step carries K drafts per sequence, takes their
    drafting longer, and may take the target times its mean yield. The context is rounded up to a multiple of 256 tokens
    so that the answer is computed once for each; when even one sequence misses the target the limit is 1.
    """

    CONTEXT_STEP = 256
    needs_tpot_slo = True

    def __init__(self, route: Route, credits_: int, largest: int, scheduling: Scheduling) -> None:
        super().__init__(route, credits_, largest, scheduling)
        self._drafts = scheduling.speculate
        self._drafting_ns = scheduling.speculate * scheduling.draft_ns
        tokens, of = expected_tokens(scheduling.speculate, scheduling.acceptance_ppm)
        self._target_ns = (scheduling.tpot_slo_ns or 0) * tokens // of  # what a step may take, rounded down
        self._limits: dict[int, int] = {}  # by context in steps

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        step = -(-context_tokens // self.CONTEXT_STEP)
        if step not in self._limits:
            low, high = 1, self.largest
            while low < high:
                middle = (low + high + 1) // 2
                if self._time_ns(middle, max(1, step * self.CONTEXT_STEP)) <= self._target_ns:
                    low = middle
                else:
                    high = middle - 1
            self._limits[step] = low
        return self._limits[step]

    def _time_ns(self, members: int, context_tokens: int) -> int:
        """What a step takes: the larger of its trip and its turn."""
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


BATCHING = Registry[BatchingPolicy](
    "batching",
    {
        "balanced": Balanced,
        "greedy": Greedy,
        "slo": TpotTarget,
        "natural": Natural,
        "natural-async": NaturalAsync,
        "global-cap": GlobalCap,
        "decode-cap": DecodeCap,
        "token-balanced": TokenBalanced,
        "slots": SlotBatches,
        "virtual-engines": VirtualEngineBatches,
    },
)
