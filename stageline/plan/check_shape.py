"""Checks that a model allows the requested parallelism."""

from stageline.errors import BadInput
from stageline.model.attention import Attention, GatedDelta
from stageline.model.ffn import Moe
from stageline.model.spec import ModelSpec
from stageline.plan.options import PlanOptions

TP, EP, REDUNDANT = "--tensor-parallel-size", "--ep", "--redundant-experts"


def heads_of(attention: Attention) -> int:
    """The heads that tensor ranks split: query heads, or the value heads of a gated delta layer."""
    return attention.value_heads if isinstance(attention, GatedDelta) else attention.heads


def heads_divide(spec: ModelSpec, ranks: int) -> bool:
    """Whether the ranks split the heads of every layer evenly. KV heads need not divide, because ranks copy them."""
    return all(heads_of(layer.attention) % ranks == 0 for layer in set(spec.layers))


def check_shape(spec: ModelSpec, options: PlanOptions) -> None:
    """Refuse ranks that split heads or experts unevenly, and expert ranks without experts. Raises BadInput."""
    _check_heads(spec, options.tensor_parallel)
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


def _check_heads(spec: ModelSpec, ranks: int) -> None:
    if heads_divide(spec, ranks):
        return
    layer = next(i for i, x in enumerate(spec.layers) if heads_of(x.attention) % ranks)
    heads = heads_of(spec.layers[layer].attention)
    fits = [n for n in range(1, heads + 1) if heads_divide(spec, n)]
    below, above = max(n for n in fits if n < ranks), next((n for n in fits if n > ranks), None)
    hint = f"use {TP} {below}" + (f" or {above}" if above else "")
    raise BadInput(TP, ranks, f"it does not divide the {heads} heads of layer {layer} of {spec.name}", hint)
