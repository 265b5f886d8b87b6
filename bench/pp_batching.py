"""Three ways to form microbatches under pipeline parallelism, against a published measurement.

    python -m bench.pp_batching DIR [--requests N] [--users N]      DIR has traces/mooncake_conversation_trace.jsonl

vllm#50410 and #57433 report, for Kimi K3 with DSpark (7 drafts) on B200, TP8 x PP4, layers 25,25,25,18, max_num_seqs 32
and 1,000 requests of a Mooncake trace at concurrency 64, output tokens/s against natural scheduling: a cap on all
scheduled requests -8.21 %, a cap on decodes only +22.95 %.

Nothing here is fitted. What the report does not say is assumed, and each assumption is a case of its own:

- 8,192 batched tokens, the default of `vllm serve` on such a device;
- drafts: 1.88 tokens a step, which tokenspeed#905 measured for Inferact/Kimi-K3-DSpark on random prompts of 8K tokens
  (a Mooncake trace has no text), or 3.84, which InferenceX#2616 sets for seven drafts on agent traces;
- prefix cache off, or on with a state snapshot per block of the trace;
- prompts as in the trace, or without all but every 64th token: what stays if nearly all of them are found in a cache or
  prefilled elsewhere.

Drafting takes no time: none is published. Groups: members of a microbatch, 10th, 50th and 90th percentile and largest.

vllm#57433 also gives groups that formed in runs of prompts of 64K and outputs of 400 tokens, and what even groups of
the same requests gained. A second table has those: rounds of such groups alone, without the prefill that the runs had,
so that it tests costs and the round, not how groups come about.

What remains: the trace's rows do not come out. With 1,000 requests a global cap gains 0.1 to 0.2 % and a cap on decodes
0.6 to 2.5 %, hardly any prefill 1.4 and 4.9 %: groups are as even as chance makes them (10th to 90th percentile 4 to
12), because who replaces a request may end its prompt in any step, and a cap of 64 / 4 = 16 hardly ever binds. If the
global cap means a share of the 32 that run, 8, it loses 21 to 23 %, since chunks of prompts wait behind full groups
(hardly any prefill: +5.5 %). Then the order is the measured one, and decode cap against global cap is +29.0 to +32.0 %,
measured +33.9 %; but natural scheduling is still too good.

Tried besides, with a second simulator, of vLLM's scheduler by its source over the same costs: 2,048 to 32,768 batched
tokens, 1.9 to 6.7 tokens a step, with and without a prefix cache, prompts cut at multiples of 768 or 1,536 tokens as
vLLM does for states (72 cases, 400 requests each): a global cap of 16 -1.0 to +2.0 %, of 8 -28.1 to -4.4 %, a cap on
decodes -1.3 to +3.7 %. Groups become uneven, and stay so, where answers are of one length and prompts take the same
number of steps: 64K prompts found in a cache but for their last 512 tokens, 400 tokens of output, 64 users (400
requests) give a cap on decodes +12.5 and +15.5 % with 3.84 and 1.88 tokens a step; measured +12.62 % in runs of
those lengths. With 1,024 or 2,048 tokens left it is -1.3 to +1.4 %. So facts about the runs decide that are not known
here: which trace it was, and how much of its prompts was found in a cache.

Rules were compared with vLLM's sources: chunks may join any step, a decode is eligible pp steps after the step that
sampled, and a step is scheduled before the one that it waits for is back, so a free place is taken one step later (rule
5). Bursts (`pp_bursts`) come out.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from stageline.catalog.loader import Catalog
from stageline.cost.service import compile_cost
from stageline.cost.totals import BatchTotals
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request, RequestRecord
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.testing import Ignoring
from stageline.workload import open_workload
from stageline.workload.workloads import DescribedWorkload

TRACE = "traces/mooncake_conversation_trace.jsonl"
PARTITION = (25, 25, 25, 18)
MEASURED = {"natural-async": 0.0, "global-cap": -8.21, "decode-cap": 22.95}  # % against natural
BASE = Scheduling(
    microbatch=32, max_running=32, credits=4, batched_tokens=8192, kv="grow", speculate=7, acceptance_ppm=470_000
)
CACHE = msgspec.structs.replace(BASE, prefix_cache=True, hash_block_tokens=512, snapshot_tokens=512)
CASES = {
    "prompts as they are": (BASE, 1),
    "3.84 tokens a step": (msgspec.structs.replace(BASE, acceptance_ppm=772_700), 1),
    "prefix cache": (CACHE, 1),
    "hardly any prefill": (BASE, 64),
}


GIVEN = (  # layers per stage, groups under natural scheduling, even groups, output tokens/s gained in %
    ((25, 25, 25, 18), (7, 13, 2, 10), (8, 8, 8, 8), 12.62),
    ((47, 46), (19, 13), (16, 16), 4.74),  # the split is not published: vLLM's own of 93 layers
)
GIVEN_CONTEXT = 64 * 1024 + 200  # tokens, the mean of a run
ROUNDS = 64


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    case: str
    batching: str
    output_tokens_per_s: float
    against_natural_percent: float
    measured_percent: float
    busy_ratio: float  # of the busiest stage
    groups: tuple[int, ...]


class Seen(Ignoring):
    """Counts what came of a run."""

    def __init__(self) -> None:
        self.output_tokens = 0
        self.sizes: list[int] = []

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self.output_tokens += record.output_tokens

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """See MemberObserver."""
        self.sizes.append(len(list(requests)))


class Shorter:
    """A workload with prompts divided by a number, and without their hashes."""

    def __init__(self, of: DescribedWorkload, divisor: int) -> None:
        self._of, self._divisor = of, divisor
        self.reactive, self.next_arrival_ns = of.reactive, of.next_arrival_ns
        self.finished, self.horizon_ns = of.finished, of.horizon_ns

    def take(self) -> Request:
        """See Workload."""
        request = self._of.take()
        assert isinstance(request, Request)
        tokens = max(1, request.prompt_tokens // self._divisor)
        return msgspec.structs.replace(request, prompt_tokens=tokens, hash_ids=())


def plan(partition: tuple[int, ...] = PARTITION) -> Plan:
    """Kimi K3 on stages of eight B200, with these layers per stage."""
    catalog = Catalog()
    options = PlanOptions(
        tensor_parallel=8,
        devices=8 * len(partition),
        layer_partition=partition,
        batched_tokens=8192,
        context_tokens=16384,
    )
    return make_plan(catalog.model("kimi-k3").spec, catalog.device("b200").device, options).plan


def run(
    of: Plan, scheduling: Scheduling, data: Path, requests: int, users: int, divisor: int
) -> tuple[float, float, Seen]:
    """Output tokens per second, busy share of the busiest stage, and what was seen."""
    workload = open_workload(f"closed:users={users},requests={requests},trace={data / TRACE}")
    shown = Shorter(workload, divisor) if divisor > 1 else workload
    seen = Seen()
    totals = inprocess.run(of, scheduling, shown, seed=0, observer=seen, members=seen)
    window_ns = totals.window_end_ns - totals.window_start_ns
    return seen.output_tokens * 1e9 / window_ns, max(s.busy_ns for s in totals.stages) / window_ns, seen


def rows(data: Path, requests: int = 1000, users: int = 64, cases: Iterable[str] = CASES) -> Iterator[Row]:
    """Every case with every policy, natural scheduling first."""
    on = plan()
    for case in cases:
        scheduling, divisor = CASES[case]
        natural = 0.0
        for batching, measured in MEASURED.items():
            asked = msgspec.structs.replace(scheduling, batching=batching)
            rate, busy, seen = run(on, asked, data, requests, users, divisor)
            natural = natural or rate
            sizes = sorted(seen.sizes)
            yield Row(
                case=case,
                batching=batching,
                output_tokens_per_s=round(rate, 1),
                against_natural_percent=round(100 * (rate / natural - 1), 2),
                measured_percent=measured,
                busy_ratio=round(busy, 3),
                groups=tuple(sizes[int(share * (len(sizes) - 1))] for share in (0.1, 0.5, 0.9, 1)),
            )


def round_ns(of: Plan, groups: tuple[int, ...]) -> int:
    """The mean time of a round in which each group decodes once, in its turn, and then waits for its return."""
    models = [compile_cost(of.costs[visit.cost]) for visit in of.visits]
    steps = [decode_step(group) for group in groups]
    free, back = [0] * len(models), [0] * len(groups)
    for _ in range(ROUNDS):
        for number, step in enumerate(steps):
            at = back[number]
            for stage, model in enumerate(models):
                free[stage] = at = max(free[stage], at) + model.service_ns(step)
                at += of.links[stage + 1].latency_ns
            back[number] = at
    return max(back) // ROUNDS


def decode_step(sequences: int) -> BatchTotals:
    """A step of sequences with seven drafts each."""
    tokens = sequences * 8
    return BatchTotals(
        decode_sequences=sequences, decode_tokens=tokens, decode_kv_tokens=sequences * GIVEN_CONTEXT,
        decode_pairs=tokens * GIVEN_CONTEXT, sampled=tokens,
    )  # fmt: skip


def gained_percent(partition: tuple[int, ...], natural: tuple[int, ...], even: tuple[int, ...]) -> float:
    """What even groups gain over those of natural scheduling."""
    on = plan(partition)
    return round(100 * (round_ns(on, natural) / round_ns(on, even) - 1), 2)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Microbatches under pipeline parallelism, against a measurement.")
    parser.add_argument("data", type=Path, help="folder with traces/")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--users", type=int, default=64)
    asked = parser.parse_args()
    print(f"{'case':22}{'batching':15}{'tok/s':>9}{'against natural':>17}{'measured':>10}{'busy':>7}  groups")
    for row in rows(asked.data, asked.requests, asked.users):
        ours, theirs = f"{row.against_natural_percent:+.2f} %", f"{row.measured_percent:+.2f} %"
        text = (
            f"{row.case:22}{row.batching:15}{row.output_tokens_per_s:9,.1f}{ours:>17}{theirs:>10}{row.busy_ratio:7.2f}"
        )
        print(text, " ".join(map(str, row.groups)), sep="  ", flush=True)
    for partition, natural, even, published in GIVEN:
        gained = gained_percent(partition, natural, even)
        print(f"groups {'/'.join(map(str, natural))}: even ones gain {gained:+.2f} %, measured {published:+.2f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
