"""Flags that several commands share: each field is one flag. `stageline run --help` prints them."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from cyclopts import Group, Parameter

from stageline.cli.execution import SpecFields
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.engine.policies.axes import AXES, check_policies
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import MAX_COUNT, MAX_SEED, Scheduling
from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import Slo
from stageline.units import NS_PER_S, parse_duration_ns
from stageline.workload import DescribedWorkload, open_workload

Preset = Literal["vllm"]
VLLM_MAX_NUM_SEQS = 256  # vLLM's long-standing default of --max-num-seqs
MAX_OVERHEAD_NS = 900 * NS_PER_S
_NUMBERS = ("microbatch", "credits", "batched_tokens", "max_running", "snapshot_tokens")

_WORKLOAD = Group.create_ordered("Workload")
_SCHEDULING = Group.create_ordered("Scheduling")


@Parameter(name="*", group=_WORKLOAD)
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFlags:
    """Where requests come from."""

    workload: Annotated[
        str, Parameter(help="trace FILE, or poisson:|gamma:|constant:|closed:|sessions: with rate=, input=, ...")
    ]
    seed: Annotated[int, Parameter(help="of every random draw, 0 or more")] = 0
    rate_scale: Annotated[str, Parameter(help="arrivals come that many times as fast")] = "1"
    requests: Annotated[int | None, Parameter(help="at most so many requests")] = None
    skip_bad_rows: Annotated[bool, Parameter(negative="", help="leave bad rows out and count them")] = False
    sort: Annotated[bool, Parameter(negative="", help="read all rows first and sort them by time")] = False

    def open(self) -> DescribedWorkload:
        """The source. BadInput names what is wrong with it."""
        check_seed(self.seed)
        return open_workload(
            self.workload,
            seed=self.seed,
            rate_scale=self.rate_scale,
            requests=self.requests,
            skip_bad_rows=self.skip_bad_rows,
            sort=self.sort,
        )

    def spec(self) -> SpecFields:
        """The same as a router takes it, which makes reactive workloads itself."""
        return SpecFields(text=self.workload, seed=self.seed, rate_scale=self.rate_scale, requests=self.requests or 0)


@Parameter(name="*", group=_SCHEDULING)
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingFlags(SpeculationFlags):
    """How the router schedules. What is not given is the preset's, or the plan's."""

    microbatch: Annotated[int | None, Parameter(help="Largest number of sequences in a microbatch.")] = None
    credits: Annotated[int | None, Parameter(help="Microbatches in flight per replica.")] = None
    batched_tokens: Annotated[int | None, Parameter(help="Largest number of new tokens in a microbatch.")] = None
    max_running: Annotated[int | None, Parameter(help="Largest number of admitted sequences per replica.")] = None
    batching: Annotated[str | None, Parameter(help=f"Size of microbatches: {BATCHING.choices}.")] = None
    queueing: Annotated[str | None, Parameter(help=f"Order of waiting requests: {QUEUEING.choices}.")] = None
    kv: Annotated[str | None, Parameter(help=f"KV for all tokens up front, or block by block: {KV.choices}.")] = None
    balance: Annotated[str | None, Parameter(help=f"Replica of an arriving request: {ROUTING.choices}.")] = None
    prefix_cache: Annotated[bool, Parameter(negative="", help="Keep the KV of prompts and reuse it.")] = False
    snapshot_tokens: Annotated[
        int | None, Parameter(help="Prefix cache: distance of the linear layers' state snapshots; 8192 by default.")
    ] = None
    overhead: Annotated[str | None, Parameter(help="Router time per microbatch, like 50us.")] = None
    policy: Annotated[str | None, Parameter(show=False)] = None  # older name of --queueing package.module:Class
    preset: Annotated[Preset | None, Parameter(help="Settings of a serving engine; single flags override them.")] = None

    def settings(self, plan: Plan, slo: Slo | None, base: Scheduling = Scheduling()) -> Scheduling:  # noqa: B008  (frozen)
        """The engine's settings: `base` with what was given. UsageError or BadInput, naming the flag."""
        given: dict[str, object] = {name: value for name in _NUMBERS if (value := self._positive(name)) is not None}
        given |= {axis: name for axis in AXES if (name := getattr(self, axis)) is not None}
        if self.policy is not None:
            given["queueing"] = self.policy
        if self.prefix_cache:
            given["prefix_cache"] = True
        elif not base.prefix_cache and self.snapshot_tokens is not None:
            raise UsageError("--snapshot-tokens needs a prefix cache: add --prefix-cache")
        if self.overhead is not None:
            overhead_ns = given["overhead_ns"] = parse_duration_ns(self.overhead, "--overhead")
            if overhead_ns > MAX_OVERHEAD_NS:
                raise BadInput("--overhead", self.overhead, "above 15 minutes per microbatch", "give a shorter time")
        given |= self.given(base.speculate)
        if self.preset == "vllm":
            given = _vllm(plan, self.max_running or VLLM_MAX_NUM_SEQS) | given
        batching = BATCHING.built_in.get(str(given.get("batching")))
        if batching is not None and batching.needs_tpot_slo and slo is not None:
            given["tpot_slo_ns"] = slo.tpot_ns
        settings = msgspec.structs.replace(base, **given)
        check_policies(settings)
        return settings

    def _positive(self, name: str) -> int | None:
        value: int | None = getattr(self, name)
        if value is not None and not 1 <= value <= MAX_COUNT:
            reason = "not a positive number" if value < 1 else "too large"
            raise BadInput(f"--{name.replace('_', '-')}", value, reason, f"give 1 to {MAX_COUNT:,}")
        return value


def check_seed(seed: int) -> None:
    """Raises BadInput for a seed that is not between 0 and 2**63 - 1."""
    if not 0 <= seed <= MAX_SEED:
        raise BadInput("--seed", seed, "not between 0 and 2**63 - 1", "give a seed in that range")


def _vllm(plan: Plan, max_num_seqs: int) -> dict[str, object]:
    """One microbatch in flight per stage, as many sequences as run in each, KV by block with preemption."""
    return {
        "credits": len(plan.stages),
        "max_running": max_num_seqs,
        "microbatch": max_num_seqs,
        "batching": "greedy",
        "kv": "grow",
    }
