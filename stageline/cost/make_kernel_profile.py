"""Makes a shape profile: a model's operations on a group, looked up in kernel tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stageline.cost.attention_shapes import (
    LINEAR,
    AttentionShapes,
    Heads,
    attention_shapes,
    linear_shapes,
    mla_shapes,
)
from stageline.cost.collective_shapes import by_tokens, custom_sizes, fastest, nccl_sizes
from stageline.cost.comms import COMBINE_BYTES, DISPATCH_BYTES
from stageline.cost.expert_shapes import ExpertShape, ExpertShapes, expert_shapes
from stageline.cost.gemm_shapes import GemmShapes, gemm_shapes
from stageline.cost.group import Group
from stageline.cost.kernel_entry import Folded, elementwise, experts
from stageline.cost.kernel_profile import KernelProfile, LayerTimes, formats_of
from stageline.cost.kernel_rows import KernelTable, Sourced, curve
from stageline.cost.layer_gemms import MLA_MODULE, NamedGemm, layer_gemms
from stageline.cost.measured_entries import Curve, Surface
from stageline.cost.roofline_entry import MOE_OPS
from stageline.errors import BadInput
from stageline.hardware.costs import expert_names, gemm_names
from stageline.hardware.device import Device
from stageline.model.attention import GatedDelta, Gqa, Kda, Mla
from stageline.model.ffn import Moe
from stageline.model.formats import ELEMENT_BYTES, format_named
from stageline.model.spec import Layer, ModelSpec

MLA_OF_THE_TABLES = Mla(heads=128, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)  # DeepSeek-V3
MLA_HIDDEN = 7168

Tables = Mapping[str, Sequence[KernelTable]]  # file name -> tables, the preferred first


class On(NamedTuple):
    """What a profile is for."""

    spec: ModelSpec
    device: Device
    group: Group
    distribution: str = "balanced"


class Lookup:
    """The tables of one device, and what is to be said about what was found in them."""

    def __init__(self, tables: Tables, on: On) -> None:
        self.on, self.notes = on, dict[str, None]()
        self._tables = tables
        self._gemms = gemm_shapes(self.files("gemm_perf"))
        self._experts = expert_shapes(self.files("moe_perf"), on.distribution)
        if "bf16" not in self._gemms:
            raise BadInput("gemm_perf.parquet", None, "no bf16 GEMMs", "give the folder of a device's kernel tables")

    def files(self, name: str) -> Sequence[KernelTable]:
        """The tables of a file name."""
        return self._tables.get(name, ())

    def note(self, text: str) -> None:
        """Say it once."""
        self.notes[text] = None

    def gemm(self, gemm: NamedGemm) -> Sourced:
        """Times of a GEMM by its own tokens."""
        names = gemm_names(gemm.format, self.on.device.peak_flops.precision(format_named(gemm.format, "").precision))
        shapes: GemmShapes = next(self._gemms[name] for name in names if name in self._gemms)
        if shapes.name != gemm.format:
            self.note(f"GEMMs in {gemm.format}: no valid rows, those of {shapes.name} are used")
        found = shapes.at(gemm.n, gemm.k, self.on.device, format_named(shapes.name, "format"))
        if found.note:
            self.note(f"{gemm.name}, {gemm.n:,} x {gemm.k:,} in {shapes.name}: {found.note}")
        return found

    def experts(self, layer: Layer, moe: Moe) -> Curve | None:
        """Routed experts by tokens of the group; None without a table of their format."""
        group, name, peak = self.on.group, layer.formats.routed_experts, self.on.device.peak_flops
        if peak.fp4 and f"{name}-w4a8" in self._experts:  # as the constants do
            name = f"{name}-w4a8"
        fmt = format_named(name, "format")
        names = expert_names(name, peak.precision(fmt.precision), w4a8=False)
        shapes: ExpertShapes | None = next((self._experts[n] for n in names if n in self._experts), None)
        if shapes is None:
            self.note(f"experts in {name}: not in the tables, the device's constants are used")
            return None
        spread = group.expert_ranks
        shape = ExpertShape(
            moe.latent_width or self.on.spec.hidden, moe.width, moe.top_k, moe.experts,
            1 if group.experts else group.tensor, spread,
        )  # fmt: skip
        costs = self.on.device.costs
        cost = costs.moe_of(name, peak.precision(fmt.precision), w4a8=False) if costs else None
        found = shapes.at(shape, self.on.device, fmt, cost)
        if found.note:
            self.note(f"{shape.text()} in {name}: {found.note}")
        return curve(found.times, 1 if group.experts else group.attention_replicas)

    def attention(self, layer: Layer) -> tuple[Surface | None, Surface | None]:
        """Surfaces of decode and prefill; None where the tables have none."""
        kind = layer.attention
        if isinstance(kind, Mla):
            return self._mla(layer) if self.is_module(layer) else (None, None)
        if not isinstance(kind, Gqa):
            return None, None
        if kind.values != kind.head_dim or kind.chunk_tokens:
            self.note("attention with other value heads or in chunks: the device's constants are used")
            return None, None
        tensor = self.on.group.tensor
        kv_format = "fp8" if self.on.spec.kv_type == "fp8" else "bf16"
        heads = Heads(-(-kind.kv_heads // tensor), kind.head_dim, kind.window_tokens, kv_format)
        decode = attention_shapes(self.files("generation_attention_perf"), "context")
        prefill = attention_shapes(self.files("context_attention_perf"), "chunk")
        what = f"{heads.kv_heads} KV heads of {heads.width}"
        what += f", window {heads.window}" if heads.window else ""
        count = kind.heads // tensor
        return self._surface(decode, count, heads, f"decode attention, {what}"), self._surface(
            prefill, count, heads, f"prefill attention, {what}"
        )

    def is_module(self, layer: Layer) -> bool:
        """Whether a layer's MLA has the shape of the tables' modules, which hold its projections."""
        found = layer.attention
        if not isinstance(found, Mla) or not self.files("mla_generation_module_perf"):
            return False
        same = all(getattr(found, f) == getattr(MLA_OF_THE_TABLES, f) for f in Mla.__struct_fields__ if f != "heads")
        if not (same and self.on.spec.hidden == MLA_HIDDEN):
            self.note("MLA of another shape than the tables' DeepSeek-V3: the device's constants are used")
            return False
        return True

    def _mla(self, layer: Layer) -> tuple[Surface | None, Surface | None]:
        attention, gemm = layer.attention, layer.formats.attention
        assert isinstance(attention, Mla)
        if gemm not in ("bf16", "fp8-block", "nvfp4"):
            gemm = "fp8-block" if gemm == "fp8" else "bf16"
            self.note(f"MLA modules in {layer.formats.attention}: those of {gemm} are used")
        kind = Heads(1, 0, 0, "fp8" if self.on.spec.kv_type == "fp8" else "bf16")
        count = attention.heads // self.on.group.tensor
        decode = mla_shapes(self.files("mla_generation_module_perf"), "context", gemm)
        prefill = mla_shapes(self.files("mla_context_module_perf"), "chunk", gemm)
        self.note("MLA modules were timed with their projections and the launches between them")
        one, many = self._surface(decode, count, kind, "MLA decode"), self._surface(prefill, count, kind, "MLA prefill")
        return (one, many) if one and many else (None, None)

    def _surface(self, shapes: AttentionShapes | None, count: int, kind: Heads, what: str) -> Surface | None:
        found = shapes.at(count, kind) if shapes else None
        if found is None:
            self.note(f"{what}: not in the tables, the device's constants are used")
            return None
        if found.note:
            self.note(f"{what}: {found.note}")
        return self._spread(found.surface)

    def _spread(self, surface: Surface) -> Surface:
        """Attention replicas split the sequences."""
        replicas = self.on.group.attention_replicas
        rows = tuple(r * replicas for r in surface.rows)
        return Surface(by=surface.by, rows=rows, columns=surface.columns, ns=surface.ns)

    def linear(self, layer: Layer) -> tuple[Surface | None, Surface | None]:
        """Surfaces of linear attention's decode and prefill."""
        kind = layer.attention
        if not isinstance(kind, (Kda, GatedDelta)):
            return None, None
        name = "kda_perf" if isinstance(kind, Kda) else "gdn_perf"
        table = next(iter(self.files(name)), None)
        if table is None:
            self.note(f"{name}.parquet: not in the tables, the device's constants are used")
            return None, None
        values, keys = (kind.heads, kind.heads) if isinstance(kind, Kda) else (kind.value_heads, kind.key_heads)
        tensor = self.on.group.tensor
        found = [linear_shapes(table, keys // tensor, decode=decode) for decode in (True, False)]
        decode, prefill = (
            self._surface(shapes, values // tensor, LINEAR, f"linear attention, {phase}")
            for shapes, phase in zip(found, ("decode", "prefill"), strict=True)
        )
        return decode, prefill

    def collectives(self, layer: Layer) -> tuple[Curve, ...]:
        """All-reduces after attention and FFN, and the all-to-alls of experts; () where the tables lack one."""
        spec, group = self.on.spec, self.on.group
        spread = isinstance(layer.ffn, Moe) and group.exchanges
        if group.tensor == 1 and not spread:
            return ()
        token_bytes = spec.hidden * ELEMENT_BYTES[spec.activation_type] / group.attention_replicas
        nccl, custom = self.files("nccl_perf"), self.files("custom_allreduce_perf")
        reduce = fastest(nccl_sizes(nccl, "all_reduce", group.tensor), custom_sizes(custom, group.tensor))
        exchange = nccl_sizes(nccl, "alltoall", group.expert_ranks) if spread else {}
        if (group.tensor > 1 and not reduce) or (spread and not exchange):
            self.note(f"collectives of {group.devices} devices: not in the tables, the device's constants are used")
            return ()
        reduced = (by_tokens(reduce, token_bytes),) if reduce else ()
        if not spread:
            return reduced * layer.parts
        assert isinstance(layer.ffn, Moe)
        copies = layer.ffn.top_k * (layer.ffn.latent_width or spec.hidden) / group.expert_ranks
        gather = nccl_sizes(nccl, "all_gather", group.tensor) if group.tensor > 1 else {}
        moved = (by_tokens(exchange, copies * DISPATCH_BYTES), by_tokens(exchange, copies * COMBINE_BYTES))
        after = (by_tokens(gather, token_bytes),) if gather else ()
        return reduced * (layer.parts - 1) + moved + after


def make_kernel_profile(tables: Tables, on: On, name: str, source: str) -> KernelProfile:
    """A profile of all layers. Raises BadInput for a file, column or value that is not what it has to be."""
    lookup, spec = Lookup(tables, on), on.spec
    kinds = tuple(_kind(lookup, layer) for layer in dict.fromkeys(spec.layers))
    fmt = spec.formats.embedding if spec.tied else spec.formats.head
    head = lookup.gemm(NamedGemm("LM head", fmt, -(-spec.vocab // on.group.tensor), spec.hidden))
    return KernelProfile(
        name=name, model=spec.name, device=on.device.name, kinds=kinds,
        head=curve(head.times, on.group.attention_replicas), weights=formats_of(spec), kv_type=spec.kv_type,
        tensor_parallel=on.group.tensor, expert_parallel=on.group.expert_ranks, notes=tuple(lookup.notes),
        source=source,
    )  # fmt: skip


def _kind(lookup: Lookup, layer: Layer) -> LayerTimes:
    on = lookup.on
    decode, prefill = lookup.attention(layer)
    module = lookup.is_module(layer) and decode is not None and prefill is not None
    gemms = layer_gemms(on.spec, layer, on.group, MLA_MODULE if module else frozenset())
    work = [_sum([lookup.gemm(g) for g in gemms], on.group.attention_replicas)] if gemms else []
    routed = lookup.experts(layer, layer.ffn) if isinstance(layer.ffn, Moe) else None
    linear_decode, linear_prefill = lookup.linear(layer)
    overhead, token_ns = elementwise(on.spec, layer, on.device, on.group)
    if isinstance(layer.ffn, Moe) and routed is None:
        folded = folded_experts(on, layer)
        overhead, token_ns = overhead + folded.overhead_ns, token_ns + folded.token_ns
    return LayerTimes(
        layers=tuple(i for i, other in enumerate(on.spec.layers) if other == layer),
        work=tuple(work),
        overhead_ns=overhead,
        token_ns=token_ns,
        experts=routed,
        decode=decode,
        prefill=prefill,
        linear_decode=linear_decode,
        linear_prefill=linear_prefill,
        collectives=lookup.collectives(layer),
    )


def folded_experts(on: On, layer: Layer) -> Folded:
    """Fixed times and traffic of experts that keep the device's constants."""
    device = on.device
    made = experts(on.spec, layer, device, device.costs, on.group, ()) if device.costs else None
    return made[1] if made else Folded(float(device.overhead.op_ns * MOE_OPS))


def _sum(parts: Iterable[Sourced], replicas: int) -> Curve:
    """GEMMs one after the other, at the tokens that all have."""
    found = [part.times for part in parts]
    shared = set.intersection(*(set(times) for times in found))
    return curve({m: sum(times[m] for times in found) for m in shared}, replicas)
