"""Runs of the in-process engine that keep their records in memory."""

from collections.abc import Sequence
from statistics import fmean

import msgspec

from stageline.api.fitting import Records
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request, RequestRecord, RunTotals
from stageline.plan.schema import Plan
from stageline.workload.rows import RowCounts
from stageline.workload.workloads import IteratedWorkload


class RunOutput(msgspec.Struct, frozen=True):
    """The output of a run: records in order of arrival, and the engine's totals."""

    records: list[RequestRecord]
    totals: RunTotals

    def ttft_s(self) -> list[float]:
        """Arrival to first token, per request."""
        return [(r.first_token_ns - r.arrival_ns) / 1e9 for r in self.records if r.first_token_ns is not None]

    def tpot_s(self) -> list[float]:
        """(last - first token) / (tokens - 1), of requests with at least two tokens."""
        return [
            (r.last_token_ns - r.first_token_ns) / 1e9 / (r.output_tokens - 1)
            for r in self.records
            if r.output_tokens > 1 and r.last_token_ns is not None and r.first_token_ns is not None
        ]

    def e2e_s(self) -> list[float]:
        """Arrival to last token, per request."""
        return [(r.last_token_ns - r.arrival_ns) / 1e9 for r in self.records if r.last_token_ns is not None]

    def means_s(self) -> tuple[float, float, float]:
        """Mean TTFT, TPOT and end-to-end time."""
        return fmean(self.ttft_s()), fmean(self.tpot_s()), fmean(self.e2e_s())


def vllm(plan: Plan, *, max_num_seqs: int, batched_tokens: int, overhead_ns: int = 0) -> Scheduling:
    """Scheduling like vLLM's: one microbatch in flight per stage, of all running sequences, KV allocated by block."""
    return Scheduling(
        credits=len(plan.stages),
        max_running=max_num_seqs,
        microbatch=max_num_seqs,
        batched_tokens=batched_tokens,
        batching="greedy",
        kv="grow",
        overhead_ns=overhead_ns,
    )


def run(plan: Plan, scheduling: Scheduling, requests: Sequence[Request]) -> RunOutput:
    """Run the requests with seed 0."""
    seen = Records()
    workload = IteratedWorkload(iter(requests), description="bench", counts=RowCounts(), fraction=lambda: 0.0)
    totals = inprocess.run(plan, scheduling, workload, seed=0, observer=seen)
    return RunOutput([seen.rows[i] for i in sorted(seen.rows)], totals)
