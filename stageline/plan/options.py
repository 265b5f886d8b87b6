"""The planner's options."""

from typing import Literal, NamedTuple

import msgspec

from stageline.cost.efficiencies import Efficiencies
from stageline.cost.group import Group
from stageline.cost.kernel_profile import KernelProfile
from stageline.cost.profile import Profile
from stageline.cost.roofline_entry import HostOverhead
from stageline.cost.sampling import Sampling
from stageline.hardware.device import Device, MemoryShare
from stageline.plan.drafter import Draft

Placement = Literal["fewest", "by-kind", "interleaved"]
LayerBytes = Literal["exact", "nominal"]
Axis = Literal["tp", "ep", "cp", "pp", "dp"]
AXES: tuple[Axis, ...] = ("tp", "ep", "cp", "pp", "dp")  # the default order, innermost first, if costs are equal

DEFAULT_CONTEXT_TOKENS = 8192
# Of what a plan gets unasked. 2: engines take runtime and activations from their share of memory, and memory is what
# CUDA tells a process; plans without a version are older.
DEFAULTS_VERSION = 2
MAX_MICROBATCH = 64  # sampled rows whose logits count as activations, if no microbatch was given
CreditsRule = Literal["stages", "fill"]  # microbatches in flight: one per stage, or as many as fill the pipeline


class Strides(NamedTuple):
    """Devices from one rank of an axis to the next; 0: the default order of the axes."""

    tp: int = 0
    ep: int = 0
    cp: int = 0
    pp: int = 0
    dp: int = 0


class EngineRules(NamedTuple):
    """How a serving engine schedules. Policies are names of `stageline.engine.policies`."""

    engine: str
    release: str
    batch_holds: Literal["all", "share"]  # at most: all that may run, or an equal share of them per stage
    batching: str
    pipelined_batching: str  # with several stages
    queueing: str
    kv: str
    prefix_cache: bool
    prefix_cache_with_state: bool  # also for models with linear attention
    overhead_ns: int = 0
    front_end_ns: int = 0  # per request, before the scheduler sees it
    async_scheduling: bool = False  # with one stage
    pipelined_async_scheduling: bool = False  # with several stages
    async_batching: str = ""  # with several stages and asynchronous scheduling; empty: pipelined_batching
    sampler_bytes: int = 0  # per running sequence and entry of the vocabulary


TowerMode = Literal["weights", "data"]


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The planner's options. None: the planner's choice, or the device's value."""

    placement: Placement = "fewest"
    consecutive: bool = False  # by-kind only: a stage holds one run of layers
    chunks: int = 1  # interleaved only: runs of layers per stage
    layer_bytes: LayerBytes = "exact"
    layer_partition: str | tuple[int, ...] = "balanced"  # fewest only: layers per stage, or who splits them
    devices: int | None = None  # per replica
    devices_by_stage: tuple[Device, ...] = ()  # fewest only; empty: all stages have the same
    replicas: int = 1
    tensor_parallel: int = 1  # ranks that split every layer
    expert_parallel: int = 1  # ranks that experts are spread over: tensor ranks x attention replicas
    context_parallel: int = 1  # ranks that split long prompts and their KV
    sequence_parallel: bool = False
    overlap: bool = False  # collectives hide behind the work of another half batch
    expert_imbalance: float = 0.0  # exponent of expert popularity; 0: uniform
    redundant_experts: int = 0  # copies of the hottest experts of every layer, over all expert ranks
    front_end_ns: int | None = None  # per request; None: the profile's, else the serving engine's
    ring_step_ns: int = 0  # overhead of one step of ring attention
    axes: tuple[Axis, ...] = ()  # order from the innermost; empty: chosen by cost
    strides: Strides = Strides()  # set by the planner, from the order of the axes
    host: HostOverhead = HostOverhead()
    sampling: Sampling = Sampling()
    engine_sequence_ns: float = 0.0  # host time of the serving engine per sequence and step of a data-parallel rank
    async_scheduling: bool | None = None  # that time hides behind the devices'; None: the engine's default
    context_tokens: int | None = None
    concurrency: int = 1  # requests of that context that must fit every stage
    memory_share: float | None = None
    activations: MemoryShare = "reserve"  # see `stageline.plan.memory`
    hop_latency_ns: int | None = None
    hop_bytes_per_s: int | None = None
    hop_jitter_ns: int = 0
    microbatch: int | None = None
    credits: int | None = None
    batched_tokens: int = 2048
    rank_tokens: int | None = None  # of one data-parallel rank; replaces `batched_tokens`
    max_num_seqs: int | None = None  # most running sequences of one data-parallel rank
    max_model_len: int | None = None  # longest prompt and output together; None: the model's
    longest_that_fits: bool = False  # in place of max_model_len: what the KV cache holds of one request
    kv_blocks: int | None = None  # KV blocks of every stage; None: what memory holds
    kv_cache_bytes: int | None = None  # memory of every device for KV and state; None: what memory_share leaves
    prefix_cache: bool | None = None  # None: the serving engine's default
    credits_rule: CreditsRule = "fill"
    serving: EngineRules | None = None
    draft: Draft | None = None  # what drafts tokens beside the last layers
    block_tokens: int = 16
    language_model_only: bool = False  # no vision tower
    tower_mode: TowerMode = "weights"  # ranks divide its weights, or each of them holds it
    whole_kv: bool = False  # sliding-window layers keep KV of the whole context
    profile: Profile | KernelProfile | None = None  # measured costs instead of the roofline
    efficiencies: Efficiencies | None = None  # fitted shares of the peaks instead of the catalogue's

    @property
    def group(self) -> Group:
        """The devices of one stage. Expert ranks beyond the tensor ranks are attention replicas."""
        return Group(
            tensor=self.tensor_parallel,
            context=self.context_parallel,
            attention_replicas=max(1, self.expert_parallel // self.tensor_parallel),
            experts=self.expert_parallel > 1,
            redundant_experts=self.redundant_experts,
            sequence_parallel=self.sequence_parallel,
            overlap=self.overlap,
            ring_step_ns=float(self.ring_step_ns),
            tensor_stride=self.strides.tp or 1,
            outer_stride=self.strides.ep if self.expert_parallel > self.tensor_parallel else self.strides.cp,
        )

    def device_of(self, stage: int, device: Device) -> Device:
        """The device of a stage; `device` unless every stage has its own."""
        return self.devices_by_stage[stage] if self.devices_by_stage else device

    @property
    def max_running(self) -> int | None:
        """Most running sequences of one replica: `max_num_seqs` on each of its data-parallel ranks; None: no limit."""
        return None if self.max_num_seqs is None else self.max_num_seqs * self.group.attention_replicas

    @property
    def stage_devices(self) -> int:
        """Devices per stage."""
        return self.group.devices
