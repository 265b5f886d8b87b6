"""CPU time that a fleet costs the in-process engine, against the same devices without one.

    python -m bench.fleets DIR      JSON on stdout; DIR has traces/mooncake_conversation_trace.jsonl

Fleets of 64 replicas, half of them prefill, against 8 under the same load per replica: `ratio`, of CPU time per
request, must be at most TARGET_GROWTH; both run twice in turn, and the faster run of each counts. Then requests of the
Mooncake conversation trace through 4 prefill and 4 decode replicas against 8 that do both, once each: `ratio`, of
requests per CPU second, must be at least TARGET_RATIO.
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec

import stageline
from bench.disaggregation import divided, example
from stageline.engine.fleet import Fleet

MOONCAKE = "traces/mooncake_conversation_trace.jsonl"
TARGET_RATIO = 0.5
TARGET_GROWTH = 1.3
PER_REPLICA = 50  # requests; 3,200 and 400 in all


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Two fleets under the same load."""

    case: str
    requests: tuple[int, int]
    cpu_s: tuple[float, float]
    requests_per_cpu_s: tuple[float, float]
    ratio: float
    target: float


def cpu_s(fleet: Fleet, workload: str, requests: int) -> float:
    """CPU seconds of this process for one run."""
    started = time.process_time()
    stageline.run(fleet, workload, seed=1, keep_requests=False, requests=requests)
    return time.process_time() - started


def best(*runs: tuple[Fleet, str, int], times: int = 2) -> tuple[float, ...]:
    """The least CPU time of each, all of them in turn."""
    took = [[cpu_s(*run) for run in runs] for _ in range(times)]
    return tuple(min(each) for each in zip(*took, strict=True))


def compared(case: str, counts: tuple[int, int], took: tuple[float, ...], ratio: float, target: float) -> Row:
    """The figures of two runs."""
    return Row(
        case=case,
        requests=counts,
        cpu_s=(round(took[0], 2), round(took[1], 2)),
        requests_per_cpu_s=(round(counts[0] / took[0], 1), round(counts[1] / took[1], 1)),
        ratio=round(ratio, 2),
        target=target,
    )


def apart_and_together(data: Path, requests: int) -> Row:
    """The trace through both."""
    trace = str(data / MOONCAKE)
    fleets = divided(example("apart"), 4, 4), divided(example("together"), 8)
    took = tuple(cpu_s(fleet, trace, requests) for fleet in fleets)
    return compared("4 prefill + 4 decode, 8 both", (requests, requests), took, took[1] / took[0], TARGET_RATIO)


def large_and_small(per_replica: int) -> Row:
    """64 replicas and 8, half of them prefill, at one request per second and replica."""
    runs = [
        (divided(example("apart"), n // 2, n // 2), f"poisson:rate={n},input=1024,output=32", n * per_replica)
        for n in (64, 8)
    ]
    took = best(*runs)
    counts = (64 * per_replica, 8 * per_replica)
    return compared("64 replicas, 8", counts, took, took[0] / counts[0] / (took[1] / counts[1]), TARGET_GROWTH)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="CPU time of fleets, as ratios.")
    parser.add_argument("data", type=Path, help="folder with traces/")
    parser.add_argument("--requests", type=int, default=10_000, help="of the trace")
    given = parser.parse_args()
    for row in (large_and_small(PER_REPLICA), apart_and_together(given.data, given.requests)):
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(row), indent=2) + b"\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
