"""A run whose story is known: it fills, one slow stage holds the others up, KV runs out, it pauses, it drains."""

from pathlib import Path

import msgspec

from stageline.engine import inprocess
from stageline.engine.fleet import Fleet, Pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import Request
from stageline.plan.schema import Plan
from stageline.report.run_writer import RunWriter
from stageline.report.summary import RunFacts, Summary
from stageline.testing import ListWorkload
from tests.reference.plans import pipeline

US = 1_000
SLOW, TIGHT = 2, 1  # the slow stage, and the one whose KV budget holds three requests
TIMES_NS = (100 * US, 100 * US, 250 * US, 100 * US)
PROMPT, OUTPUT = 16, 12


def known_plan() -> Plan:
    """Four stages."""
    plan = pipeline(TIMES_NS, latency_ns=5 * US, credits_=6)
    stages = [msgspec.structs.replace(s, kv_block_bytes=64, kv_budget_bytes=64 * 100) for s in plan.stages]
    stages[TIGHT] = msgspec.structs.replace(stages[TIGHT], kv_budget_bytes=64 * 2 * 3)  # 2 blocks each
    return msgspec.structs.replace(plan, stages=tuple(stages))


def known_requests() -> list[Request]:
    """Ten at once, and a late one after a pause without any."""
    arrivals = [*([0] * 10), 60_000 * US]
    return [
        Request(index=i, arrival_ns=at, prompt_tokens=PROMPT, output_tokens=OUTPUT, max_output_tokens=OUTPUT)
        for i, at in enumerate(arrivals)
    ]


def write_run(
    directory: Path,
    plan: Plan | None = None,
    requests: list[Request] | None = None,
    *,
    events: bool = True,
    scheduling: Scheduling = Scheduling(),
) -> Summary:
    """Runs a plan and leaves a run directory."""
    plan, requests = plan or known_plan(), requests or known_requests()
    with RunWriter(plan, directory, events=events) as writer:
        totals = inprocess.run(
            plan,
            scheduling,
            ListWorkload(requests),
            seed=0,
            observer=writer,
            stage_observer=writer.stage_observer,
            members=writer.members,
        )
        facts = RunFacts(
            engine="inprocess",
            seed=0,
            command="stageline run plan.json --workload known",
            workload="known",
            rows={},
            wall_s=0.0,
            credits=scheduling.credits or plan.defaults.credits,
        )
        return writer.finish(totals, facts)


def known_fleet() -> Fleet:
    """The known pipeline, and two replicas of a short one."""
    short = pipeline((100 * US,) * 2, latency_ns=5 * US, credits_=2)
    pools = Pool(name="long", plan=known_plan()), Pool(name="short", plan=msgspec.structs.replace(short, replicas=2))
    return Fleet(pools=pools)
