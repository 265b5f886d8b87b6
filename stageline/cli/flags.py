"""Flags that several commands share: each field is one flag. `stageline run --help` prints them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stageline.api.execution import WorkloadText
from stageline.api.running import check_seed
from stageline.api.scheduling import PRESETS, Preset, settle
from stageline.api.serving import engine_scheduling
from stageline.cli.groups import COST, SCHEDULING, WORKLOAD
from stageline.cli.numbers import WHOLE
from stageline.cli.speculation_flags import SpeculationFlags
from stageline.engine.policies.all_policies import POLICIES
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.policies.routing import ROUTING
from stageline.engine.settings import MAX_COUNT, Scheduling
from stageline.errors import BadInput, UsageError
from stageline.plan.schema import Plan
from stageline.report.slo import Slo
from stageline.units import NS_PER_S, parse_duration_ns
from stageline.workload import DescribedWorkload, open_workload

MAX_OVERHEAD_NS = 900 * NS_PER_S
_NUMBERS = (
    "microbatch", "credits", "batched_tokens", "max_running", "max_num_seqs", "max_num_batched_tokens",
    "snapshot_tokens",
)  # fmt: skip


@Parameter(name="*", group=WORKLOAD)
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFlags:
    """Which requests arrive, and when."""

    workload: Annotated[
        str,
        Parameter(
            help="Trace file, or poisson:, gamma:, constant:, closed: or sessions: with options like rate=4,input=1024."
        ),
    ]
    seed: Annotated[int, WHOLE, Parameter(help="Seed of every random draw, 0 or more.")] = 0
    rate_scale: Annotated[str, Parameter(help="Factor on the arrival rate, like 2, 0.5 or 3/2.")] = "1"
    requests: Annotated[int | None, WHOLE, Parameter(help="Maximum number of requests; default: all.")] = None
    skip_bad_rows: Annotated[bool, Parameter(negative="", help="Skip bad rows and count them.")] = False
    sort: Annotated[bool, Parameter(negative="", help="Read all rows first and sort them by time.")] = False

    def open(self) -> DescribedWorkload:
        """The workload. BadInput names what is wrong with it."""
        check_seed(self.seed)
        return open_workload(
            self.workload,
            seed=self.seed,
            rate_scale=self.rate_scale,
            requests=self.requests,
            skip_bad_rows=self.skip_bad_rows,
            sort=self.sort,
        )

    def text(self) -> WorkloadText:
        """As a router takes it, which makes reactive workloads itself."""
        return WorkloadText(
            text=self.workload,
            seed=self.seed,
            rate_scale=self.rate_scale,
            requests=self.requests or 0,
            skip_bad_rows=self.skip_bad_rows,
            sort=self.sort,
        )


@Parameter(name="*", group=SCHEDULING)
@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingFlags:
    """How the router schedules. What is not given is the serving engine's, or the plan's."""

    microbatch: Annotated[int | None, WHOLE, Parameter(help="Largest number of sequences in a microbatch.")] = None
    credits: Annotated[int | None, WHOLE, Parameter(help="Microbatches in flight per replica.")] = None
    batched_tokens: Annotated[int | None, WHOLE, Parameter(help="Largest number of new tokens in a microbatch.")] = None
    max_running: Annotated[int | None, WHOLE, Parameter(help="Largest number of running sequences per replica.")] = None
    batching: Annotated[str | None, Parameter(help=f"Size of microbatches: {BATCHING.choices}.")] = None
    queueing: Annotated[str | None, Parameter(help=f"Order of waiting requests: {QUEUEING.choices}.")] = None
    kv: Annotated[str | None, Parameter(help=f"KV for all tokens up front, or block by block: {KV.choices}.")] = None
    balance: Annotated[str | None, Parameter(help=f"Replica of an arriving request: {ROUTING.choices}.")] = None
    max_num_seqs: Annotated[
        int | None, WHOLE, Parameter(help="Largest number of running sequences of a data-parallel rank.")
    ] = None
    max_num_batched_tokens: Annotated[
        int | None, WHOLE, Parameter(help="Largest number of new tokens in a step of a data-parallel rank.")
    ] = None
    prefix_cache: Annotated[
        bool | None,
        Parameter(
            name=("--prefix-cache", "--enable-prefix-caching"),
            negative="--no-enable-prefix-caching",
            help="Keep the KV of prompts and reuse it; default: the serving engine's.",
        ),
    ] = None
    snapshot_tokens: Annotated[
        int | None,
        WHOLE,
        Parameter(help="Tokens between state snapshots of linear layers in the prefix cache; default: 8192."),
    ] = None
    overhead: Annotated[str | None, Parameter(group=COST, help="Router time per microbatch, like 50us.")] = None
    front_end: Annotated[
        str | None, Parameter(group=COST, help="Time from a request's arrival until the router sees it, like 8ms.")
    ] = None
    policy: Annotated[str | None, Parameter(show=False)] = None  # older name of --queueing package.module:Class
    serving_engine: Annotated[
        str | None,
        Parameter(
            name=("--serving-engine", "--engine-profile"),
            help="Schedule as a serving engine does: a name in the catalogue's engines/ or a TOML file; default: the "
            "plan's. Other flags override it.",
        ),
    ] = None
    preset: Annotated[Preset | None, Parameter(show=False)] = None  # older name of --serving-engine vllm-v1
    catalog: Annotated[
        tuple[Path, ...],
        Parameter(negative="", show_default=False, help="Directories with your own engines/."),
    ] = ()
    speculation: SpeculationFlags = SpeculationFlags()  # noqa: RUF009  (frozen)

    @property
    def engine(self) -> str | None:
        """The serving engine that replaces the plan's. Raises UsageError for two of them."""
        if self.preset is None:
            return self.serving_engine
        if self.serving_engine is not None:
            raise UsageError(f"--preset {self.preset} names a serving engine, too: give --serving-engine alone")
        return PRESETS[self.preset]

    def base(self, plan: Plan) -> Scheduling:
        """The settings of the serving engine, before other flags. Raises UsageError or BadInput."""
        return engine_scheduling(plan, self.engine, self.catalog)

    def settings(self, plan: Plan, slo: Slo | None, base: Scheduling | None = None) -> Scheduling:
        """The engine's settings: `base`, by default the serving engine's, changed by the flags given.

        Raises UsageError or BadInput, naming the flag.
        """
        return settle(self.base(plan) if base is None else base, self.given(), plan, slo=slo)

    def given(self) -> dict[str, object]:
        """The settings whose flags were given, as the API names them. Raises UsageError or BadInput."""
        given: dict[str, object] = {name: value for name in _NUMBERS if (value := self._positive(name)) is not None}
        given |= {setting: name for setting in POLICIES if (name := getattr(self, setting)) is not None}
        if self.policy is not None:
            if self.queueing is not None:
                raise UsageError(
                    f"--policy {self.policy} and --queueing {self.queueing} name the same: give --queueing"
                )
            given["queueing"] = self.policy
        if self.prefix_cache is not None:
            given["prefix_cache"] = self.prefix_cache
        return given | self._times() | self.speculation.given()

    def _times(self) -> dict[str, int]:
        """The router's times that were given. Raises BadInput."""
        found = {}
        for flag, text in (("--overhead", self.overhead), ("--front-end", self.front_end)):
            if text is None:
                continue
            name = f"{flag[2:].replace('-', '_')}_ns"
            found[name] = parse_duration_ns(text, flag)
            if found[name] > MAX_OVERHEAD_NS:
                raise BadInput(flag, text, "above 15 minutes", "give a shorter time")
        return found

    def _positive(self, name: str) -> int | None:
        value: int | None = getattr(self, name)
        if value is not None and not 1 <= value <= MAX_COUNT:
            reason = "not a positive number" if value < 1 else "too large"
            raise BadInput(f"--{name.replace('_', '-')}", value, reason, f"give 1 to {MAX_COUNT:,}")
        return value
