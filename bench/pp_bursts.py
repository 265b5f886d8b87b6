"""A cap on decode steps against natural scheduling in bursts of short prompts, against a published A/B.

    python -m bench.pp_bursts DIR      DIR has configs/deepseek-ai--DeepSeek-V4-Flash.json

github.com/canoziia/vllm-cmp170hx@6a01557, models/deepseek-v41/docs/PP-DECODE-COHORT-BALANCE.md: DeepSeek-V4.1-Flash
with DSpark (5 drafts) on six GPUs of compute capability 8.0, one per stage, max_num_seqs 32, vLLM's Model Runner V2
with asynchronous scheduling, vllm#57433 off and on in the same image, output tokens/s in medians of three runs. Off,
four groups such as 13, 16, 2 and 1 stay for the whole run; on, most steps hold ceil(32 / 6) = 6. An earlier form of the
same cap gained -2.3 and +141.1 % with 16 and 32 articles, so the cells themselves vary.

Nothing here is fitted. Assumed: DeepSeek-V4-Flash on A100 80GB stands in for model and GPU, so only the gain compares,
not the rate; prompts of 30 tokens, answers of 650 (an article of 500 words; with 200 or 1,300 the gain moves by 7
points at most), 2,048 batched tokens (vLLM's default there), drafts accepted with the probability that gives the
published tokens per step, drafting without time. A client that sends 16 or 32 requests at once does not send them at
one instant: how far they are spread decides which step admits whom, is not published, and is a column.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.pp_batching import Seen
from stageline.api.lookup import find_model
from stageline.catalog.loader import Catalog
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.testing import ListWorkload
from stageline.units import NS_PER_S

MODEL = "configs/deepseek-ai--DeepSeek-V4-Flash.json"
STAGES = 6
ACCEPTED_PPM = {"article": 588_000, "counting": 996_800}  # 2.33 and 5.95 tokens per step, as published
MEASURED = {("article", 16): 19.3, ("article", 32): 77.8, ("counting", 16): 48.9, ("counting", 32): 78.7}  # gain in %
SPREADS_MS = (0, 100, 300)
BASE = Scheduling(microbatch=32, max_running=32, credits=STAGES, batched_tokens=2048, kv="grow", speculate=5)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One burst, without and with the cap."""

    task: str
    users: int
    spread_ms: int
    gained_percent: float
    natural: tuple[int, ...]  # the sizes that most steps have, most frequent first
    capped: tuple[int, ...]


def plan(data: Path) -> Plan:
    """One stage per GPU."""
    catalog = Catalog()
    options = PlanOptions(devices=STAGES, tensor_parallel=1, batched_tokens=2048, context_tokens=4096)
    return make_plan(find_model(str(data / MODEL), catalog), catalog.device("a100-80g").device, options).plan


def burst(of: Plan, batching: str, task: str, users: int, spread_ms: int) -> tuple[float, tuple[int, ...]]:
    """Output tokens/s, and the most frequent sizes of a step."""
    requests = [
        Request(
            index=i,
            arrival_ns=i * spread_ms * 1_000_000 // users,
            prompt_tokens=30,
            output_tokens=650,
            max_output_tokens=650,
        )
        for i in range(users)
    ]
    scheduling = msgspec.structs.replace(BASE, batching=batching, acceptance_ppm=ACCEPTED_PPM[task])
    seen = Seen()
    totals = inprocess.run(of, scheduling, ListWorkload(requests), seed=0, observer=seen, members=seen)
    rate = seen.output_tokens * NS_PER_S / (totals.window_end_ns - totals.window_start_ns)
    return rate, tuple(size for size, _ in Counter(seen.sizes).most_common(4))


def row(of: Plan, task: str, users: int, spread_ms: int) -> Row:
    """The cap against natural scheduling."""
    natural, natural_sizes = burst(of, "natural-async", task, users, spread_ms)
    capped, capped_sizes = burst(of, "decode-cap", task, users, spread_ms)
    return Row(
        task=task, users=users, spread_ms=spread_ms, gained_percent=round(100 * (capped / natural - 1), 1),
        natural=natural_sizes, capped=capped_sizes,
    )  # fmt: skip


def rows(data: Path) -> Iterator[Row]:
    """Every published cell with every spread."""
    of = plan(data)
    for task, users in MEASURED:
        for spread_ms in SPREADS_MS:
            yield row(of, task, users, spread_ms)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="A cap on decode steps in bursts, against a measurement.")
    parser.add_argument("data", type=Path, help="folder with configs/")
    print(f"{'task':10}{'users':>6}{'spread':>9}{'gained':>10}{'measured':>10}  sizes without and with the cap")
    for found in rows(parser.parse_args().data):
        measured = MEASURED[found.task, found.users]
        sizes = [" ".join(map(str, of)) for of in (found.natural, found.capped)]
        print(
            f"{found.task:10}{found.users:6}{found.spread_ms:6} ms{found.gained_percent:+8.1f} %{measured:+8.1f} %",
            f"{sizes[0]:14}{sizes[1]}",
            sep="  ",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
