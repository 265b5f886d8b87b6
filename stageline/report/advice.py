"""What a run's figures suggest to try next. Each piece of advice rests on one figure and names it."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from stageline.engine.types import StageRecord
from stageline.plan.advice import IMBALANCE
from stageline.plan.schema import Plan
from stageline.report.figures import cause_shares, in_flight, token_pace
from stageline.report.mistakes import mistakes
from stageline.report.summary import Advice, Summary

NOTABLE = 0.10  # share of the stages' time with work in the system from which a cause deserves a line
SHORT_RUN = 0.20  # share of fill and drain from which a run says little about the steady state
OVERLOAD = 0.5  # share of the end-to-end time that a median request queues
NOT_FULL = 0.25  # share of a stage's time starved from which the others' upstream gaps are of that making too


class Diagnosis(NamedTuple):
    """A cause, the share of the stages' time that it took, and the run it took it in."""

    plan: Plan
    summary: Summary
    stages: Sequence[StageRecord]
    share: float


def advise(plan: Plan, summary: Summary, stages: Sequence[StageRecord]) -> list[Advice]:
    """The most telling first; empty when nothing stands out."""
    shares = cause_shares(stages)
    lines = [*_requests(summary, plan.max_context_tokens), *_load(summary, shares)]
    not_full = max((s.idle_ns.get("starved", 0) / s.window_ns for s in stages if s.window_ns), default=0.0)
    if not_full >= NOT_FULL:
        lines.append(_few(plan, summary, not_full, shares))
    for cause in sorted((c for c in _CAUSES if shares[c]), key=lambda c: -shares[c]):
        told = not_full >= NOT_FULL and (cause == "starved" or (cause == "upstream" and not _uneven(stages)))
        if shares[cause] >= NOTABLE * (1 - shares["empty"]) and not told:
            lines.append(_CAUSES[cause](Diagnosis(plan, summary, stages, shares[cause])))
    return [*lines, *mistakes(plan, summary, stages)]


def _requests(summary: Summary, context: int) -> Iterator[Advice]:
    counts = summary.requests
    if counts["refused"]:
        limit = f"exceed the model's context of {context:,} tokens, or " if context else ""
        yield Advice(
            f"{counts['refused']:,} of {counts['total']:,} requests were refused: they {limit}fit no empty KV ledger",
            "shorten them, or plan with --context as long as they are, or more devices",
        )
    if summary.preemptions > 0.05 * counts["total"]:
        yield Advice(
            f"{summary.preemptions:,} preemptions: prompts were computed again",
            "use --kv reserve, a lower --max-running, or plan with more KV room",
        )


def _load(summary: Summary, shares: dict[str, float]) -> Iterator[Advice]:
    queue, whole = summary.queue_s.p50, summary.e2e_s.p50
    if queue is not None and whole and queue > OVERLOAD * whole:
        yield Advice(
            f"Half of the requests queue for {queue / whole:.0%} of their time or longer: the load is above capacity",
            f"lower the rate below {summary.requests_per_s:,.3g} requests/s, or add --replicas",
        )
    edges = shares["fill"] + shares["drain"]
    if edges > SHORT_RUN:
        yield Advice(
            f"Filling and draining the pipeline took {edges:.0%} of the stages' time: the run is short",
            "give more --requests before judging throughput",
        )
    if shares["empty"] > 0.5:
        yield Advice(
            f"No request was in the system for {shares['empty']:.0%} of the time: these are idle latencies",
            "raise --rate-scale to see it under load",
        )


def _few(plan: Plan, summary: Summary, not_full: float, shares: dict[str, float]) -> Advice:
    """Starved where it shows most; the stages behind wait for what comes from there."""
    served, knee = in_flight(summary), token_pace(plan, summary).knee * plan.replicas
    fills = f"raise the load (--rate-scale, more users): about {knee:,} requests at once fill it"
    return Advice(
        f"Too few are in flight to fill the pipeline: {summary.bubble_ratio:.0%} of the time with work is bubble, with "
        f"{served:.3g} requests served at once; stages wait for tokens to come back for {shares['starved']:.0%} of the "
        f"time (starved; {not_full:.0%} where it is most), and for each other for {shares['upstream']:.0%} (upstream)",
        fills if served < knee else "lower --microbatch so that the same requests fill more of the pipeline",
    )


def _uneven(stages: Sequence[StageRecord]) -> bool:
    busy = [s.busy_ns for s in stages]
    return max(busy) > IMBALANCE * sum(busy) / len(busy)


def _starved(f: Diagnosis) -> Advice:
    """Enough requests, in too few microbatches."""
    return Advice(
        f"Stages wait for tokens to come back for {f.share:.0%} of the time (starved): too few microbatches are in "
        f"flight for the {in_flight(f.summary):.3g} requests that are served at once",
        "lower --microbatch so that the same requests fill more of the pipeline",
    )


def _credit(f: Diagnosis) -> Advice:
    return Advice(
        f"Work waits for one of {f.summary.credits} credits for {f.share:.0%} of the stages' time",
        f"try --credits {2 * f.summary.credits}: throughput rises until the busiest stage is full",
    )


def _upstream(f: Diagnosis) -> Advice:
    busy = [s.busy_ns for s in f.stages]
    mean, top = sum(busy) / len(busy), max(busy)
    where = f"stage {f.summary.busiest_stage} is busy {top / mean:.2f} x the mean" if mean else "no stage was busy"
    if _uneven(f.stages):
        return Advice(
            f"Stages wait for the ones before them for {f.share:.0%} of the time (upstream); {where}",
            "plan again with layers spread by time, or give that stage more devices",
        )
    return Advice(
        f"Stages wait for the ones before them for {f.share:.0%} of the time (upstream), though they are even: "
        "microbatches differ in size, and prompts hold up decodes",
        "try a smaller --batched-tokens, which cuts prompts into smaller chunks",
    )


def _hop(f: Diagnosis) -> Advice:
    return Advice(
        f"Stages wait for the last link for {f.share:.0%} of the time (hop)",
        "a faster link, or fewer stages of more devices each; more microbatches in flight hide it too",
    )


_CAUSES: dict[str, Callable[[Diagnosis], Advice]] = {
    "starved": _starved,
    "credit": _credit,
    "upstream": _upstream,
    "hop": _hop,
}
