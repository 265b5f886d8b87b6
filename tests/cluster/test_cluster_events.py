"""`stageline run --engine cluster --events --otlp`: the files and spans of the same run in process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from stageline.report.rundir import FLEET_FILE, RUN_FILES, SUMMARY_FILE, TUNE_FILE
from tests.cluster.test_retries import CLOSED, WORKLOAD, command, killed, plan_path, summary_of
from tests.otlp_collector import Collector, ReceivedSpan, collecting

__all__ = ["plan_path"]
SAME_FILES = sorted(set(RUN_FILES) - {SUMMARY_FILE, TUNE_FILE, FLEET_FILE})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


def spans_of(received: list[ReceivedSpan]) -> list[str]:
    """In an order that does not depend on how they were sent."""
    return sorted(str(s.span) for s in received)


async def test_events_and_spans_are_those_of_one_process_whoever_dies(
    plan_path: Path, tmp_path: Path, collector: Collector
) -> None:
    calm, hurt, workload = tmp_path / "calm", tmp_path / "hurt", CLOSED.replace("requests=2000", "requests=400")
    flags = ("--events", "--otlp", collector.url, "--trace-sample", "0.02", "--trace-anchor", "1000")
    async with asyncio.timeout(120):
        assert await (await command(plan_path, calm, workload, *flags)).wait() == 0
        wanted, collector.spans = collector.spans, []
        run = await command(plan_path, hurt, workload, "--engine", "cluster", *flags)
        await killed(run, "stage_server", hurt / "requests.jsonl", 5_000)
        said = (await run.communicate())[1].decode()
    assert run.returncode == 0, said
    assert (summary_of(hurt)["attempts"], summary_of(hurt)["engine"]) == (2, "cluster")
    assert [name for name in SAME_FILES if (hurt / name).read_bytes() != (calm / name).read_bytes()] == []
    assert len(wanted) > 100
    assert spans_of(collector.spans) == spans_of(wanted)
    assert "made again in this process" in said


async def test_a_run_that_loses_its_cluster_shows_no_events(plan_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with asyncio.timeout(120):
        run = await command(plan_path, out, WORKLOAD, "--engine", "cluster", "--retries", "0", "--events")
        await killed(run, "stage_server", out / "requests.jsonl", 5_000)
        await run.communicate()
    assert run.returncode == 1
    assert sorted(path.name for path in out.iterdir()) == ["plan.json", "requests.jsonl", "summary.json"]
    assert summary_of(out)["complete"] is False
