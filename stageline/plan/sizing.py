"""Sizes that follow from memory and from the serving engine: sequences per microbatch, microbatches in flight."""

from collections.abc import Sequence

import msgspec

from stageline.plan.options import EngineRules, PlanOptions
from stageline.plan.schema import Serving, StagePlan
from stageline.plan.timing import PipelineTiming


def for_ranks(options: PlanOptions) -> PlanOptions:
    """The options with the token budget of all data-parallel ranks of a stage, which form one microbatch."""
    if options.rank_tokens is None:
        return options
    tokens = options.rank_tokens * options.group.attention_replicas
    return msgspec.structs.replace(options, batched_tokens=tokens)


def nominal_microbatch(stages: int, requests: int, options: PlanOptions) -> int:
    """ceil(running / stages), with as many running as fit the memory and the engine allows; never below 1."""
    if options.microbatch is not None:
        return options.microbatch
    running = min(requests, options.max_running or requests)
    return max(1, -(-running // stages))


def credits_for(stages: int, timing: PipelineTiming, options: PlanOptions) -> int:
    """Microbatches in flight. A single stage is one engine: one, with all that is ready in it."""
    if options.credits is not None:
        return options.credits
    if stages == 1:
        return 1
    return stages if options.credits_rule == "stages" else max(stages, timing.knee)


def is_asynchronous(stages: int, options: PlanOptions) -> bool:
    """Whether the engine schedules a step while the one before it runs: as asked for, or its default."""
    rules = options.serving
    if options.async_scheduling is not None or rules is None:
        return bool(options.async_scheduling)
    return rules.async_scheduling if stages == 1 else rules.pipelined_async_scheduling


def _batching(stages: int, options: PlanOptions, rules: EngineRules) -> str:
    if stages == 1:
        return rules.batching
    return (is_asynchronous(stages, options) and rules.async_batching) or rules.pipelined_batching


def serving(stages: Sequence[StagePlan], options: PlanOptions) -> Serving | None:
    """How the plan's engine schedules; None if the plan names no engine."""
    rules = options.serving
    if rules is None:
        return None
    running = options.max_running
    states = any(s.state_bytes for s in stages)
    by_default = rules.prefix_cache and (rules.prefix_cache_with_state or not states)
    caching = by_default if options.prefix_cache is None else options.prefix_cache
    return Serving(
        engine=rules.engine,
        release=rules.release,
        batching=_batching(len(stages), options, rules),
        queueing=rules.queueing,
        kv=rules.kv,
        prefix_cache=caching,
        largest_microbatch=0 if options.microbatch else _largest(len(stages), running, rules),
        max_running=running or 0,
        ranks=options.group.attention_replicas,
        overhead_ns=rules.overhead_ns,
        front_end_ns=_front_end_ns(options, rules) or msgspec.UNSET,
        speculate=options.draft.tokens if options.draft else msgspec.UNSET,
    )


def _front_end_ns(options: PlanOptions, rules: EngineRules) -> int:
    """What was asked for, else what was measured, else the engine's."""
    if options.front_end_ns is not None:
        return options.front_end_ns
    return options.efficiencies.front_end_ns if options.efficiencies else rules.front_end_ns


def _largest(stages: int, running: int | None, rules: EngineRules) -> int:
    """The most sequences of a batch; 0: the nominal microbatch, for an engine without a limit of its own."""
    if running is None:
        return 0
    return running if rules.batch_holds == "all" else max(1, running // stages)
