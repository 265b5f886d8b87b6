"""How a run is scheduled: by a recorded session or the serving engine, then by what the caller sets."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stageline.engine.policies.all_policies import check_policies
from stageline.engine.policies.batching import BATCHING
from stageline.engine.settings import Scheduling, data_parallel_ranks
from stageline.errors import UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import Slo
from stageline.workload import DescribedWorkload
from stageline.workload.recording import RecordedWorkload

Preset = Literal["vllm"]
PRESETS = {"vllm": "vllm-v1"}  # older names of serving engines
_RANK_LIMITS = (  # of one data-parallel rank; the field of Scheduling, of the whole replica; the flag of that field
    ("max_num_seqs", "max_running", "--max-running"),
    ("max_num_batched_tokens", "batched_tokens", "--batched-tokens"),
)


def base_scheduling(workload: DescribedWorkload, seed: int, engine: Scheduling) -> Scheduling:
    """The settings of a recorded session, else those of the serving engine.

    Raises UsageError for a recording with another seed.
    """
    if not isinstance(workload, RecordedWorkload):
        return msgspec.structs.replace(engine, hash_block_tokens=workload.hash_block_tokens)
    check_recorded_seed(workload, seed)
    if workload.header.fleet_digest:
        raise UsageError("the session was recorded on a fleet, which has its own settings: run it on that fleet")
    return workload.header.scheduling


def check_recorded_seed(workload: RecordedWorkload, seed: int) -> None:
    """Raises UsageError for another seed than the recorded one."""
    recorded = workload.header.seed
    if recorded != seed:
        raise UsageError(f"the session was recorded with seed {recorded}: give --seed {recorded}")


def settle(
    base: Scheduling, given: Mapping[str, Any], plan: Plan, *, slo: Slo | None = None, own: bool = False
) -> Scheduling:
    """`base`, changed by what was given. Raises UsageError for what contradicts itself.

    A base that is not the caller's `own` comes from a file, which may not name code to import.
    """
    if not own:
        _check_named(base, given)
    given = _of_replica(base, given, plan)
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


def _check_named(base: Scheduling, given: Mapping[str, Any]) -> None:
    for axis in ("batching", "queueing", "kv", "balance"):
        named = getattr(base, axis)
        if ":" in named and axis not in given:
            raise UsageError(
                f"the recording or plan names the {axis} policy {named}, which is code to import: give "
                f"--{axis} {named} to run it, or --{axis} with another policy"
            )


def _of_replica(base: Scheduling, given: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """What was given, with an engine's limits per data-parallel rank as limits of the replica. Raises UsageError."""
    found, ranks = dict(given), data_parallel_ranks(plan)
    for name, field, flag in _RANK_LIMITS:
        limit = found.pop(name, None)
        if limit is None:
            continue
        if found.get(field) is not None:
            raise UsageError(f"--{name.replace('_', '-')} and {flag} both set the same limit: give one of them")
        found[field] = limit * ranks
    if "max_running" in found and base.microbatch and base.max_running and "microbatch" not in found:
        share = base.microbatch * found["max_running"] // base.max_running  # of all that run, in one batch
        found["microbatch"] = max(1, share)
    return found


def check_drafts(base: Scheduling, given: Mapping[str, Any]) -> None:
    """Draft tokens and their acceptance go together. Raises UsageError."""
    drafts = given.get("speculate", base.speculate)
    if drafts and not base.acceptance_ppm and "acceptance_ppm" not in given:
        whose = "the plan drafts tokens, which" if "speculate" not in given else "--speculate"
        raise UsageError(f"{whose} needs the probability that a draft is accepted: give --acceptance 0.7")
    for name, flag in (("acceptance_ppm", "--acceptance"), ("draft_ns", "--draft-cost")):
        if name in given and not drafts:
            raise UsageError(f"{flag} needs draft tokens: give --speculate 4")
