"""What prefill and decode apart do to a cluster, from the rules alone: the tables of docs/practice.md.

    python -m bench.disaggregation      about four minutes of CPU; or name parts of it, such as gaps

Same devices in every comparison: the pools of examples/fleet-apart.toml against examples/fleet-together.toml, and
examples/fleet-stranded.toml with its replicas divided the other way. Nothing is fitted. What is sought (the highest
rate that keeps an objective, the lowest bandwidth) is bisected with whole runs.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

import stageline
from stageline.api.results import RunResult
from stageline.engine.fleet import Fleet
from stageline.plan.replicas import with_replicas

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FLEETS = EXAMPLES.parent / "bench" / "fidelity" / "fleets"
LLM_D = {"apart": (2.78, 3.38), "together": (6.7, 10.2)}  # mean and P95; llm-d/llm-d@027a053, guides/pd-disaggregation
SLO = "ttft=2s,tpot=20ms,attainment=0.9"
RELAXED = "ttft=2s,tpot=60ms,attainment=0.9"
BUDGETS = (512, 2048, 8192)  # batched tokens of replicas that prefill and decode: the best of them counts
GIGABYTE = 10**9
replaced = msgspec.structs.replace


class Traffic(NamedTuple):
    """Tokens of every request, and how many requests a run has."""

    prompt: int
    output: int
    requests: int = 400

    def at(self, rate: float) -> str:
        """Poisson arrivals of so many requests per second."""
        return f"poisson:rate={rate},input={self.prompt},output={self.output},requests={self.requests}"


PREFILL_HEAVY, DECODE_HEAVY = Traffic(4096, 128), Traffic(256, 512)
STRANDED = Traffic(4096, 256, 200)


def example(name: str) -> Fleet:
    """One of the files in examples/, planned."""
    return stageline.plan_fleet(EXAMPLES / f"fleet-{name}.toml").fleet


def divided(fleet: Fleet, *replicas: int) -> Fleet:
    """The fleet with so many replicas in its pools."""
    pools = zip(fleet.pools, replicas, strict=True)
    return replaced(fleet, pools=tuple(replaced(pool, plan=with_replicas(pool.plan, count)) for pool, count in pools))


def limited(fleet: Fleet, pool: int, **scheduling: int) -> Fleet:
    """The fleet with settings of one pool replaced."""
    pools = list(fleet.pools)
    pools[pool] = replaced(pools[pool], scheduling=replaced(pools[pool].scheduling, **scheduling))
    return replaced(fleet, pools=tuple(pools))


def linked(fleet: Fleet, bytes_per_s: int) -> Fleet:
    """The fleet with ports of another bandwidth."""
    assert fleet.hand_over is not None
    return replaced(fleet, hand_over=replaced(fleet.hand_over, bytes_per_s=bytes_per_s))


def kept(fleet: Fleet, traffic: Traffic, rate: float, slo: str = SLO) -> bool:
    """Whether a run at this rate keeps the objective."""
    result = stageline.run(fleet, traffic.at(rate), seed=1, slo=slo, keep_requests=False).summary.slo
    assert result is not None
    return result.met


def highest(keeps: Callable[[int], bool], most: int) -> int:
    """The highest of 1..most that keeps, 0 if none does; for what keeps below some value, and not above it."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def goodput(fleet: Fleet, traffic: Traffic, slo: str = SLO, *, most: int = 64) -> float:
    """The highest rate, in halves of a request per second, at which nine of ten requests keep the objective."""
    return highest(lambda halves: kept(fleet, traffic, halves / 2, slo), most * 2) / 2


def break_even(fleet: Fleet, traffic: Traffic, rate: float) -> float:
    """The lowest bandwidth of a port, in tenths of GB/s, at which a fleet keeps the objective at this rate."""
    tenth, most = GIGABYTE // 10, 500
    slower = highest(lambda tenths: not kept(linked(fleet, tenths * tenth), traffic, rate), most)
    return (slower + 1) / 10


class Pinned(NamedTuple):
    """Prefill KV that waits for room in the decode pool."""

    prompts: int  # at most, at one time
    stopped_ratio: float  # share of the run in which so many were pinned: no more has room


def pinned(run: RunResult) -> Pinned:
    """From the records: a prompt is pinned from its first token, the prefill's, to the end of its transfer."""
    changes: list[tuple[int, int]] = []
    for record in run.requests:
        moved = record.hand_over
        if moved is not None and moved.end_ns is not None and record.first_token_ns is not None:
            changes += [(record.first_token_ns, 1), (moved.end_ns, -1)]
    changes.sort()
    held = list(itertools.accumulate(change for _, change in changes))
    most = max(held)
    spans = [b - a for (a, _), (b, _) in itertools.pairwise(changes)]
    full = sum(span for span, count in zip(spans, held, strict=False) if count == most)
    return Pinned(most, full / (changes[-1][0] - changes[0][0]))


def gaps() -> Iterator[str]:
    """P99 of the time between tokens, at 6 requests/s."""
    together, apart = example("together"), example("apart")
    fleets = [(f"4 both, {tokens} batched tokens", limited(together, 0, batched_tokens=tokens)) for tokens in BUDGETS]
    fleets += [(f"{p} prefill + {4 - p} decode", divided(apart, p, 4 - p)) for p in (2, 3)]
    for name, fleet in fleets:
        seen = stageline.run(fleet, PREFILL_HEAVY.at(6), seed=1, keep_requests=False).summary
        yield (
            f"{name:28} ITL p50 {seen.itl_s.p50:.4f} s  p99 {seen.itl_s.p99:.4f} s   "
            f"TTFT p50 {seen.ttft_s.p50:5.2f} s  p99 {seen.ttft_s.p99:5.2f} s"
        )


