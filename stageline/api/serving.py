"""The serving engine of a plan or a run: found by name or file, and turned into settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from stageline.api.files import read_file
from stageline.api.graphs import captured_sizes
from stageline.api.keywords import PlanKeywords
from stageline.catalog.decode import parse_toml
from stageline.catalog.engine_file import EngineLimits, ServingEngine, engine_entry
from stageline.catalog.loader import Catalog
from stageline.cost.totals import BatchTotals
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.settings import Scheduling, data_parallel_ranks, plan_scheduling
from stageline.errors import BadInput, StagelineError, UsageError
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.options import DEFAULT_CONTEXT_TOKENS, EngineRules, PlanOptions
from stageline.plan.schema import Plan
from stageline.plan.sizing import credits_for, serving
from stageline.plan.timing import decode_totals, pipeline_timing

FLAG = "--serving-engine"


def find_engine(asked: PlanKeywords, device: Device, shelf: Catalog) -> ServingEngine:
    """The serving engine that was asked for, else the default of the device's class. Raises BadInput."""
    name = asked.get("serving_engine")
    return named_engine(name, shelf) if name else shelf.engine_for(device.kind).engine


def named_engine(text: str, shelf: Catalog) -> ServingEngine:
    """The serving engine of that name, or in that TOML file. Raises BadInput."""
    if "/" in text or text.endswith(".toml"):
        engine = engine_entry(parse_toml(read_file(Path(text)), text), text).engine
    else:
        engine = shelf.engine(text).engine
    _check_policies(engine, f"{FLAG} {text}")
    return engine


def _check_policies(engine: ServingEngine, place: str) -> None:
    for batching in filter(None, (engine.batching, engine.pipelined_batching, engine.async_batching)):
        settings = Scheduling(batching=batching, queueing=engine.queueing, kv=engine.kv, prefix_cache=True)
        for registry in (BATCHING, QUEUEING, KV):
            try:
                registry.check(settings)
            except UsageError as error:
                raise BadInput(place, None, str(error)) from None


def check_length(max_model_len: int | Literal["auto"] | None, spec: ModelSpec) -> None:
    """Refuse a limit above the model's longest context. Raises BadInput."""
    if isinstance(max_model_len, int) and spec.context and max_model_len > spec.context:
        reason = f"{spec.name} has positions for {spec.context:,} tokens"
        raise BadInput("--max-model-len", max_model_len, reason, f"give at most {spec.context}")


def with_engine(options: PlanOptions, engine: ServingEngine, device: Device, asked: PlanKeywords) -> PlanOptions:
    """The planner's options with the engine's rules, and with its defaults for what was not given."""
    limits, tokens = engine.limits_of(device), asked.get("batched_tokens")
    rank_tokens = asked.get("max_num_batched_tokens")
    if tokens is not None and rank_tokens is not None:
        raise UsageError("--batched-tokens and --max-num-batched-tokens both bound new tokens: give one of them")
    if tokens is None and rank_tokens is None:
        rank_tokens = limits.max_num_batched_tokens
    ranks, asynchronous = options.group.attention_replicas, asked.get("async_scheduling")
    if asynchronous is not None and not (engine.host_sequence_ns or engine.async_batching):
        reason = f"the profile of {engine.name} has neither the host's time nor another way of batching for it"
        raise UsageError(f"--{'' if asynchronous else 'no-'}async-scheduling: {reason}: leave it out")
    drafts = options.draft.tokens if options.draft else 0
    graphs = captured_sizes(engine, device, asked, options.tensor_parallel, drafts)
    return msgspec.structs.replace(
        options,
        host=options.host._replace(graphs=graphs),
        engine_sequence_ns=0.0 if own_host(options, asked) else float(engine.host_sequence_ns),
        async_scheduling=asynchronous,
        batched_tokens=tokens or (rank_tokens or 0) * ranks,
        rank_tokens=rank_tokens,
        max_num_seqs=asked.get("max_num_seqs") or limits.max_num_seqs,
        block_tokens=asked.get("block_tokens") or engine.block_tokens,
        credits_rule=engine.credits,
        memory_share=_memory_share(options, engine, device, rank_tokens or tokens or 1),
        activations=engine.activations if (chosen := asked.get("activations", "auto")) == "auto" else chosen,
        serving=_rules(engine),
    )


def own_host(options: PlanOptions, asked: PlanKeywords) -> bool:
    """Whether the host's times were given or measured, so that those of the serving engine do not count."""
    given = (asked.get("host_floor_ns"), asked.get("host_step_ns"), asked.get("host_sequence_ns"))
    return options.efficiencies is not None or any(time is not None for time in given)


def _memory_share(options: PlanOptions, engine: ServingEngine, device: Device, tokens: int) -> float | None:
    """The share that was given, or else the engine's default, if it has one of its own."""
    if options.memory_share is not None or engine.reserve is None:
        return options.memory_share
    limits = engine.limits_of(device)
    most = engine.graph_most(limits, options.tensor_parallel, limits.max_num_seqs)
    stages = (options.devices or options.stage_devices) // options.stage_devices
    return engine.reserve.share(device.memory_bytes, tokens, most, options.tensor_parallel * stages)


def engine_scheduling(plan: Plan, text: str | None, folders: Sequence[Path] = ()) -> Scheduling:
    """The settings of a run as the plan's serving engine drives it, or the engine that `text` names.

    Another engine than the plan's changes the settings of the run; shape, costs, memory and KV blocks stay. Raises
    BadInput.
    """
    if text is None:
        return plan_scheduling(plan)
    shelf = Catalog(folders)
    engine = named_engine(text, shelf)
    limits = _limits_on(engine, plan, shelf)
    ranks = data_parallel_ranks(plan)
    rules = _options(engine, limits, ranks)
    serves = serving(plan.stages, rules)
    if serves and plan.serving:  # what drafts is in the plan's weights and costs, whoever schedules
        serves = msgspec.structs.replace(serves, speculate=plan.serving.speculate)
    timing = pipeline_timing(len(plan.stages), plan.visits, plan.links, plan.costs, _decode(plan))
    return msgspec.structs.replace(
        plan_scheduling(msgspec.structs.replace(plan, serving=serves)),
        credits=credits_for(len(plan.stages), timing, rules),
        batched_tokens=limits.max_num_batched_tokens * ranks,
    )


def _limits_on(engine: ServingEngine, plan: Plan, shelf: Catalog) -> EngineLimits:
    try:
        return engine.limits_of(shelf.device(plan.device).device)
    except StagelineError:  # a device that the catalogue does not have: its memory decides
        first = plan.stages[0]
        return engine.limits_on(plan.device, "", first.memory_bytes // first.devices)


def _options(engine: ServingEngine, limits: EngineLimits, ranks: int) -> PlanOptions:
    return PlanOptions(
        expert_parallel=ranks, max_num_seqs=limits.max_num_seqs, credits_rule=engine.credits, serving=_rules(engine)
    )


def _rules(engine: ServingEngine) -> EngineRules:
    same = {name: getattr(engine, name) for name in EngineRules._fields if name != "engine"}
    return EngineRules(engine=engine.name, **same)


def _decode(plan: Plan) -> BatchTotals:
    """A decode step of the nominal microbatch at the planned context."""
    return decode_totals(plan.defaults.microbatch, int(plan.info.get("context_tokens", DEFAULT_CONTEXT_TOKENS)))
