"""Speed of the in-process engine.

    python -m bench.core [--data DIR]      JSON on stdout

Stage visits per CPU second on a consecutive route of 59 stages and on the 59-wafer route (70 visits), and CPU time per
visit with 8 and with 500 stages. With --data also the whole Azure conversation trace on the 46-wafer plan, with the
growth of memory. CPU time, because other processes may share the machine.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

import msgspec

from stageline.catalog.loader import Catalog
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import RunTotals
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Defaults, Plan, StagePlan, Visit
from stageline.report.run_writer import RunWriter
from stageline.testing import Ignoring
from stageline.workload import open_workload

TARGET_CONSECUTIVE, TARGET_WAFERS = 1_000_000, 150_000  # stage visits per second
AZURE = "AzureLLMInferenceTrace_conv_2023.csv"
AZURE_RATE_SCALE = "150"  # high enough to keep the pipeline busy


class Counter(Ignoring):
    """Counts tokens."""

    tokens = 0

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        self.tokens += 1


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the result."""

    case: str
    stages: int
    visits: int
    stage_visits: int
    output_tokens: int
    cpu_s: float
    visits_per_cpu_s: int
    ns_per_visit: int
    occupancy: float  # mean over stages
    target_visits_per_s: int | None = None


def wafers(**options: object) -> Plan:
    """A plan of Kimi K3 on WSE-3T."""
    catalog = Catalog()
    asked = msgspec.structs.replace(PlanOptions(), **options)
    return make_plan(catalog.model("kimi-k3").spec, catalog.device("wse-3t").device, asked).plan


def consecutive(stages: int) -> Plan:
    """A chain of equal stages, each with the service time of two linear-attention layers of Kimi K3."""
    base = wafers(placement="by-kind", layer_bytes="nominal", consecutive=True)
    visit, link = base.visits[1], base.links[1]
    return msgspec.structs.replace(
        base,
        stages=tuple(
            StagePlan(name=f"stage-{i}", layers=(i,), kv_budget_bytes=1 << 40, kv_block_bytes=1) for i in range(stages)
        ),
        visits=tuple(
            Visit(stage=i, layers=(i,), cost=visit.cost, min_service_ns=visit.min_service_ns) for i in range(stages)
        ),
        links=(link,) * (stages + 1),
        defaults=Defaults(microbatch=4, credits=stages),
    )


def measure(case: str, plan: Plan, text: str, target: int | None = None) -> Row:
    """Run `text`, a workload, on a plan; in CPU seconds of this process."""
    counter = Counter()
    workload = open_workload(text, seed=1)
    started = time.process_time()
    totals = inprocess.run(plan, Scheduling(), workload, seed=1, observer=counter)
    return _row(case, plan, totals, counter.tokens, time.process_time() - started, target)


def _row(case: str, plan: Plan, totals: RunTotals, tokens: int, cpu_s: float, target: int | None) -> Row:
    window = totals.window_end_ns - totals.window_start_ns
    return Row(
        case=case,
        stages=len(plan.stages),
        visits=len(plan.visits),
        stage_visits=totals.stage_visits,
        output_tokens=tokens,
        cpu_s=round(cpu_s, 2),
        visits_per_cpu_s=round(totals.stage_visits / cpu_s),
        ns_per_visit=round(cpu_s * 1e9 / totals.stage_visits),
        occupancy=round(sum(s.busy_ns for s in totals.stages) / (window * len(totals.stages)), 3),
        target_visits_per_s=target,
    )


def azure(data: Path) -> dict[str, object]:
    """The Azure trace, 19,366 requests, on 46 wafers, with all results that `stageline run` writes."""
    plan = wafers()
    writer = RunWriter(plan, None)
    workload = open_workload(str(data / "traces" / AZURE), seed=0, rate_scale=AZURE_RATE_SCALE)
    started, before_kb = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with writer:
        totals = inprocess.run(plan, Scheduling(), workload, seed=0, observer=writer)
    cpu_s = time.process_time() - started
    row = _row("azure conversation on 46 wafers", plan, totals, writer.statistics.output_tokens, cpu_s, None)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        **msgspec.structs.asdict(row),
        "requests": totals.requests,
        "memory_growth_mb": (peak_kb - before_kb) // 1024,
    }


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with traces/, for the Azure case")
    data = parser.parse_args().data
    workload = "closed:users=1000,requests=3000,input=64,output=uniform(20,200)"
    rows = [
        measure("59 consecutive stages", consecutive(59), workload, TARGET_CONSECUTIVE),
        measure("59 wafers, 70 visits", wafers(placement="by-kind", layer_bytes="nominal"), workload, TARGET_WAFERS),
        measure("8 consecutive stages", consecutive(8), workload),
        measure("500 consecutive stages", consecutive(500), workload),
    ]
    result: dict[str, object] = {"rows": rows}
    if data is not None:
        result["azure"] = azure(data)
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


if __name__ == "__main__":
    main()