def goodputs() -> Iterator[str]:
    """The best of both arrangements, by traffic and objective."""
    together, apart = example("together"), example("apart")
    for traffic, slo in ((PREFILL_HEAVY, SLO), (PREFILL_HEAVY, RELAXED), (DECODE_HEAVY, SLO)):
        yield f"{traffic.prompt} tokens in, {traffic.output} out, {slo}"
        for tokens in BUDGETS:
            found = goodput(limited(together, 0, batched_tokens=tokens), traffic, slo)
            yield f"  {f'4 both, {tokens} batched tokens':30}{found:5.1f} requests/s"
        for prefill in (1, 2, 3):
            found = goodput(divided(apart, prefill, 4 - prefill), traffic, slo)
            yield f"  {f'{prefill} prefill + {4 - prefill} decode':30}{found:5.1f} requests/s"


def stranding() -> Iterator[str]:
    """Six devices at 1 request/s, with one decode replica and with two."""
    for replicas in ((2, 1), (1, 2)):
        run = stageline.run(divided(example("stranded"), *replicas), STRANDED.at(1), seed=1)
        prefill, decode = run.summary.pools
        found = pinned(run)
        yield (
            f"{replicas[0]} prefill + {replicas[1]} decode: {run.summary.requests_per_s:.2f} requests/s, "
            f"{found.prompts} prompts pinned for {found.stopped_ratio:.0%} of the run, "
            f"prefill busy {prefill.busy_ratio:.0%}, decode busy {decode.busy_ratio:.0%}, "
            f"TTFT p50 {run.summary.ttft_s.p50:.1f} s"
        )


def rates() -> Iterator[str]:
    """Throughput in saturation against the capacity of each pool alone."""
    one, decode = prefill_capacity(1), saturated(8)
    for replicas in (1, 2, 3, 4):
        found, expected = saturated(replicas), min(replicas * one, decode)
        yield (
            f"{replicas} prefill + 1 decode: {found:.3f} requests/s, min({replicas * one:.3f}, {decode:.3f}), "
            f"{found / expected - 1:+.2%}"
        )


def saturated(prefill: int, requests: int = 600) -> float:
    """Requests per second of so many prefill replicas and one that decodes 16 at once, with 96 always here."""
    fleet = limited(divided(example("apart"), prefill, 1), 1, microbatch=16, max_running=16)
    return served(fleet, PREFILL_HEAVY.output, requests)


def prefill_capacity(prefill: int, requests: int = 600) -> float:
    """Requests per second of the prefill pool when nothing is decoded."""
    return served(divided(example("apart"), prefill, 1), 1, requests)


def served(fleet: Fleet, output: int, requests: int) -> float:
    """From the tenth of all completions to the ninth tenth, so that neither filling nor draining counts."""
    load = f"closed:users=96,requests={requests},input={PREFILL_HEAVY.prompt},output={output}"
    ends = sorted(r.last_token_ns for r in stageline.run(fleet, load, seed=1).requests if r.last_token_ns is not None)
    first, last = requests // 10, requests * 9 // 10
    return (last - first) * 1e9 / (ends[last] - ends[first])


def networks() -> Iterator[str]:
    """The bandwidth at which 2 prefill + 2 decode serve what the best of 4 both does."""
    together, apart = example("together"), example("apart")
    best = max(goodput(limited(together, 0, batched_tokens=tokens), PREFILL_HEAVY) for tokens in BUDGETS)
    yield f"4 both keep {SLO} at {best} requests/s; break-even at {break_even(apart, PREFILL_HEAVY, best):.1f} GB/s"
    for bytes_per_s in (50 * GIGABYTE, 5 * GIGABYTE, GIGABYTE * 5 // 4):
        yield f"  at {bytes_per_s / 1e9:5.2f} GB/s: {goodput(linked(apart, bytes_per_s), PREFILL_HEAVY):.1f} requests/s"


def published() -> Iterator[str]:
    """llm-d's guide on P/D disaggregation: request latency against what was measured there, in s."""
    for name, measured in LLM_D.items():
        fleet = stageline.plan_fleet(FLEETS / f"gpt-oss-{name}.toml")
        for arrivals in ("constant", "poisson"):
            load = f"{arrivals}:rate=45,input=5000,output=250,requests=5400"
            ours = stageline.run(fleet, load, seed=1, keep_requests=False).summary.e2e_s
            assert ours.mean is not None and ours.p95 is not None
            pairs = [f"{m} {e:.2f} ({e / m - 1:+.0%})" for m, e in zip(measured, (ours.mean, ours.p95), strict=True)]
            yield f"{name:9} {arrivals:9} mean {pairs[0]}, p95 {pairs[1]}"


def main() -> int:
    """The command."""
    parts = {part.__name__: part for part in (gaps, goodputs, stranding, networks, rates, published)}
    for part in [parts[name] for name in sys.argv[1:] or parts]:
        print(part.__doc__)
        for line in part():
            print(line, flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
