"""Shape profiles: times of a model's own operations on a device, from public kernel tables, as a plan uses them."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from stageline.cost.entries import Collective, FullAttention, LayerGroup, LinearAttention, LmHead, Phase, Roofline
from stageline.cost.group import Group
from stageline.cost.measured_entries import Curve, Surface
from stageline.cost.profile import Residual, check_measured_on
from stageline.errors import UsageError
from stageline.model.spec import ModelSpec

KERNELS_FORMAT = "stageline-kernels/1"


class LayerTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times of one kind of layer on one device. What the tables lack is None: the device's constants take its place."""

    layers: tuple[int, ...]
    work: tuple[Curve, ...]  # GEMMs, by tokens of the group
    overhead_ns: float  # kernels that no table has
    token_ns: float = 0.0  # the same, by tokens of the group
    experts: Curve | None = None  # the routed ones, by tokens of the group
    decode: Surface | None = None
    prefill: Surface | None = None
    linear_decode: Surface | None = None
    linear_prefill: Surface | None = None
    collectives: tuple[Curve, ...] = ()  # by tokens of the group


class KernelProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For one model in given formats on one kind of group."""

    name: str
    model: str
    device: str
    kinds: tuple[LayerTimes, ...]
    head: Curve  # by sampled rows of the group
    weights: tuple[str, ...]  # formats of the layers' weights, sorted
    kv_type: str
    tensor_parallel: int = 1
    expert_parallel: int = 1
    notes: tuple[str, ...] = ()  # what was interpolated, scaled or taken from constants, and why
    residuals: tuple[Residual, ...] = ()
    source: str = ""
    format: str = KERNELS_FORMAT

    def tokens(self) -> tuple[int, int]:
        """The tokens of a step that all curves cover."""
        curves = [c for kind in self.kinds for c in (*kind.work, kind.experts) if c]
        return max(c.at[0] for c in curves), min(c.at[-1] for c in curves)


def formats_of(spec: ModelSpec) -> tuple[str, ...]:
    """The weight formats of a model's layers."""
    return tuple(sorted({name for layer in spec.layers for name in msgspec.structs.astuple(layer.formats)}))


def check_kernel_profile(profile: KernelProfile, spec: ModelSpec, device: str, group: Group, alpha: float) -> None:
    """Refuse a profile of another model, device, group or format. Raises UsageError."""
    check_measured_on(profile, spec, device, group.tensor)
    wrong = (
        ("--ep", profile.expert_parallel, group.expert_ranks),
        ("weights", ", ".join(profile.weights), ", ".join(formats_of(spec))),
        ("--kv-cache-dtype", profile.kv_type, spec.kv_type),
        ("layers", sum(len(kind.layers) for kind in profile.kinds), len(spec.layers)),
    )
    for what, made, asked in wrong:
        if made != asked:
            raise UsageError(f"profile {profile.name} was made for {what} {made}, not {asked}; calibrate one for it")
    for flag, given in (
        ("--context-parallel-size", group.context > 1),
        ("--sequence-parallel", group.sequence_parallel),
        ("--expert-imbalance", alpha > 0),
        ("--redundant-experts", group.redundant_experts > 0),
    ):
        if given:
            raise UsageError(f"{flag} can't be combined with profile {profile.name}, whose tables don't cover it")


def beyond_tables(profile: KernelProfile, tokens: int, sequences: int, context: int) -> list[str]:
    """What to say of steps of up to that many tokens and sequences at a context; [] if the tables cover them."""
    found = {"new tokens in a step": (tokens, *profile.tokens())}
    for kind in profile.kinds:
        if kind.decode:
            found["decoding sequences"] = (sequences, kind.decode.rows[0], kind.decode.rows[-1])
            found["tokens of context in decode"] = (context, kind.decode.columns[0], kind.decode.columns[-1])
        if kind.prefill:
            found["new tokens of one prompt in a step"] = (tokens, kind.prefill.columns[0], kind.prefill.columns[-1])
    return [
        f"the tables of profile {profile.name} cover {low:,} to {high:,} {what}; up to {asked:,} are extrapolated"
        for what, (asked, low, high) in found.items()
        if asked > high
    ]


def with_tables(base: Roofline, profile: KernelProfile, spec: ModelSpec, layers: Sequence[int]) -> Roofline:
    """An entry from the device's constants, with the profile's times in place of what they cover."""
    kind_of = {i: kind for kind in profile.kinds for i in kind.layers}
    first = {spec.layers[i]: kind_of[i] for i in reversed(layers)}
    order = dict.fromkeys(spec.layers[i] for i in layers)
    groups = tuple(_group(group, first[layer]) for group, layer in zip(base.groups, order, strict=True))
    head = LmHead(row_ns=0.0, weights_ns=0.0, curve=profile.head) if base.head else None
    return msgspec.structs.replace(base, groups=groups, head=head)


def _group(base: LayerGroup, kind: LayerTimes) -> LayerGroup:
    attention, linear, experts = base.attention, base.linear, base.experts
    if experts and kind.experts:
        experts = msgspec.structs.replace(experts, curve=kind.experts, imbalance=())
    if attention and (kind.decode or kind.prefill):
        attention = _full(attention, kind)
    if linear and kind.linear_decode and kind.linear_prefill:
        linear = LinearAttention(
            token_ns=0.0, sequence_ns=0.0, decode=_phase(kind.linear_decode), prefill=_phase(kind.linear_prefill)
        )
    curves = tuple(Collective(ways=(), curve=curve) for curve in kind.collectives)
    return msgspec.structs.replace(
        base,
        overhead_ns=kind.overhead_ns,
        gemms=(),
        transfer_token_ns=kind.token_ns,
        experts=experts,
        work=kind.work or UNSET,
        attention=attention,
        linear=linear,
        collectives=curves or base.collectives,
    )


def _full(base: FullAttention, kind: LayerTimes) -> FullAttention:
    """A phase without a table keeps the constants."""
    decode, prefill = kind.decode, kind.prefill
    return msgspec.structs.replace(
        base,
        decode=_phase(decode, base.decode_pair_ns) if decode else base.decode,
        prefill=_phase(prefill, base.prefill_pair_ns, base.prefill.kv_ns if base.prefill else base.kv_ns)
        if prefill
        else base.prefill,
    )


def _phase(surface: Surface, pair_ns: float = 0.0, kv_ns: float = 0.0) -> Phase:
    return Phase(fixed_ns=0.0, surface=msgspec.structs.replace(surface, pair_ns=pair_ns, kv_ns=kv_ns))
