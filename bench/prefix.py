"""CPU time that the prefix cache costs the in-process engine.

    python -m bench.prefix [--data DIR]      JSON on stdout

Runs the same workload without and with the cache: conversations behind shared system prompts, on a chain of eight
stages and on the 46-wafer plan of Kimi K3, whose linear-attention layers keep state snapshots; with --data also 60
requests of the Mooncake conversation trace. `requests_ratio` compares requests per CPU second, `visits_ratio` stage
visits per CPU second (the cache leaves fewer visits). Both must be at least TARGET_RATIO.
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec

from bench.core import Counter, consecutive, wafers
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import RunTotals
from stageline.plan.schema import Plan
from stageline.workload import open_workload

TARGET_RATIO = 0.5
SESSIONS = (
    "sessions:system_prompts=9,users=5,system=100,question=447,output=uniform(20,200),turns=10,rate=100,requests=400"
)
MOONCAKE = "mooncake_conversation_trace.jsonl"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, without and with the cache."""

    case: str
    requests: int
    block_hit_ratio: float
    cpu_s_off: float
    cpu_s_on: float
    stage_visits_off: int
    stage_visits_on: int
    requests_ratio: float
    visits_ratio: float
    target_ratio: float = TARGET_RATIO


def measure(case: str, plan: Plan, text: str, requests: int | None = None) -> Row:
    """Run a workload without and with the cache; in CPU seconds of this process."""
    off, cpu_off = _run(plan, text, requests, cache=False)
    on, cpu_on = _run(plan, text, requests, cache=True)
    stats = on.prefix[0]
    return Row(
        case=case,
        requests=on.requests,
        block_hit_ratio=round(stats.hit_blocks / stats.queried_blocks, 3),
        cpu_s_off=round(cpu_off, 2),
        cpu_s_on=round(cpu_on, 2),
        stage_visits_off=off.stage_visits,
        stage_visits_on=on.stage_visits,
        requests_ratio=round(cpu_off / cpu_on, 2),
        visits_ratio=round(on.stage_visits / cpu_on * cpu_off / off.stage_visits, 2),
    )


def _run(plan: Plan, text: str, requests: int | None, *, cache: bool) -> tuple[RunTotals, float]:
    workload = open_workload(text, seed=1, requests=requests)
    hash_block_tokens = workload.hash_block_tokens
    scheduling = Scheduling(
        prefix_cache=cache, hash_block_tokens=hash_block_tokens, snapshot_tokens=max(512, hash_block_tokens)
    )
    started = time.process_time()
    totals = inprocess.run(plan, scheduling, workload, seed=1, observer=Counter())
    return totals, time.process_time() - started


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with traces/, for the Mooncake case")
    data = parser.parse_args().data
    rows = [
        measure("sessions on 8 consecutive stages", consecutive(8), SESSIONS),
        measure("sessions on 46 wafers with snapshots", wafers(), SESSIONS),
    ]
    if data is not None:
        trace = str(data / "traces" / MOONCAKE)
        rows.append(measure("mooncake on 46 wafers with snapshots", wafers(), trace, requests=60))
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode({"rows": rows}), indent=2) + b"\n")


if __name__ == "__main__":
    main()
