"""Model FLOPs utilisation and bandwidth utilisation of a run, per stage and in total.

MFU = useful FLOPs / (peak x window): prompt tokens found in the prefix cache and work done again after a preemption do
not count, nor do rejected drafts. Bandwidth: weights once per service, KV of the context once per decode step, over
bandwidth x window.
"""

from collections.abc import Sequence

import msgspec

from stageline.cost.bounds import bounds_ns
from stageline.cost.totals import BatchTotals
from stageline.engine.types import RequestRecord, StageRecord
from stageline.plan.schema import Plan, StagePlan, StageWork
from stageline.report.speculation import SpeculationSummary
from stageline.units import NS_PER_S


class StageUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """One stage, its replicas together; shares of what its devices could have done in the window."""

    stage: int
    mfu: float
    bandwidth: float
    bound_by: dict[str, float] = {}  # shares of the service time of the run's mean microbatch


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """Of all devices, and by stage."""

    mfu: float
    bandwidth: float
    stages: tuple[StageUtilisation, ...]


class WorkDone:
    """The work that requests needed, added up."""

    def __init__(self) -> None:
        self.tokens = self.pairs = self.rows = self.kv_read_tokens = self.decoded_tokens = self.prompts = 0

    def prefill(self, record: RequestRecord) -> None:
        """The part of a request that was handed over after its prompt."""
        self.request(msgspec.structs.replace(record, output_tokens=1))

    def decode(self, record: RequestRecord, steps: int) -> None:
        """The other part: so many decode steps, the last of which gives the last token."""
        first = record.prompt_tokens + record.output_tokens - steps  # tokens read by the first of them
        self.tokens += steps
        self.rows += steps
        self.decoded_tokens += steps
        read = steps * first + steps * (steps - 1) // 2
        self.pairs += read
        self.kv_read_tokens += read

    def request(self, record: RequestRecord) -> None:
        """Tokens cached..prompt + output - 2 went through the layers, each against all before it and itself."""
        out = record.output_tokens
        if not out:
            return
        cached, end = record.cached_tokens or 0, record.prompt_tokens + out - 1
        self.tokens += end - cached
        self.pairs += (end * (end + 1) - cached * (cached + 1)) // 2
        self.prompts += 1
        self.rows += out
        self.decoded_tokens += out - 1
        self.kv_read_tokens += (out - 1) * record.prompt_tokens + out * (out - 1) // 2


def utilisation(
    plan: Plan, stages: Sequence[StageRecord], done: WorkDone, speculation: SpeculationSummary | None = None
) -> Utilisation | None:
    """None if the plan does not say what work its stages do, or nothing ran."""
    rows, flops, bytes_moved, peak_flops, peak_bytes = [], 0.0, 0.0, 0.0, 0.0
    for index, stage in enumerate(plan.stages):
        records = [record for record in stages if record.stage == index]
        seconds = sum(record.window_ns for record in records) / NS_PER_S
        work = stage.work
        if work is None or not seconds:
            return None
        steps = sum(r.microbatches / r.visits for r in records if r.visits)
        computed = work.token_flops * done.tokens + work.pair_flops * done.pairs + work.row_flops * done.rows
        for limit in work.read_limits or ():
            computed += limit.pair_flops * min(done.pairs, done.tokens * limit.read_tokens)
        moved = _bytes(plan, stage, work, steps, done, speculation)
        peak, rate = work.flops_per_s * seconds, work.bytes_per_s * seconds
        bound_by = bound_shares(plan, index, mean_microbatch(done, steps))
        rows.append(StageUtilisation(stage=index, mfu=computed / peak, bandwidth=moved / rate, bound_by=bound_by))
        flops, bytes_moved = flops + computed, bytes_moved + moved
        peak_flops, peak_bytes = peak_flops + peak, peak_bytes + rate
    return Utilisation(mfu=flops / peak_flops, bandwidth=bytes_moved / peak_bytes, stages=tuple(rows))


def mean_microbatch(done: WorkDone, steps: float) -> BatchTotals:
    """What requests needed, spread over the steps; a phase that ran has at least one sequence in it."""

    def mean(total: int) -> int:
        return max(round(total / steps), 1) if steps and total else 0

    prefilled = done.tokens - done.decoded_tokens
    return BatchTotals(
        decode_sequences=mean(done.decoded_tokens),
        decode_tokens=mean(done.decoded_tokens),
        decode_kv_tokens=mean(done.kv_read_tokens),
        decode_pairs=mean(done.kv_read_tokens),
        prefill_sequences=mean(done.prompts),
        prefill_tokens=mean(prefilled),
        prefill_kv_tokens=mean(prefilled),
        prefill_pairs=mean(max(0, done.pairs - done.kv_read_tokens)),
        sampled=mean(done.rows),
    )


def bound_shares(plan: Plan, stage: int, totals: BatchTotals) -> dict[str, float]:
    """Shares of the stage's service time by what bounds its operations; kinds without any are left out."""
    ns: dict[str, float] = {}
    for cost in (visit.cost for visit in plan.visits if visit.stage == stage):
        for kind, value in bounds_ns(plan.costs[cost], totals).items():
            ns[kind] = ns.get(kind, 0.0) + value
    whole = sum(ns.values())
    return {kind: round(value / whole, 4) for kind, value in ns.items() if value > 0} if whole else {}


def _bytes(
    plan: Plan, stage: StagePlan, work: StageWork, steps: float, done: WorkDone, speculation: SpeculationSummary | None
) -> float:
    """Bytes read: weights in every step, the experts that its tokens need, and KV once for all tokens of a step."""
    size, decoded, read = work.step_bytes * steps, float(done.decoded_tokens), 1.0
    if speculation and done.decoded_tokens:
        decoded += speculation.drafted_tokens - speculation.accepted_tokens
        read -= speculation.accepted_tokens / done.decoded_tokens
    if work.experts and steps:
        size += work.expert_bytes * work.experts * _full_reads(plan, work, steps, done, decoded)
    size += read * done.kv_read_tokens * stage.kv_block_bytes / plan.block_tokens
    for w in stage.windows:  # no token reads more than the window: exact for decoding, a bound for prefill chunks
        read_tokens = min(done.kv_read_tokens, done.tokens * w.most_blocks * plan.block_tokens)
        size += read * read_tokens * w.block_bytes / plan.block_tokens
    for limit in work.read_limits or ():
        unread = done.kv_read_tokens - min(done.kv_read_tokens, done.tokens * limit.read_tokens)
        size -= read * unread * limit.kv_bytes
    return size


def _full_reads(plan: Plan, work: StageWork, steps: float, done: WorkDone, decoded: float) -> float:
    """How often all experts together were read: 1 - (1 - k / n)^t of them for the t tokens of a step, k of n for each.

    Steps with prefill count apart from steps without: a long chunk reads all experts, a lone token k. Each prompt is
    assumed to take a step of its own, or as many as the token budget makes of it; the other steps only decode.
    """
    keep = 1 - work.experts_per_token / work.experts
    prefilled = done.tokens - done.decoded_tokens
    chunks = min(steps, max(done.prompts, prefilled / plan.defaults.batched_tokens))
    rest = steps - chunks
    if not chunks or rest < 1:  # no chunks: a pool that only decodes
        return float(steps * (1 - keep ** ((prefilled + decoded) / steps)))
    return float(chunks * (1 - keep ** (prefilled / chunks)) + rest * (1 - keep ** (decoded / rest)))
