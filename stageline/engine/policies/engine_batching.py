"""How serving engines form microbatches under pipeline parallelism (rule 5, microbatches of serving engines)."""

from stageline.engine.policies.batching_policy import BatchingPolicy, Load, Quota
from stageline.engine.policies.grouping import Cadence, Grouping, OneForAll, Turns, VirtualEngines


class Natural(BatchingPolicy):
    """vLLM V1 without asynchronous scheduling: each `schedule()` takes every request that is not in flight.

    Up to `credits` batches are in flight. Costs: groups are whatever the admissions made them. A burst, or a drain
    after a prefill, packs all into one batch and leaves the other stages idle.
    Sources: vLLM `v1/engine/core.py`, `step_with_batch_queue`; vllm#14213, #41682; RBLN-SW/vllm-rbln#243.
    """

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """As many as there are."""
        return self.largest

    def grouping(self, max_running: int) -> Grouping:
        """See BatchingPolicy."""
        return OneForAll(self.credits, self.largest, max_running)


class TokenBalanced(Natural):
    """Batches of equal tokens: the budget of a batch is the token load of all requests over the pipeline size.

    Costs: prompts go in smaller chunks, so more batches carry prefill and weights are read more often.
    Source: vllm#19873 (closed): phase one collects all that can be scheduled, phase two drains it in batches of a
    budget that `_estimate_token_budget` takes from load and pipeline size. Here whoever is ready is what phase one
    collects.
    """

    def quota(self, load: Load, batched_tokens: int) -> Quota:
        """See BatchingPolicy."""
        tokens = (load.running - load.partial) * (1 + self.scheduling.speculate) + load.prefill_tokens
        budget = max(1, min(batched_tokens, -(-tokens // self.credits)))
        return Quota(self.largest, self.largest, budget)


class NaturalAsync(Natural):
    """vLLM V1's Model Runner V2 with asynchronous scheduling: a decode is eligible again after `credits` steps.

    Costs: groups such as 7/13/2/10 of 32 persist, since nothing moves a request to another step; the largest group sets
    the time of the round. They mix only as requests end: the one that takes the place ends its prompt in another step.
    Sources: vLLM `v1/core/sched/async_scheduler.py`, `next_decode_eligible_step`; `config/vllm.py`,
    `max_concurrent_batches` (one more than stages, so a step is scheduled before the one it waits for is back);
    `v1/engine/core.py`, `step_with_batch_queue` (an empty batch takes a slot and does not block); vllm#50853, #57433.
    """

    def grouping(self, max_running: int) -> Grouping:
        """See BatchingPolicy."""
        return Cadence(self.credits, self.largest, max_running)


class GlobalCap(NaturalAsync):
    """As `natural-async`, and no step holds more than its share: ceil(unfinished requests / credits) of all scheduled.

    Costs: prefill and admissions count against the share, so prompts wait behind full decode groups.
    Source: vllm#50410.
    """

    def limit(self, running: int, waiting: int, context_tokens: int) -> int:
        """See the class."""
        return max(1, min(self.largest, -(-(running + waiting) // self.credits)))


class DecodeCap(NaturalAsync):
    """As `natural-async`, with at most ceil(max_num_seqs / credits) decode steps per step; prefill is uncapped.

    Costs: a decode over the cap waits one step or more. With few requests running the cap never binds.
    Source: vllm#57433.
    """

    def quota(self, load: Load, batched_tokens: int) -> Quota:
        """See BatchingPolicy."""
        sequences = self.scheduling.max_running or self.largest
        return Quota(self.largest, -(-sequences // self.credits), batched_tokens)


class SlotBatches(Natural):
    """SGLang: every pipeline slot has its own running batch of at most `largest` (`--pp-max-micro-batch-size`).

    Costs: the first slot with room takes all that waits, so below the limit slots stay uneven or empty.
    Source: SGLang `managers/scheduler_pp_mixin.py`, `event_loop_pp`. Prefill and decode share batches here, as with
    `--enable-mixed-chunk`.
    """

    def grouping(self, max_running: int) -> Grouping:
        """See BatchingPolicy."""
        return Turns(self.credits, self.largest, max_running)


class VirtualEngineBatches(Natural):
    """vLLM V0: one scheduler per slot ("virtual engine"), each with its own queue and its own max_num_seqs.

    Costs: nobody moves to another engine; when one runs empty its slot stays empty until the next arrival.
    Source: vllm#4412; a request goes to the scheduler with the fewest unfinished ones. V0 splits the KV blocks evenly
    over the engines; here all share them.
    """

    def grouping(self, max_running: int) -> Grouping:
        """See BatchingPolicy."""
        return VirtualEngines(self.credits, self.largest, max_running)
