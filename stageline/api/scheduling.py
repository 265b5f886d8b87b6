"""How a run is scheduled: what the workload brings along, then a preset, then what the caller sets."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stageline.engine.policies.all_policies import check_policies
from stageline.engine.policies.batching import BATCHING
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import Slo
from stageline.workload import DescribedWorkload
from stageline.workload.recording import RecordedWorkload

Preset = Literal["vllm"]
VLLM_MAX_NUM_SEQS = 256  # vLLM's long-standing default of --max-num-seqs


def base_scheduling(workload: DescribedWorkload, seed: int) -> Scheduling:
    """The settings of a recorded session, else the defaults. Raises UsageError for a recording with another seed."""
    if not isinstance(workload, RecordedWorkload):
        return Scheduling(hash_block_tokens=workload.hash_block_tokens)
    if workload.header.seed != seed:
        recorded = workload.header.seed
        raise UsageError(f"the session was recorded with seed {recorded}: give --seed {recorded}")
    return workload.header.scheduling


def resolve_scheduling(
    base: Scheduling, given: Mapping[str, Any], plan: Plan, *, slo: Slo | None = None, preset: Preset | None = None
) -> Scheduling:
    """`base`, changed by the preset and then by what was given. UsageError for settings that contradict each other."""
    if preset == "vllm":
        given = _vllm(plan, given.get("max_running") or VLLM_MAX_NUM_SEQS) | dict(given)
    wanted = msgspec.structs.asdict(base) | dict(given)
    if not wanted["prefix_cache"] and "snapshot_tokens" in given:
        raise UsageError("--snapshot-tokens needs a prefix cache: add --prefix-cache")
    check_drafts(base, given)
    batching = BATCHING.built_in.get(str(given.get("batching")))
    if batching is not None and batching.needs_tpot_slo and slo is not None:
        wanted["tpot_slo_ns"] = slo.tpot_ns
    try:
        settings = msgspec.convert(wanted, Scheduling)
    except msgspec.ValidationError as error:
        raise UsageError(f"scheduling: {error}") from None
    check_policies(settings)
    return settings


def check_drafts(base: Scheduling, given: Mapping[str, Any]) -> None:
    """Draft tokens and their acceptance go together. Raises UsageError."""
    drafts = given.get("speculate", base.speculate)
    if drafts and not base.speculate and "acceptance_ppm" not in given:
        raise UsageError("--speculate needs the probability that a draft is accepted: give --acceptance 0.7")
    for name, flag in (("acceptance_ppm", "--acceptance"), ("draft_ns", "--draft-cost")):
        if name in given and not drafts:
            raise UsageError(f"{flag} needs draft tokens: give --speculate 4")


def _vllm(plan: Plan, max_num_seqs: int) -> dict[str, Any]:
    """One microbatch in flight per stage, as many sequences as run in each, KV by block with preemption."""
    return {
        "credits": len(plan.stages),
        "max_running": max_num_seqs,
        "microbatch": max_num_seqs,
        "batching": "greedy",
        "kv": "grow",
    }
