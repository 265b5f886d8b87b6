"""The flags of `stageline plan` in their groups, and the keywords of the API that they make. vLLM's names work too."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast, get_args

from cyclopts import Parameter

from stageline.api.keywords import ElementName, PlanKeywords
from stageline.cli.cost_flags import CostFlags
from stageline.cli.engine_flags import MicrobatchFlags
from stageline.cli.groups import DEVICES, MODEL, NETWORK, flag
from stageline.cli.memory_flags import MemoryFlags
from stageline.cli.numbers import WHOLE
from stageline.errors import UsageError
from stageline.plan.options import AXES, Axis, LayerBytes, Placement, TowerMode
from stageline.units import parse_duration_ns, parse_rate_bytes_per_s

ELEMENTS: tuple[str, ...] = get_args(ElementName)


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFlags:
    """Formats of the model. `search` has lists of them."""

    weights: Annotated[
        str, flag("Weight format of all linear layers: as-shipped, bf16, fp8, int8, int4, mxfp4 or nvfp4.")
    ] = "as-shipped"
    kv_cache_dtype: Annotated[ElementName, flag("Type of the KV cache; auto is the model's.")] = "auto"

    def keywords(self) -> PlanKeywords:
        """As the API takes them."""
        return {"weights": self.weights, "kv_cache_dtype": self.kv_cache_dtype}


@Parameter(name="*", group=MODEL)
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The model's state, and where models are found."""

    state_dtype: Annotated[ElementName, flag("Type of the linear-attention state; auto is the model's.")] = "auto"
    quantization: Annotated[
        str | None, flag("The serving engine's own --quantization, such as awq or bitsandbytes.")
    ] = None
    hf_overrides: Annotated[
        str | None, flag("JSON over the model's config.json: rope_scaling or max_position_embeddings.")
    ] = None
    language_model_only: Annotated[bool, Parameter(negative="", help="Load no vision tower of a multimodal model.")] = (
        False
    )
    tower_mode: Annotated[
        TowerMode, flag("Tensor ranks divide the vision tower's weights, or each holds it.", "--mm-encoder-tp-mode")
    ] = "weights"
    catalog: Annotated[
        tuple[Path, ...],
        Parameter(
            negative="",
            show_default=False,
            help="Directories with your own models/, devices/, links/, engines/ and profiles/.",
        ),
    ] = ()

    def keywords(self) -> PlanKeywords:
        """As the API takes them."""
        return {
            "state_dtype": self.state_dtype,
            "quantization": self.quantization,
            "hf_overrides": self.hf_overrides,
            "language_model_only": self.language_model_only,
            "tower_mode": self.tower_mode,
        }


@Parameter(name="*", group=DEVICES)
@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFlags:
    """How a replica is divided. `search` has none of them: it tries them all."""

    devices: Annotated[int | None, WHOLE, flag("Devices per replica; default: as few as fit.")] = None
    replicas: Annotated[
        int, WHOLE, flag("Copies of the pipeline behind one router.", "--replicas", "--data-parallel-size")
    ] = 1
    tensor_parallel: Annotated[
        int, WHOLE, flag("Tensor-parallel ranks per stage.", "--tensor-parallel-size", "--tp")
    ] = 1
    stages: Annotated[
        int | None,
        WHOLE,
        flag(
            "Pipeline stages per replica; default: --devices divided by the devices per stage.",
            "--pipeline-parallel-size",
            "--pp",
        ),
    ] = None
    context_parallel: Annotated[
        int, WHOLE, flag("Context-parallel ranks, which split a prompt and its KV.", "--cp", "--context-parallel-size")
    ] = 1
    expert_parallel: Annotated[
        int, WHOLE, flag("Expert-parallel ranks; beyond --tp they replicate attention.", "--ep")
    ] = 1
    all_experts: Annotated[
        bool,
        flag("Expert parallelism over --tp x --data-parallel-size ranks, as in vLLM.", "--enable-expert-parallel"),
    ] = False

    def keywords(self) -> PlanKeywords:
        """As the API takes them."""
        return {
            "devices": self.devices,
            "stages": self.stages,
            "replicas": self.replicas,
            "tensor_parallel": self.tensor_parallel,
            "expert_parallel": self.expert_parallel,
            "context_parallel": self.context_parallel,
            "all_experts": self.all_experts,
        }


