"""What binds in a run: each line rests on one figure, names it, and says what can move it.

Nothing here is advice: what a setting does to a run takes a trial of it, which `stageline tune` makes.
"""

from collections.abc import Iterator, Mapping, Sequence

from stageline.engine.causes import CAUSE, CAUSES
from stageline.engine.types import StageRecord
from stageline.plan.schema import Plan
from stageline.report.idle import cause_shares, share_with_work
from stageline.report.plan_advice import plan_advice
from stageline.report.pool_advice import NOTABLE, pool_advice
from stageline.report.pools import RunPools
from stageline.report.run_costs import in_flight, token_pace
from stageline.report.summary import Advice, Summary
from stageline.units import figure_text

SHORT_RUN = 0.20  # share of fill and drain above which a run says little about the steady state
IDLE_RUN = 0.5  # share of the time without any request above which latencies are those of an idle system
OVERLOAD = 0.5  # share of the end-to-end time that a median request queues
NOT_FULL = 0.25  # share of its time that a stage is starved: `upstream` then has the same reason
RULED = frozenset({"empty", "kv_blocked", "fill", "drain"})  # causes with a rule of their own


def advise(pools: RunPools, summary: Summary, stages: Sequence[StageRecord]) -> list[Advice]:
    """The most telling first; empty when nothing stands out."""
    shares = cause_shares(stages)
    whole = [*_requests(summary, pools.max_context_tokens or 0), *_load(summary, shares)]
    if len(pools.pools) > 1:
        return [*whole, *pool_advice(pools, stages)]
    plan = pools.pools[0].plan
    return [
        *whole,
        *_causes(plan, summary, stages, shares),
        *plan_advice(plan, summary, stages),
    ]


def _requests(summary: Summary, context: int) -> Iterator[Advice]:
    counts = summary.requests
    if counts["refused"]:
        limit = f"exceed the model's context of {context:,} tokens, or " if context else ""
        yield Advice(
            f"{counts['refused']:,} of {counts['total']:,} requests were refused: they {limit}do not fit even an empty "
            "KV ledger",
            "the length of the requests, and the plan's KV room (--devices, --kv-cache-dtype)",
        )
    if summary.preemptions > 0.05 * counts["total"]:
        yield Advice(
            f"{summary.preemptions:,} preemptions: prompts had to be prefilled again",
            "when KV is allocated (--kv), how many requests run (--max-running), and the plan's KV room",
        )


def _load(summary: Summary, shares: Mapping[str, float]) -> Iterator[Advice]:
    queue, whole = summary.queue_s.p50, summary.e2e_s.p50
    if queue is not None and whole and queue > OVERLOAD * whole:
        yield Advice(
            f"Half of the requests queue for {queue / whole:.0%} of their time or longer; KV ledgers are at most "
            f"{summary.kv_peak_ratio:.0%} full",
            "the load (--rate-scale), what admission waits for (--max-running, --microbatch, --credits, "
            "--batched-tokens, KV room), and --replicas",
        )
    edges = shares["fill"] + shares["drain"]
    if edges > SHORT_RUN:
        yield Advice(
            f"Filling and draining the pipeline took {edges:.0%} of the stages' time: the run is short",
            CAUSE["fill"].moved_by,
        )
    if shares["empty"] > IDLE_RUN:
        yield cause_advice("empty", shares["empty"], {})


def _causes(
    plan: Plan, summary: Summary, stages: Sequence[StageRecord], shares: Mapping[str, float]
) -> Iterator[Advice]:
    """One line per cause that takes much of the time; two causes with one reason share a line."""
    starved = max((s.idle_ns.get("starved", 0) / s.window_ns for s in stages if s.window_ns), default=0.0)
    explained = set(RULED)
    if starved >= NOT_FULL:
        yield _few_in_flight(plan, summary, starved, shares)
        explained |= {"starved", "upstream"}
    notable = NOTABLE * share_with_work(shares)
    for cause in sorted(CAUSES, key=lambda c: -shares[c]):
        if cause in explained or not shares[cause] or shares[cause] < notable:
            continue
        yield cause_advice(cause, shares[cause], run_figures(summary, stages))


def cause_advice(name: str, share: float, figures: Mapping[str, object]) -> Advice:
    """What the table says about a cause that took `share` of the stages' time; `figures` as from `run_figures`."""
    cause = CAUSE[name]
    values = {"share": share, "name": name, "meaning": cause.meaning, **figures}
    return Advice(cause.seen.format(**values), cause.moved_by)


def run_figures(summary: Summary, stages: Sequence[StageRecord]) -> dict[str, object]:
    """What the templates of the causes may mention, beside `share`, `name` and `meaning`."""
    return {
        "in_flight": figure_text(in_flight(summary)),
        "credits": summary.credits,
        "busiest": f"stage {summary.busiest_stage} is busy {_max_over_mean(stages):.2f} x the mean",
    }


def _max_over_mean(stages: Sequence[StageRecord]) -> float:
    """The busiest stage's busy time over the mean of all; 0 if none was busy."""
    busy = [s.busy_ns for s in stages]
    return max(busy) * len(busy) / sum(busy) if any(busy) else 0.0


def _few_in_flight(plan: Plan, summary: Summary, starved: float, shares: Mapping[str, float]) -> Advice:
    """`starved` is the share of the most starved stage; the stages behind it wait for what comes from there."""
    served, knee = in_flight(summary), token_pace(plan, summary).knee * plan.replicas
    fills = f"the load: by the plan's costs, about {knee:,} requests at once fill the pipeline (L/T)"
    return Advice(
        f"Too few microbatches are in flight: {summary.bubble_ratio:.0%} of the time with work is bubbles, with "
        f"{figure_text(served)} requests served at once; stages wait for tokens to come back for "
        f"{shares['starved']:.0%} of the time (starved; {starved:.0%} on the most starved stage), and for those on "
        f"their way for {shares['upstream']:.0%} (upstream)",
        fills if served < knee else CAUSE["starved"].moved_by,
    )
