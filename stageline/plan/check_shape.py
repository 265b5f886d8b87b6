"""Checks that a model allows the requested parallelism."""

from stageline.errors import BadInput
from stageline.model.ffn import Moe
from stageline.model.formats import WeightFormat
from stageline.model.spec import Layer, ModelSpec
from stageline.model.splits import Split
from stageline.plan.options import PlanOptions

TP, EP, REDUNDANT = "--tensor-parallel-size", "--ep", "--redundant-experts"
MOST_RANKS = 1024


def ranks_divide(spec: ModelSpec, ranks: int, spread: bool = False) -> bool:
    """Whether tensor ranks split every layer evenly, and into whole blocks of its weight formats.

    `spread`: experts are spread over ranks, not split by them.
    """
    return all(_uneven(layer, ranks, spread) is None for layer in set(spec.layers))


def _uneven(layer: Layer, ranks: int, spread: bool) -> Split | None:
    """The first part of a layer that the ranks don't split evenly."""
    splits = [s for s in layer.splits() if not (spread and s.spread)]
    return next((s for s in splits if not s.even(ranks) or _cut_block(layer, s, ranks)), None)


def _cut_block(layer: Layer, split: Split, ranks: int) -> int:
    """The block of the weight format that the ranks would cut; 0: none."""
    fmt: WeightFormat = layer.formats.of(split.weight_class)
    cut = [n for n in (fmt.block_out, fmt.block_in) if split.part(ranks) % n and split.part(1) % n == 0]
    return max(cut, default=0) if ranks > 1 else 0


def check_shape(spec: ModelSpec, options: PlanOptions) -> None:
    """Refuse ranks that split a layer or experts unevenly, and expert ranks without experts. Raises BadInput."""
    _check_ranks(spec, options.tensor_parallel, options.expert_parallel > 1)
    experts = {layer.ffn.experts for layer in set(spec.layers) if isinstance(layer.ffn, Moe)}
    ranks, redundant = options.expert_parallel, options.redundant_experts
    if ranks > 1 and not experts:
        hint = f"omit it, or use {TP} {ranks} or --replicas {ranks}"
        raise BadInput(EP, ranks, f"{spec.name} is dense and has no experts to spread", hint)
    if redundant and ranks == 1:
        reason = "one rank holds every expert, so that copies have no use"
        raise BadInput(REDUNDANT, redundant, reason, f"spread experts with {EP}, or omit it")
    for count in sorted(experts):
        if redundant > count * (ranks - 1):
            most = count * (ranks - 1)
            reason = f"a rank holds each of {count} experts at most once: {ranks} ranks hold at most {most:,} copies"
            raise BadInput(REDUNDANT, redundant, reason, "use fewer")
        if (count + redundant) % ranks:
            more = redundant + -(count + redundant) % ranks
            reason = (
                f"{count} experts{f' and {redundant} copies' * (redundant > 0)} do not spread evenly over {ranks} ranks"
            )
            tensor = options.tensor_parallel
            whole = max(n for n in range(1, ranks) if n == 1 or not ((count + redundant) % n or n % tensor))
            raise BadInput(EP, ranks, reason, f"use {EP} {whole}, or {REDUNDANT} {more}")


def _check_ranks(spec: ModelSpec, ranks: int, spread: bool) -> None:
    if ranks_divide(spec, ranks, spread):
        return
    index, split = next((i, s) for i, x in enumerate(spec.layers) if (s := _uneven(x, ranks, spread)))
    raise BadInput(TP, ranks, _reason(spec, index, split, ranks), _way_out(spec, ranks, spread))


def _reason(spec: ModelSpec, index: int, split: Split, ranks: int) -> str:
    part = f"the {split.size} {split.what}" if split.columns != 1 else f"the {split.what}, {split.size:,},"
    where = f"{part} of layer {index} of {spec.name}"
    if split.even(ranks):
        block = _cut_block(spec.layers[index], split, ranks)
        name = getattr(spec.layers[index].formats, split.weight_class)
        return f"a rank's part of {where} has {split.part(ranks):,} columns, not whole blocks of {block} ({name})"
    if split.copied:
        return f"it neither divides nor is a multiple of {where}"
    return f"it does not divide {where}"


def _way_out(spec: ModelSpec, ranks: int, spread: bool) -> str:
    """All ranks that are possible; to spread the experts, if that makes these ranks possible."""
    most = min(MOST_RANKS, max(split.size for layer in set(spec.layers) for split in layer.splits()))
    fits = [str(n) for n in range(1, most + 1) if ranks_divide(spec, n, spread)]
    way_out = f"use {TP} {' or '.join([', '.join(fits[:-1]), fits[-1]] if fits[1:] else fits)}"
    experts = [layer.ffn.experts for layer in set(spec.layers) if isinstance(layer.ffn, Moe)]
    if experts and not spread and ranks_divide(spec, ranks, True) and not any(n % ranks for n in experts):
        way_out += f", or spread the experts with {EP} {ranks}"
    return way_out
