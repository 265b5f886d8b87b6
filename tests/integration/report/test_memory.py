"""Memory stays flat: a workload is streamed, records are written as they come, latencies take 8 bytes each."""

import tracemalloc
from pathlib import Path

from stageline.engine.types import RequestRecord
from stageline.report.run_writer import RunWriter
from stageline.workload import open_workload
from tests.draining import take
from tests.unit.report.conftest import plan


def peak_bytes(trace: Path, directory: Path, requests: int) -> int:
    """Replays through an engine that is done with each request when the next ten have arrived."""
    tracemalloc.start()
    workload = open_workload(str(trace), requests=requests)
    waiting = []
    with RunWriter(plan(), directory) as writer:
        while workload.next_arrival_ns() is not None:
            request = take(workload)
            writer.arrived(request.index, request.arrival_ns)
            waiting.append(request)
            if len(waiting) > 10:
                done = waiting.pop(0)
                writer.token(done.index, request.arrival_ns, None)
                writer.token(done.index, request.arrival_ns + done.index, request.arrival_ns)
                writer.request(
                    RequestRecord(
                        index=done.index, replica=0, arrival_ns=done.arrival_ns, admitted_ns=done.arrival_ns,
                        first_token_ns=request.arrival_ns, last_token_ns=request.arrival_ns + done.index,
                        prompt_tokens=1, output_tokens=2, preemptions=0, outcome="finished",
                    )
                )  # fmt: skip
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_four_times_the_requests(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    header = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    trace.write_text(header + "".join(f"{i}.25,100,2\n" for i in range(12_000)))
    peak_bytes(trace, tmp_path / "warm", 3_000)  # caches and imports
    small = peak_bytes(trace, tmp_path / "small", 3_000)
    large = peak_bytes(trace, tmp_path / "large", 12_000)
    assert large - small < 9_000 * 100  # four latencies of 8 bytes, doubled while an array grows, and buckets
