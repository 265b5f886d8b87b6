"""Compares the digests of a cluster of real processes with those of the in-process engine, on real traces.

    python -m bench.agreement DATA [CASE ...]     all cases by default; a table on stdout, 1 if a digest differs

DATA is the folder with the public traces. Each row runs one workload on one plan with one setting, in process and on a
fresh local cluster. `busy` compresses arrivals until the pipeline is full; `nearly empty` keeps them, so that most
tokens are alone in the pipeline. The last two settings disturb the host: all processes run at `nice 19`, or SIGSTOP
stops one process after another for a second. It takes about an hour of CPU.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import uvloop

from stageline.catalog.loader import Catalog
from stageline.cluster.client_run import run_at
from stageline.cluster.local import LocalCluster, LocalOptions
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.plan.schema import Plan
from stageline.runtime.logs import say
from stageline.testing import DigestObserver
from stageline.wire.frames import PayloadMode
from stageline.wire.router_client import RunOrder
from stageline.workload import DescribedWorkload, open_workload

AZURE = "traces/AzureLLMInferenceTrace_conv_2023.csv"
MOONCAKE = "traces/mooncake_conversation_trace.jsonl"
PLANS: dict[str, tuple[str, str, PlanOptions]] = {
    "k3-59": ("kimi-k3", "wse-3t", PlanOptions(placement="by-kind", layer_bytes="nominal")),
    "k3-46": ("kimi-k3", "wse-3t", PlanOptions()),
    "llama-70b": ("llama-3.1-70b", "h100-sxm", PlanOptions(devices=8, replicas=2)),
}
BUSY = {"k3-59": "150", "k3-46": "150", "llama-70b": "5"}


class TraceCase(msgspec.Struct, frozen=True):
    """The first `requests` requests of a trace."""

    name: str
    file: str
    requests: int
    busy: bool


TRACES = (
    TraceCase("azure busy", AZURE, 1000, True),
    TraceCase("mooncake busy", MOONCAKE, 300, True),
    TraceCase("azure nearly empty", AZURE, 30, False),
    TraceCase("mooncake nearly empty", MOONCAKE, 30, False),
)
SHORT = TraceCase("azure busy, short", AZURE, 60, True)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a case varies; the rest keeps its default."""

    name: str = "default"
    grow: bool = False
    jitter: bool = False
    payload: PayloadMode = "size"
    requests: int = 0  # instead of the trace case's; 0: those
    window: int = 0
    nice: bool = False
    stops: bool = False


VARIED = (
    Setting(name="kv grow", grow=True),
    Setting(name="jitter 500 ns", jitter=True),
    Setting(name="payload capped", payload="capped"),
    Setting(name="payload full", payload="full", requests=4),  # several gigabytes
    Setting(name="window 1", window=1),
    Setting(name="window 64", window=64),
    Setting(name="nice 19", nice=True),
    Setting(name="SIGSTOP", stops=True),
)


class Case(msgspec.Struct, frozen=True):
    """One row of the table."""

    plan: str
    trace: TraceCase
    setting: Setting

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.plan}/{self.trace.name}/{self.setting.name}"


def cases() -> Iterable[Case]:
    """All rows: every trace with default settings, and the short one with every setting."""
    for plan in PLANS:
        for trace in TRACES:
            yield Case(plan, trace, Setting())
        for setting in VARIED:
            yield Case(plan, SHORT, setting)


async def stopped_in_turn(pids: list[int]) -> None:
    """Stop one process after another for a second each, until cancelled."""
    for pid in pids * 1000:
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(1)
        finally:
            os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(1)


async def on_cluster(plan: Plan, case: Case, scheduling: Scheduling, workload: DescribedWorkload, folder: Path) -> str:
    """The digest of a fresh local cluster."""
    path = folder / "plan.json"
    path.write_bytes(plan.canonical())
    setting = case.setting
    order = RunOrder(
        plan_digest=plan.digest(), scheduling=scheduling, seed=0, payload=setting.payload, window=setting.window
    )
    records = DigestObserver()
    async with LocalCluster(plan, path, LocalOptions(restart=False), say) as up:
        await up.healthy()
        children = [child.pid for child in [*up.stages, up.router] if child and child.pid]
        for pid in children if setting.nice else ():
            os.setpriority(os.PRIO_PROCESS, pid, 19)
        stopper = asyncio.create_task(stopped_in_turn(children if setting.stops else []))
        try:
            totals, _ = await run_at(up.address, order, workload, records)
        finally:
            stopper.cancel()
            await asyncio.gather(stopper, return_exceptions=True)
    return records.finish(totals.stages)


def compare(case: Case, data: Path, folder: Path) -> bool:
    """Run one case on both engines and print its row; returns whether the digests are equal."""
    model, device, options = PLANS[case.plan]
    catalog = Catalog()
    plan = make_plan(catalog.model(model).spec, catalog.device(device).device, options).plan
    if case.setting.jitter:
        links = tuple(msgspec.structs.replace(link, jitter_ns=500) for link in plan.links)
        plan = msgspec.structs.replace(plan, links=links)
    scheduling = Scheduling(kv="grow" if case.setting.grow else "reserve")

    def workload() -> DescribedWorkload:
        scale = BUSY[case.plan] if case.trace.busy else "1"
        count = case.setting.requests or case.trace.requests
        return open_workload(str(data / case.trace.file), rate_scale=scale, requests=count)

    records = DigestObserver()
    totals = inprocess.run(plan, scheduling, workload(), seed=0, observer=records)
    expected = records.finish(totals.stages)
    started = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(on_cluster(plan, case, scheduling, workload(), folder))
    wall_s, same = time.perf_counter() - started, found == expected
    words = "equal" if same else f"DIFFERENT: {found[:12]}"
    print(f"| {case.plan} | {case.trace.name} | {case.setting.name} | {totals.requests} | {totals.stage_visits} "
          f"| {wall_s:.0f} s | {expected[:12]} | {words} |", flush=True)  # fmt: skip
    return same


def main(arguments: list[str]) -> int:
    """Run the cases whose names begin with one of the given words; returns 1 if a digest differs."""
    data, names = Path(arguments[0]), tuple(arguments[1:])
    print("| plan | requests of | setting | requests | stage visits | cluster | digest | both engines |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        same = [compare(c, data, Path(folder)) for c in cases() if not names or c.name.startswith(names)]
    return int(not same or not all(same))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
