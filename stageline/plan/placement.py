"""The by-kind placement of layers on stages, and the route that follows from a placement."""

from typing import NamedTuple

from stageline.model.spec import ModelSpec
from stageline.plan.memory import Memory

Layers = tuple[int, ...]


class LayerRun(NamedTuple):
    """Consecutive layers on one stage: one visit of the route."""

    stage: int
    layers: Layers


def by_kind(spec: ModelSpec, memory: Memory, consecutive: bool) -> list[Layers]:
    """The published rule: a full-attention layer gets a stage of its own, linear-attention layers fill stages.

    In layer order, a linear-attention layer joins the last stage of its kind if it fits. That stage may then hold
    layers from both sides of a full-attention layer, and is visited twice; `consecutive` rules that out.
    """
    stages: list[list[int]] = []
    shared: list[int] = []
    for index, layer in enumerate(spec.layers):
        joins = bool(shared) and memory.need_bytes([*shared, index]) <= memory.capacity_bytes
        if layer.attention.linear and joins and not (consecutive and shared[-1] != index - 1):
            shared.append(index)
            continue
        stages.append([index])
        if layer.attention.linear:
            shared = stages[-1]
    return [tuple(s) for s in stages]


def route(stages: list[Layers]) -> list[LayerRun]:
    """The visits of a token: layers in order, consecutive ones on the same stage in one visit."""
    owner = {layer: s for s, layers in enumerate(stages) for layer in layers}
    runs: list[LayerRun] = []
    for layer in range(len(owner)):
        if runs and runs[-1].stage == owner[layer]:
            runs[-1] = LayerRun(owner[layer], (*runs[-1].layers, layer))
        else:
            runs.append(LayerRun(owner[layer], (layer,)))
    return runs