@Parameter(name="*", group=DEVICES)
@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFlags:
    """Which layers go where, and how ranks work together."""

    placement: Annotated[
        Placement,
        flag(
            "Place layers on the fewest devices (consecutive and balanced), by kind (the published rule), or "
            "interleaved (--chunks model chunks per stage)."
        ),
    ] = "fewest"
    devices_by_stage: Annotated[
        str | None,
        flag(
            "Device of every stage, like h100-sxm,l40s or h100-sxm:16,l40s:32 (so many stages); in place of DEVICE.",
            "--stage-devices",
        ),
    ] = None
    layer_partition: Annotated[
        str,
        flag(
            "Layers per stage, like 20,20,20,20 (VLLM_PP_LAYER_PARTITION, SGLANG_PP_LAYER_PARTITION), or who splits "
            "them: balanced (by time, at the plan's microbatch), vllm, sglang, trtllm."
        ),
    ] = "balanced"
    chunks: Annotated[int | None, WHOLE, flag("Runs of layers per stage with --placement interleaved; default: 2.")] = (
        None
    )
    consecutive: Annotated[bool, flag("Let a stage hold consecutive layers only, with --placement by-kind.")] = False
    layer_bytes: Annotated[
        LayerBytes, flag("Count the real bytes of every layer, or one round number for all layers.")
    ] = "exact"
    sequence_parallel: Annotated[bool, flag("Use reduce-scatter and all-gather instead of all-reduce.")] = False
    overlap: Annotated[bool, flag("Overlap the collectives of one half batch with the work of the other.")] = False
    redundant_experts: Annotated[
        int,
        WHOLE,
        flag(
            "Copies of the hottest experts of every layer, over all expert ranks together.",
            "--redundant-experts",
            "--num-redundant-experts",
        ),
    ] = 0

    def keywords(self) -> PlanKeywords:
        """As the API takes them."""
        return {
            "placement": self.placement,
            "devices_by_stage": self.devices_by_stage,
            "layer_partition": self.layer_partition,
            "chunks": self.chunks,
            "consecutive": self.consecutive,
            "layer_bytes": self.layer_bytes,
            "sequence_parallel": self.sequence_parallel,
            "overlap": self.overlap,
            "redundant_experts": self.redundant_experts,
        }


@Parameter(name="*", group=NETWORK)
@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFlags:
    """How devices are wired."""

    axis_order: Annotated[
        str | None, flag("Parallel axes, innermost first, like cp,tp,pp; default: the cheapest order.")
    ] = None
    devices_per_node: Annotated[int | None, WHOLE, flag("Devices that share the scale-up link.")] = None
    scale_up: Annotated[str | None, flag("Catalogue name of the network inside a node.")] = None
    scale_out: Annotated[str | None, flag("Catalogue name of the network across nodes.")] = None
    network: Annotated[str | None, flag("Catalogue name of the network of every hop; default: the device's.")] = None
    hop_latency: Annotated[str | None, flag("Latency of every hop, like 2us.")] = None
    hop_bandwidth: Annotated[str | None, flag("Bandwidth of every hop, like 300GB/s.")] = None
    hop_jitter: Annotated[str, flag("Maximum jitter of every hop.")] = "0ns"

    def keywords(self) -> PlanKeywords:
        """As the API takes them. Raises UsageError or BadInput."""
        latency, bandwidth = self.hop_latency, self.hop_bandwidth
        return {
            "axes": _axes(self.axis_order),
            "devices_per_node": self.devices_per_node,
            "scale_up": self.scale_up,
            "scale_out": self.scale_out,
            "network": self.network,
            "hop_latency_ns": None if latency is None else parse_duration_ns(latency, "--hop-latency"),
            "hop_bytes_per_s": None if bandwidth is None else parse_rate_bytes_per_s(bandwidth, "--hop-bandwidth"),
            "hop_jitter_ns": parse_duration_ns(self.hop_jitter, "--hop-jitter"),
        }


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFlags:
    """What `plan` and `search` share: everything but the division of devices and what a search varies."""

    model: ModelFlags = ModelFlags()
    placement: PlacementFlags = PlacementFlags()
    memory: MemoryFlags = MemoryFlags()  # noqa: RUF009  (frozen)
    network: NetworkFlags = NetworkFlags()
    cost: CostFlags = CostFlags()  # noqa: RUF009  (frozen)

    @property
    def catalog_dirs(self) -> tuple[Path, ...]:
        """Directories of the user's own catalogue."""
        return self.model.catalog

    def keywords(self) -> PlanKeywords:
        """As the API takes them. Raises UsageError or BadInput."""
        found: PlanKeywords = {}
        for group in (self.model, self.placement, self.memory, self.network, self.cost):
            found.update(group.keywords())
        return found


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DesignFlags:
    """Everything of a plan but the division of devices."""

    formats: FormatFlags = FormatFlags()
    fixed: FixedFlags = FixedFlags()
    microbatches: MicrobatchFlags = MicrobatchFlags()  # noqa: RUF009  (frozen)

    @property
    def catalog_dirs(self) -> tuple[Path, ...]:
        """Directories of the user's own catalogue."""
        return self.fixed.catalog_dirs

    def keywords(self) -> PlanKeywords:
        """As the API takes them. Raises UsageError or BadInput."""
        found = self.formats.keywords()
        found.update(self.fixed.keywords())
        found.update(self.microbatches.keywords())
        return found


def _axes(text: str | None) -> tuple[Axis, ...]:
    """ "cp,tp" -> ("cp", "tp"). Raises UsageError."""
    names = text.split(",") if text else []
    if not set(names) <= set(AXES):
        raise UsageError(f"--axis-order {text}: give some of {','.join(AXES)}, each once, innermost first")
    return tuple(cast(list[Axis], names))
